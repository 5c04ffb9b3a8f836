"""Calls and gathers of durable functions: what they refuse, record, and leave alone."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dueline import (
    BadInput,
    CalledJob,
    CallFailed,
    Cancel,
    Dueline,
    DurableContext,
    JobFailed,
    Retry,
    Unique,
)
from dueline.core.lane import dead_queue
from dueline.durable import calls, gathers
from dueline.jobs import called_jobs
from dueline.limits import semaphore
from dueline.testing.bench import AppOnBench
from tests.harness.addresses import world_of
from tests.harness.durable_bench import ended, error_of
from tests.harness.durable_stage import DurableStage

ONCE = Retry(attempts=1)

LOOKS: Any = {"end_of": called_jobs.end_of, "ends_of": called_jobs.ends_of}
"""Where a parent reads how its calls ended."""


def declare_double(app: Dueline) -> Any:  # noqa: ANN401  (a task)
    """Declare a task to be called."""

    @app.task(name="double", retry=ONCE)
    def double(n: int) -> int:
        if n < 0:
            raise ValueError("negative")
        return 2 * n

    return double


def test_a_call_returns_what_its_job_returned(bench: AppOnBench) -> None:
    """Call tasks that keep no result, with and without waiting, also a coroutine function."""
    # W12
    double = declare_double(bench.app)

    @bench.app.durable(name="inner")
    async def inner(ctx: DurableContext, n: int) -> int:
        handle: CalledJob = await ctx.call(double.using(keep=0), n, wait=False)
        assert len(handle.job_id) == 16
        return int(await handle.result() + await ctx.call(double, n))

    @bench.app.durable(name="outer")
    def outer(ctx: DurableContext) -> list[int]:
        handle: CalledJob = ctx.call(double, 5, wait=False)
        return [ctx.call(inner, 3), handle.result(), handle.result()]

    job = outer.enqueue()
    assert ended(bench, job) == [12, 10, 10]
    assert [(step.position, step.kind, step.name) for step in job.steps()] == [
        ("1", "call", "double"),
        ("2", "call", "inner"),
        ("3", "result", "inner"),
        ("4", "result", "double"),
        ("5", "result", "double"),
    ]


def test_a_failed_call_is_an_error_that_a_later_retry_does_not_change(bench: AppOnBench) -> None:
    """Catch the error of a dead job, retry the job, and replay the function."""
    double = declare_double(bench.app)
    seen: list[str] = []

    @bench.app.durable(name="outer")
    def outer(ctx: DurableContext, n: int) -> str:
        handle: CalledJob = ctx.call(double, n, wait=False)
        try:
            handle.result()
        except CallFailed as error:
            is_its = error.job_id == handle.job_id
            seen.append(f"{error.task} {error.status} {is_its}: {error.text}")
        ctx.wait_signal("go")
        return "caught"

    job = outer.enqueue(-1)
    bench.drain(raises=False)
    bench.app.job(outer_child(bench)).retry()
    bench.drain(raises=False)
    job.signal("go")
    assert ended(bench, job) == "caught"
    assert seen
    assert set(seen) == {"double dead True: ValueError: negative"}


def outer_child(bench: AppOnBench) -> str:
    """Return the id of the job that is dead."""
    (row,) = bench.app.queues.engine.jobs_of(dead_queue("default"))
    return row.id.hex()


def test_an_uncaught_failure_of_a_call_ends_the_function(bench: AppOnBench) -> None:
    """Let the error of a call pass: the function is not retried."""
    double = declare_double(bench.app)
    runs: list[int] = []

    @bench.app.durable(name="outer", retry=Retry.fixed(1, attempts=5))
    def outer(ctx: DurableContext) -> int:
        runs.append(1)
        value: int = ctx.call(double, -1)
        return value

    with pytest.raises(JobFailed, match="The call of double is dead: ValueError: negative"):
        ended(bench, outer.enqueue())
    assert len(runs) == 2


def test_calls_that_cannot_be_made_are_refused(bench: AppOnBench) -> None:
    """Call functions, and tasks with arguments and options that do not apply."""
    double = declare_double(bench.app)

    @bench.app.task(name="keyed", unique="key:{n}")
    def keyed(n: int) -> int:
        return n

    refused: list[str] = []

    @bench.app.durable(name="outer")
    def outer(ctx: DurableContext) -> str:
        tries: list[Callable[[], object]] = [
            lambda: ctx.call(len, [1]),  # type: ignore[arg-type]  # it is refused
            lambda: ctx.call(double, "x"),
            lambda: ctx.call(double, object()),
            lambda: ctx.call(double),
            lambda: ctx.call(keyed, 1),
            lambda: ctx.call(double.using(unique=Unique("x")), 1),
            lambda: ctx.call(double.using(window=5), 1),
            lambda: ctx.gather([len]),  # type: ignore[list-item]  # it is refused
            lambda: ctx.gather([double.call(1)], limit=0),
            lambda: ctx.gather([double.call(1)] * (gathers.CALLS_MAX + 1)),
        ]
        for call in tries:
            try:
                call()
            except BadInput as error:
                refused.append(f"{error.message} {error.hint}")
        value: str = ctx.step(str, "goes on", name="on")
        return value

    job = outer.enqueue()
    assert ended(bench, job) == "goes on"
    assert len(refused) == 10
    assert "ctx.step(function)" in refused[0]
    assert "`unique`" in refused[4]
    assert "`window`" in refused[6]
    assert "10001 calls; 10000 are allowed" in refused[9]
    assert [step.position for step in job.steps()] == ["1"], "a refused call takes no position"


def test_calls_nest_a_hundred_deep(bench: AppOnBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a function call itself as deep as allowed, and once more."""
    assert calls.DEPTH_MAX == 100
    monkeypatch.setattr(calls, "DEPTH_MAX", 10)

    @bench.app.durable(name="deep", retry=ONCE)
    def deep(ctx: DurableContext, n: int) -> int:
        if n == 0:
            return 0
        below: int = ctx.call(bench.app.task_named("deep"), n - 1)
        return 1 + below

    assert ended(bench, deep.enqueue(10)) == 10
    with pytest.raises(JobFailed):
        ended(bench, deep.enqueue(11))
    errors = [row.error for row in bench.app.queues.engine.jobs_of(dead_queue("default"))]
    assert all("is called through 10 others" in error for error in errors)
    assert len(errors) == 11


def test_a_cancelled_parent_leaves_its_calls(bench: AppOnBench) -> None:
    """Cancel a function that waits for a call; the call's job goes on."""

    @bench.app.durable(name="inner")
    def inner(ctx: DurableContext) -> str:
        value: str = ctx.wait_signal("go")
        return value

    handles: list[CalledJob] = []

    @bench.app.durable(name="outer")
    def outer(ctx: DurableContext) -> str:
        handles.append(ctx.call(inner, wait=False))
        try:
            handles[-1].result()
        except Cancel:
            return "cancelled"
        return "done"

    job = outer.enqueue()
    bench.drain()
    job.cancel()
    assert ended(bench, job) == "cancelled"
    child = bench.app.job(handles[0].job_id)
    child.signal("go", "alive")
    bench.drain()
    assert child.result(timeout=0) == "alive"


def test_a_gather_is_bounded_and_wakes_its_parent_once(
    bench: AppOnBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gather calls in several parts and blocks; count the runs of the parent."""
    # W12
    monkeypatch.setattr(gathers, "_PART", 7)
    monkeypatch.setattr(called_jobs, "_BLOCK", 4)
    double = declare_double(bench.app)
    runs: list[int] = []

    @bench.app.durable(name="outer")
    async def outer(ctx: DurableContext) -> list[Any]:
        runs.append(1)
        found = await ctx.gather([double.call(n) for n in range(30)], limit=3)
        failed = await ctx.gather([double.call(-1), double.call(1)], return_exceptions=True)
        return [*found, *(each if isinstance(each, int) else each.status for each in failed)]

    assert ended(bench, outer.enqueue()) == [*(2 * n for n in range(30)), "dead", 2]
    assert len(runs) == 3
    assert semaphore.capacities(bench.app.store)["gather-3"] == 3


def test_an_empty_gather_and_one_that_fails(bench: AppOnBench) -> None:
    """Gather nothing, and let the error of a call pass."""
    double = declare_double(bench.app)

    @bench.app.durable(name="outer")
    def outer(ctx: DurableContext) -> int:
        assert ctx.gather([]) == []
        return len(ctx.gather([double.call(1), double.call(-2)]))

    with pytest.raises(JobFailed, match="The call of double is dead"):
        ended(bench, outer.enqueue())


def test_results_that_are_too_large_are_an_error(
    bench: AppOnBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gather more bytes than allowed; the error is recorded."""
    monkeypatch.setattr(gathers, "RESULTS_BYTES_MAX", 100)

    @bench.app.task(name="large")
    def large() -> str:
        return "x" * 60

    @bench.app.durable(name="outer")
    def outer(ctx: DurableContext) -> str:
        try:
            ctx.gather([large.call(), large.call()])
        except BadInput as error:
            ctx.sleep(10)
            return error.message
        return ""

    assert "124 bytes; 100 are allowed" in ended(bench, outer.enqueue())


def test_other_arguments_of_a_gather_stop_the_function(bench: AppOnBench) -> None:
    """Replay a gather with another number of calls, and with other arguments."""
    double = declare_double(bench.app)
    given = Counter(first=1, count=3)

    @bench.app.durable(name="outer")
    def outer(ctx: DurableContext) -> int:
        found = ctx.gather([double.call(given["first"] + n) for n in range(given["count"])])
        ctx.wait_signal("go")
        return sum(found)

    job = outer.enqueue()
    bench.drain()
    given["first"] = 2
    job.signal("go")
    bench.drain()
    assert "the arguments of calls 1 to 3 of a gather differ" in error_of(bench, job)
    given["first"], given["count"] = 1, 4
    bench.clock.advance(700)
    bench.drain()
    assert "call 1 was gather(3 calls), the code now calls gather(4 calls)" in error_of(bench, job)
    given["count"] = 3
    assert ended(bench, job) == 12


def test_an_end_that_comes_while_the_parent_parks_wakes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let another process run the called job after the parent has looked for its end."""
    # rule D3

    def declare(app: Dueline, _: DurableStage) -> None:
        double = declare_double(app)

        @app.durable(name="outer")
        def outer(ctx: DurableContext, how: str) -> int:
            if how == "call":
                return int(ctx.call(double, 4))
            return sum(ctx.gather([double.call(4)]))

    with world_of("memory", tmp_path) as world:
        for how in ("call", "gather"):
            stage = DurableStage(world.store, world.clock, declare)
            others = stage.process(world.store)

            def late(
                name: str, *given: object, others: Dueline = others, on: DurableStage = stage
            ) -> object:
                found = LOOKS[name](*given)
                found = found if name == "end_of" else list(found)
                if not found:
                    on.turn(others)
                return found

            with monkeypatch.context() as patches:
                patches.setattr(calls, "end_of", partial(late, "end_of"))
                patches.setattr(gathers, "ends_of", partial(late, "ends_of"))
                stage.begin(how, function="outer")
                stage.turn(stage.process(world.store))
            assert stage.outcome() == 8, "it ends without a check by time"
