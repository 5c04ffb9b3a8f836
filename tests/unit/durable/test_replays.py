"""Replays of durable functions take the path of the first run."""

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from threading import Event
from typing import Any

import pytest

from dueline import Cancel, Conflict, DurableContext, Job, JobFailed, Retry
from dueline.core import user_code
from dueline.core.codec import JSON
from dueline.core.store import Group, Put
from dueline.core.user_code import Description
from dueline.durable import async_driving
from dueline.durable.log import Entry, Head
from dueline.jobs.function_list import partition_of
from dueline.tasks import failures
from dueline.testing.bench import AppOnBench
from tests.harness.durable_bench import ended, error_of

ONCE = Retry(attempts=1)


def record(bench: AppOnBench, job: Job[Any], key: str, head: Head, value: bytes = b"") -> None:
    """Write a record as another worker would."""
    put = Put(key, b"v", Entry(head, value).to_bytes())
    bench.app.engine.store.commit(partition_of(job._id, 0), [put])


def test_an_end_whose_compensations_are_not_all_reached_stops(bench: AppOnBench) -> None:
    """Fail earlier at the replay than when the end was recorded."""
    # rule D5
    undone: list[str] = []
    is_early: list[bool] = []

    def undo(value: str) -> None:
        undone.append(value)
        if len(undone) == 1:
            raise ValueError("not yet")

    @bench.app.durable(name="trip", retry=Retry.fixed(30, attempts=3))
    def trip(ctx: DurableContext) -> None:
        ctx.step(str, "car", name="car", undo=undone.append)
        if is_early:
            raise RuntimeError("early")
        ctx.step(str, "hotel", name="hotel", undo=undo)
        ctx.step(int, "x", name="int", retry=ONCE)

    job = trip.enqueue()
    bench.drain(raises=False)
    is_early.append(True)
    bench.clock.advance(31)
    bench.drain(raises=False)
    assert undone == ["hotel"]
    assert "call 2, hotel, is to be undone" in error_of(bench, job)
    is_early.clear()
    with pytest.raises(JobFailed, match="StepFailed"):
        ended(bench, job)
    assert undone == ["hotel", "hotel", "car"]


@pytest.mark.parametrize("way", ["sleep", "signal", "compensation"])
def test_a_cancel_that_was_delivered_wakes_nobody(bench: AppOnBench, way: str) -> None:
    """Park after a cancel was caught, or a function that fails beside its cancel."""
    runs: list[str] = []

    def refuse(_: str) -> None:
        raise ValueError("not yet")

    @bench.app.durable(name="stubborn", retry=Retry.fixed(3600, attempts=5))
    def stubborn(ctx: DurableContext) -> None:
        runs.append(way)
        if way == "compensation":
            ctx.step(str, "a", name="a", undo=refuse)
            job.cancel()
            raise ctx.step(KeyError, name="error", retry=ONCE)
        try:
            ctx.wait_signal("go")
        except Cancel:
            if way == "sleep":
                ctx.sleep(3600)
            ctx.wait_signal("go")

    job = stubborn.enqueue()
    bench.drain(raises=False)
    if way != "compensation":
        job.cancel()
    bench.drain(raises=False)
    assert len(runs) <= 2
    assert job.status in ("scheduled", "retrying")


@pytest.mark.parametrize("way", ["step", "sleep"])
def test_the_time_after_a_caught_cancel_stays(bench: AppOnBench, way: str) -> None:
    """Read the time after a cancel, at the first run and at a replay."""
    # rule D2
    seen: list[datetime] = []

    @bench.app.durable(name="times")
    def times(ctx: DurableContext) -> None:
        ctx.step(str, 1, name="first")
        try:
            if way == "sleep":
                ctx.sleep(3600)
            else:
                ctx.wait_signal("go")
        except Cancel:
            seen.append(ctx.now())
        ctx.sleep(10)

    job = times.enqueue()
    bench.drain()
    bench.clock.advance(5)
    job.cancel()
    assert ended(bench, job) is None
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert seen[0] <= bench.clock.now


def test_each_compensation_has_a_key_of_its_own(bench: AppOnBench) -> None:
    """Collect the idempotency keys of two steps and their compensations."""
    keys: list[str] = []

    @bench.app.durable(name="pays", retry=ONCE)
    def pays(ctx: DurableContext) -> None:
        for name in ("a", "b"):
            ctx.step(lambda: keys.append(ctx.key), name=name, undo=lambda _: keys.append(ctx.key))
        raise ValueError("no")

    with pytest.raises(JobFailed):
        ended(bench, pays.enqueue())
    assert len(set(keys)) == 4
    assert keys[2:] == [f"{key}-undo" for key in (keys[1], keys[0])]


def test_a_signal_that_nobody_can_read_is_refused(
    bench: AppOnBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """End the function between the check of its row and the write of the signal."""
    # rule D12
    store = bench.app.engine.store
    together = store.together
    meanwhile: list[Callable[[], object]] = []

    def together_late(groups: Sequence[Group]) -> Sequence[bool]:
        while meanwhile:
            meanwhile.pop()()
        return together(groups)

    @bench.app.durable(name="ends")
    def ends(ctx: DurableContext) -> str:
        word: str = ctx.wait_signal("go", timeout=30, default="late")
        return word

    job = ends.enqueue()
    bench.drain()
    meanwhile.append(lambda: ended(bench, job))
    monkeypatch.setattr(store, "together", together_late)
    with pytest.raises(Conflict, match="ended and cannot be signalled"):
        job.signal("go", "on time")
    assert job.result(timeout=0) == "late"


def test_a_signal_that_ended_the_function_is_acknowledged(
    bench: AppOnBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the function take the signal and end before its sender reads the row again."""
    # rule D12
    store = bench.app.engine.store
    together = store.together
    after: list[Callable[[], object]] = []

    def write_and_go_on(groups: Sequence[Group]) -> Sequence[bool]:
        held = together(groups)
        while after:
            after.pop()()
        return held

    @bench.app.durable(name="ends")
    def ends(ctx: DurableContext) -> str:
        word: str = ctx.wait_signal("go")
        return word

    job = ends.enqueue()
    bench.drain()
    bench.clock.advance(1000)
    after.append(bench.drain)
    monkeypatch.setattr(store, "together", write_and_go_on)
    job.signal("go", "on time", id="a")
    assert job.result(timeout=0) == "on time"


@pytest.mark.parametrize("was", ["wait", "tries", "start"])
def test_notes_of_a_position_are_compared(bench: AppOnBench, was: str) -> None:
    """Change the code of a call that has begun and has no record."""
    # rule D7
    runs: list[str] = []
    is_new: list[bool] = []

    def fail() -> None:
        raise ValueError("no")

    @bench.app.durable(name="changed", retry=Retry.fixed(60, attempts=5))
    def changed(ctx: DurableContext) -> None:
        ctx.step(str, 1, name="first")
        if is_new:
            ctx.step(runs.append, "new", name="new")
        elif was == "tries":
            ctx.step(fail, name="old")
        else:
            ctx.wait_signal("old")

    job = changed.enqueue()
    if was == "start":
        bench.drain()
        job = changed.enqueue()
        record(bench, job, "00002!start", Head("start", "old"))
    else:
        bench.drain(raises=False)
    is_new.append(True)
    bench.clock.advance(1000)
    bench.drain(raises=False)
    old = "wait_signal(old)" if was == "wait" else "old"
    assert f"call 2 was {old}, the code now calls new" in error_of(bench, job)
    assert runs == []


def test_a_sleep_before_a_later_record_is_over(bench: AppOnBench) -> None:
    """Replay on a worker whose clock is behind that of the worker that went on."""
    # rule D9
    caught: list[str] = []

    @bench.app.durable(name="naps")
    def naps(ctx: DurableContext) -> str:
        ctx.step(str, "a", name="a")
        try:
            ctx.sleep(3600)
        except Cancel:
            caught.append("in the sleep")
            raise
        word: str = ctx.step(str, "b", name="b")
        try:
            ctx.sleep(3600)
        except Cancel:
            return f"{word} {ctx.now() > started}"
        return "slept"

    job = naps.enqueue()
    started = bench.clock.now
    bench.drain()
    record(bench, job, "00003", Head("step", "b", codec=JSON, at_us=1), b'"b"')
    job.cancel()
    assert ended(bench, job) == "b True"
    assert not caught


@pytest.mark.parametrize("way", ["time-out", "time-out, then an error", "lost"])
def test_a_recorded_end_that_is_unknown_is_undone(bench: AppOnBench, way: str) -> None:
    """Leave a step running after its time limit, or find its start without an end."""
    # rule D5
    undone: list[object] = []
    leave = Event()
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        if way != "time-out" and len(calls) > 1:
            raise ValueError("no")
        leave.wait(60)

    @bench.app.durable(name="works", retry=ONCE)
    def works(ctx: DurableContext) -> None:
        ctx.step(
            work, name="work", timeout=0.05, undo=undone.append, undo_if_unknown=True,
            once=way == "lost", retry=Retry.fixed(0.01, attempts=2),
        )  # fmt: skip

    job = works.enqueue()
    if way == "lost":
        record(bench, job, "00001!start", Head("start", "work"))
    with pytest.raises(JobFailed, match="StepLost" if way == "lost" else "StepFailed"):
        ended(bench, job)
    leave.set()
    assert undone == [None]


def test_large_values_are_read_back_from_a_codec(bench: AppOnBench) -> None:
    """Return more than arguments may have, compressed."""
    bench.app.payloads.use("json", compress_above=1000)

    @bench.app.durable(name="large")
    def large(ctx: DurableContext) -> int:
        value: str = ctx.step("x".__mul__, 900_000, name="large")
        ctx.sleep(1)
        return len(value)

    assert ended(bench, large.enqueue()) == 900_000


def test_a_replay_of_a_coroutine_needs_no_thread_for_each_record(
    bench: AppOnBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Count the threads of the attempt after a sleep, which goes through few or many records."""
    threads: list[object] = []
    in_thread = async_driving._in_thread

    async def counted(part: Any) -> Any:  # noqa: ANN401  (of any type)
        threads.append(part)
        return await in_thread(part)

    monkeypatch.setattr(async_driving, "_in_thread", counted)

    @bench.app.durable(name="count")
    async def count(ctx: DurableContext, steps: int) -> int:
        for number in range(steps):
            await ctx.step(str, number, name="text")
        await ctx.sleep(600)
        return steps

    counts = []
    for steps in (1, 30):
        job = count.enqueue(steps)
        bench.drain()
        threads.clear()
        bench.clock.advance(601)
        assert ended(bench, job) == steps
        counts.append(len(threads))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_that_waits_describes_no_error(
    bench: AppOnBench, monkeypatch: pytest.MonkeyPatch, *, is_async: bool
) -> None:
    """A suspension is no failure: its traceback would be formatted for nobody."""
    described: list[BaseException] = []

    def describe(error: BaseException) -> Description:
        described.append(error)
        return user_code.describe(error)

    monkeypatch.setattr(failures, "describe", describe)

    def wait(ctx: DurableContext) -> None:
        ctx.sleep(600)

    async def await_(ctx: DurableContext) -> None:
        await ctx.sleep(600)

    durable = bench.app.durable(name="wait")
    function = durable(await_) if is_async else durable(wait)
    job = function.enqueue()
    bench.drain()
    bench.clock.advance(601)
    bench.drain()
    assert job.status == "done"
    assert not described


def test_a_call_that_is_never_awaited_fails_the_function(bench: AppOnBench) -> None:
    """Return while the last call has not begun."""
    unawaited: list[Coroutine[object, object, str]] = []

    @bench.app.durable(name="hasty", retry=ONCE)
    async def hasty(ctx: DurableContext) -> None:
        unawaited.append(ctx.step(str, 1, name="one"))

    with pytest.raises(JobFailed, match="returned while the call of one has not ended"):
        ended(bench, hasty.enqueue())
    unawaited[0].close()
