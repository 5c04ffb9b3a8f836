"""Restarts, retries and resets of durable functions, patches and versions of their code."""

from typing import Any

import pytest

from dueline import BadInput, Conflict, DurableContext, Job, JobFailed, Retry
from dueline.jobs.function_list import inbox_of, partition_of
from dueline.testing.bench import AppOnBench
from tests.harness.durable_bench import ended

ONCE = Retry(attempts=1)
DAY_S = 86_400


class Trip:
    """A function with steps that may be made to fail. calls: of its steps."""

    def __init__(self, bench: AppOnBench) -> None:
        """Declare it."""
        self.calls: list[str] = []
        self.fails = True
        self.undone: list[str] = []
        self.has_undo = False

        def book(what: str) -> str:
            self.calls.append(what)
            if what == "hotel" and self.fails:
                raise ValueError("full")
            return what.upper()

        @bench.app.task(name="ask", retry=ONCE)
        def ask(what: str) -> str:
            return book(what)

        @bench.app.durable(name="trip", retry=ONCE, version="v7")
        def trip(ctx: DurableContext, how: str) -> list[str]:
            key = str(ctx.uuid())
            undo = self.undone.append if self.has_undo else None
            car = ctx.step(book, "car", name="car", undo=undo)
            hotel = (
                ctx.call(ask, "hotel") if how == "call" else ctx.step(book, "hotel", name="hotel")
            )
            approved = ctx.wait_signal("go", default="none", timeout=3600) if how == "waits" else ""
            return [key, str(ctx.uuid()), car, hotel, approved]

        self.task: Any = trip


def dead(bench: AppOnBench, job: Job[Any]) -> None:
    """Let a function die."""
    with pytest.raises(JobFailed):
        ended(bench, job)
    assert job.status == "dead"


@pytest.mark.parametrize("how", ["step", "call"])
def test_a_retry_repeats_only_what_failed(bench: AppOnBench, how: str) -> None:
    """Retry a dead function: what it recorded stays, the failed call is made again."""
    # W15
    trip = Trip(bench)
    job = trip.task.enqueue(how)
    dead(bench, job)
    fork = job.reset(as_new=True, to=1)
    job.retry()
    dead(bench, job)
    trip.fails = False
    trip.calls.clear()
    job.retry()
    values = ended(bench, job)
    assert values[2:4] == ["CAR", "HOTEL"]
    assert trip.calls[-1] == "hotel"
    assert "car" not in trip.calls
    with pytest.raises((Conflict, LookupError)):
        job.retry()
    if fork.status == "dead":
        fork.retry()
    assert ended(bench, fork)[0] == values[0], "what was drawn before the kept call stays"


def test_compensations_forbid_a_retry_but_not_a_new_job(bench: AppOnBench) -> None:
    """Retry and reset a function that was compensated; then begin a new one from its records."""
    # W15, rules D5, D13
    trip = Trip(bench)
    trip.has_undo = True
    job = trip.task.enqueue("step")
    dead(bench, job)
    assert trip.undone == ["CAR"]
    with pytest.raises(Conflict, match="compensations ran"):
        job.retry()
    with pytest.raises(Conflict, match="compensations ran"):
        job.reset(to=1)
    trip.fails = False
    trip.calls.clear()
    new = job.reset(as_new=True, to=1)
    assert ended(bench, new)[2:4] == ["CAR", "HOTEL"]
    assert trip.calls == ["hotel"]
    assert job.status == "dead"


def test_a_reset_makes_later_calls_again(bench: AppOnBench) -> None:
    """Reset a waiting function twice; a signal that a dropped call took is taken again."""
    # rules D8, D12, D13
    trip = Trip(bench)
    trip.fails = False
    job = trip.task.enqueue("waits")
    bench.drain()
    for to, made in ((1, ["hotel"]), (0, ["car", "hotel"]), (None, [])):
        trip.calls.clear()
        same = job.reset(to=to)
        assert same.id == job.id
        bench.drain()
        assert trip.calls == made
    with pytest.raises(BadInput, match="there is no call 9"):
        job.reset(to=9)
    with pytest.raises(BadInput):
        job.reset(to=-1)
    assert bench.app.durable_versions()["trip"] == {"v7": 1}
    job.signal("go", "yes")
    assert ended(bench, job)[-1] == "yes"
    with pytest.raises(LookupError):
        job.reset(to=0)
    assert bench.app.durable_versions() == {}


def test_a_fork_with_an_open_call_is_refused(bench: AppOnBench) -> None:
    """Fork a function that waits for a call, before and after the call."""

    @bench.app.durable(name="inner")
    def inner(ctx: DurableContext) -> int:
        return int(ctx.wait_signal("go"))

    @bench.app.durable(name="outer")
    def outer(ctx: DurableContext) -> list[int]:
        return [ctx.step(int, 5, name="five"), ctx.call(inner)]

    job = outer.enqueue()
    bench.drain()
    with pytest.raises(Conflict, match=r"Call 2 of the function .* has not ended"):
        job.reset(as_new=True)
    new = job.reset(as_new=True, to=1)
    bench.drain()
    assert [step.kind for step in new.steps()] == ["step", "call"]


def test_a_loop_restarts_and_leaves_little_behind(bench: AppOnBench) -> None:
    """Run a loop for days: its old logs and the signals that it took go."""
    # rule D13

    @bench.app.durable(name="loop")
    def loop(ctx: DurableContext, left: int, *, seen: list[str] | None = None) -> list[str]:
        before = seen or []
        if left == 0:
            return before
        word = ctx.wait_signal("go", type=str)
        ctx.sleep(DAY_S)
        ctx.restart_with(left - 1, seen=[*before, word])
        return before

    job = loop.enqueue(6)
    for number in range(6):
        job.signal("go", str(number), id=str(number))
    for _ in range(6):
        bench.drain()
        bench.clock.advance(DAY_S + 1)
    assert ended(bench, job) == list("012345")
    store, job_id = bench.app.store, job._id
    logs = [bool(store.read(partition_of(job_id, n), after=None, limit=1)) for n in range(6)]
    assert logs[:4] == [False] * 4
    kept = [record.key for record in store.read(inbox_of(job_id), after=None, limit=100)]
    assert not {"signal/go/0", "signal/go/1"} & set(kept)


def test_a_patch_is_for_runs_that_come_to_it_first(bench: AppOnBench) -> None:
    """Change the code of a function that waits behind the change, and of one before it."""
    is_patched = [False]

    @bench.app.durable(name="patchy")
    def patchy(ctx: DurableContext) -> list[str]:
        first = ctx.wait_signal("first")
        way = "old"
        if is_patched[0] and ctx.patched("way"):
            way = "new"
        made = ctx.step(str, way, name=way)
        return [first, made, ctx.wait_signal("second")]

    behind, before = patchy.enqueue(), patchy.enqueue()
    bench.drain()
    behind.signal("first", "1")
    bench.drain()
    is_patched[0] = True
    before.signal("first", "2")
    bench.drain()
    for job in (behind, before):
        job.signal("second", "3")
    assert ended(bench, behind) == ["1", "old", "3"]
    assert ended(bench, before) == ["2", "new", "3"]
    with pytest.raises(BadInput, match="patch"):
        DurableContext.patched(None, "a/b")  # type: ignore[arg-type]  # the name is read first


def test_old_code_goes_on_after_new_code_that_came_to_a_patch_and_no_further(
    bench: AppOnBench,
) -> None:
    """Let the new code fail behind its patch; a worker that dies there leaves the same log."""
    code = ["new and fails"]

    @bench.app.durable(name="deployed", retry=Retry.fixed(1))
    def deployed(ctx: DurableContext) -> str:
        way = "old"
        if code[0] != "old" and ctx.patched("way"):
            way = "new"
        if code[0] == "new and fails":
            raise ValueError
        made: str = ctx.step(str, way, name=way)
        ctx.wait_signal("go")
        return made

    job = deployed.enqueue()
    bench.drain(raises=False)
    for code[0] in ("old", "new"):
        bench.clock.advance(2)
        bench.drain()
    job.signal("go")
    assert ended(bench, job) == "old"


def test_a_patch_is_not_awaited_in_coroutine_functions_either(bench: AppOnBench) -> None:
    """Change the code of a coroutine function that waits behind the change."""
    is_patched = [False]

    @bench.app.durable(name="patchy")
    async def patchy(ctx: DurableContext) -> str:
        way: str = "new" if is_patched[0] and ctx.patched("way") else "old"
        made = await ctx.step(str, way, name=way)
        await ctx.wait_signal("go")
        return str(made)

    behind = patchy.enqueue()
    bench.drain()
    is_patched[0] = True
    before = patchy.enqueue()
    for job in (behind, before):
        job.signal("go")
    assert [ended(bench, job) for job in (behind, before)] == ["old", "new"]


def test_steps_of_an_ended_function_are_those_of_its_last_log(bench: AppOnBench) -> None:
    """Restart a function twice."""

    @bench.app.durable(name="thrice")
    def thrice(ctx: DurableContext, number: int) -> int:
        ctx.step(str, number, name=f"step {number}")
        if number < 2:
            ctx.restart_with(number + 1)
        return number

    job = thrice.enqueue(0)
    assert ended(bench, job) == 2
    assert [step.name for step in job.steps()] == ["step 2"]
