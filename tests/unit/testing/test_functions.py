"""Durable functions under test: replays, time, replaced steps, signals (W10)."""

import random
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from dueline import Dueline, DurableContext, JobFailed, Retry
from dueline.testing.bench import AppOnBench, on_bench
from dueline.testing.functions import FunctionsOnBench


@pytest.fixture
def bench() -> Iterator[AppOnBench]:
    """Make an application under test."""
    with on_bench(Dueline()) as made:
        yield made


@pytest.fixture
def functions(bench: AppOnBench) -> FunctionsOnBench:
    """Return its durable functions."""
    return bench.functions


def fetch(page: int) -> str:
    """Be replaced."""
    raise AssertionError(page)


def test_a_function_is_replayed_at_every_call(bench: AppOnBench) -> None:
    """Count what runs between calls, and what steps do."""
    between: list[str] = []
    steps: list[int] = []

    @bench.app.durable(name="walk")
    def walk(ctx: DurableContext) -> str:
        between.append("begin")
        for number in range(3):
            ctx.step(steps.append, number, name="append")
        between.append("end")
        return "done"

    assert bench.functions.run(walk.enqueue()) == "done"
    assert steps == [0, 1, 2]
    assert between.count("begin") == 4
    assert between.count("end") == 2


def test_three_days_pass_at_once_in_the_order_of_due_jobs(
    bench: AppOnBench, functions: FunctionsOnBench
) -> None:
    """Sleep beside jobs that are due before and after the end of the sleep."""
    seen: list[str] = []

    @bench.app.task(name="note")
    def note(word: str) -> None:
        seen.append(word)

    @bench.app.durable(name="nap")
    def nap(ctx: DurableContext) -> None:
        ctx.sleep(timedelta(days=3))
        ctx.step(seen.append, "awake", name="append")

    begin = bench.clock.now
    note.using(after=timedelta(days=4)).enqueue("four days")
    note.using(after=timedelta(days=2)).enqueue("two days")
    functions.run(nap.enqueue())
    assert seen == ["two days", "awake"]
    assert bench.clock.now - begin == timedelta(days=3)


def test_a_step_is_replaced_by_a_value_or_an_error(
    bench: AppOnBench, functions: FunctionsOnBench
) -> None:
    """Replace a step by its function and by its name; retries wait in skipped time."""

    @bench.app.durable(name="read")
    def read(ctx: DurableContext) -> list[Any]:
        return [ctx.step(fetch, 1), ctx.step(fetch, 2, name="second")]

    functions.replace(fetch, "one")
    functions.replace("second", "two")
    assert functions.run(read.enqueue()) == ["one", "two"]
    functions.replace("second", raises=ConnectionError("no route"))
    begin = bench.clock.now
    with pytest.raises(JobFailed, match="ConnectionError: no route"):
        functions.run(read.using(retry=Retry(attempts=3, base=60, cap=60)).enqueue())
    assert bench.clock.now > begin


def test_a_value_that_does_not_fit_the_annotation_is_refused(
    bench: AppOnBench, functions: FunctionsOnBench
) -> None:
    """Replace a step by a value of another type."""

    @bench.app.durable(name="read")
    def read(ctx: DurableContext) -> Any:  # noqa: ANN401
        return ctx.step(fetch, 1)

    functions.replace(fetch, 5)
    with pytest.raises(JobFailed, match="fetch cannot be stored"):
        functions.run(read.enqueue())


def test_a_signal_is_sent_where_the_function_waits(
    bench: AppOnBench, functions: FunctionsOnBench
) -> None:
    """Run until the wait, send, and run on; without a signal the time runs out."""

    @bench.app.durable(name="approval")
    async def approval(ctx: DurableContext) -> object:
        return await ctx.wait_signal("approved", timeout=timedelta(days=3), default="nobody")

    job = approval.enqueue()
    functions.run(job, until="approved")
    job.signal("approved", "ann")
    assert functions.run(job) == "ann"
    begin = bench.clock.now
    assert functions.run(approval.enqueue()) == "nobody"
    assert bench.clock.now - begin == timedelta(days=3)
    with pytest.raises(AssertionError, match="never waited for the signal other"):
        functions.run(approval.enqueue(), until="other")


def test_a_wait_that_nothing_ends_is_an_error(
    bench: AppOnBench, functions: FunctionsOnBench
) -> None:
    """Wait for ever."""

    @bench.app.durable(name="ever")
    def ever(ctx: DurableContext) -> None:
        ctx.wait_signal("go")

    with pytest.raises(AssertionError, match=r"ever waits for the signal go.*job.signal\('go'"):
        functions.run(ever.enqueue())


@pytest.mark.parametrize("source", ["clock", "chance", "counter"])
def test_what_changes_between_calls_is_an_error(
    bench: AppOnBench, functions: FunctionsOnBench, source: str
) -> None:
    """Pass a clock, chance and a counter to the second step: its arguments differ at a replay."""
    runs: list[int] = []

    @bench.app.durable(name="careless")
    def careless(ctx: DurableContext) -> None:
        runs.append(1)
        value = {"clock": time.time_ns(), "chance": random.random(), "counter": len(runs)}[source]
        ctx.step(str, value, name="text")
        ctx.step(str, 1, name="one")

    with pytest.raises(AssertionError, match="call 1, text, has other arguments at a replay"):
        functions.run(careless.enqueue())


def test_a_path_that_changes_is_an_error(bench: AppOnBench, functions: FunctionsOnBench) -> None:
    """Call another step at a replay."""
    runs: list[int] = []

    @bench.app.durable(name="flips")
    def flips(ctx: DurableContext) -> None:
        runs.append(1)
        ctx.step(str, 1, name="one" if len(runs) == 1 else "two")

    with pytest.raises(AssertionError, match="call 1 was one, the code now calls two"):
        functions.run(flips.enqueue())


def test_outside_of_tests_other_arguments_are_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Run a careless function without the test mode."""
    runs: list[int] = []
    app = Dueline("memory://")

    @app.durable(name="careless")
    def careless(ctx: DurableContext) -> str:
        runs.append(1)
        value: str = ctx.step(str, len(runs), name="text")
        ctx.wait_signal("go")
        return value

    job = careless.enqueue()
    with app.worker():
        while job.status != "scheduled":  # it is parked, and so replayed
            time.sleep(0.02)
        job.signal("go")
        assert job.result(timeout=60) == "1"
    app.close()
    assert "call 1, text, has other arguments than its record" in caplog.text


def test_compensations_run_under_test(bench: AppOnBench, functions: FunctionsOnBench) -> None:
    """Fail after two steps with compensations."""
    undone: list[str] = []

    @bench.app.durable(name="trip")
    def trip(ctx: DurableContext) -> None:
        ctx.step(str, "car", undo=undone.append, name="car")
        ctx.step(str, "hotel", undo=undone.append, name="hotel")
        ctx.step(fetch, 1, retry=Retry(attempts=1))

    functions.replace(fetch, raises=ValueError("full"))
    with pytest.raises(JobFailed, match="full"):
        functions.run(trip.enqueue())
    assert undone == ["hotel", "car"]


def test_without_replays_a_function_runs_as_in_a_worker() -> None:
    """Turn the replays off; steps can still be replaced."""
    between: list[str] = []
    with on_bench(Dueline(), replays=False) as bench:

        @bench.app.durable(name="walk")
        def walk(ctx: DurableContext) -> str:
            between.append("begin")
            return str(ctx.step(fetch, 1))

        bench.functions.replace(fetch, "one")
        assert bench.functions.run(walk.enqueue()) == "one"
    assert between == ["begin"]
