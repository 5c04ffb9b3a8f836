"""An application whose jobs run when a test says so."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from dueline import (
    BadInput,
    BatchOptions,
    Call,
    Cancel,
    Context,
    Dueline,
    NotFound,
    Retry,
    Snooze,
    chord,
)
from dueline.testing import AppOnBench, Drained, on_bench

app = Dueline("sqlite:////nowhere/at/all.db")
app.queue("mail", lease=5)
ran: list[object] = []


@app.task(name="send", queue="mail")
def send(to: str, body: str = "hello", *, copies: int = 1) -> str:
    ran.append(to)
    return body * copies


@app.task(name="fails", retry=Retry(attempts=2, base=60, cap=60))
def fails(what: str) -> None:
    ran.append(what)
    raise ValueError(f"no {what}")


@app.task(name="ends")
def ends(ctx: Context, how: str) -> None:
    ctx.progress(1, 2)
    if how == "snooze" and ctx.last_progress is None:
        raise Snooze(minutes=5)
    if how == "cancel":
        raise Cancel


@app.task(name="chain")
async def chain(left: int) -> None:
    ran.append(left)
    if left:
        chain.enqueue(left - 1)
        await asyncio.sleep(0)


@app.task(name="endless")
def endless() -> None:
    endless.enqueue()


@app.task(name="sums", batch=BatchOptions(size=3, within=600), retry=Retry(attempts=1))
def sums(calls: list[Call[int]]) -> list[int]:
    ran.append([call.value for call in calls])
    for call in calls:
        if call.value < 0:
            call.fail(ValueError(f"{call.value} is negative"))
    return [call.value + 1 for call in calls]


@pytest.fixture
def bench() -> Iterator[AppOnBench]:
    ran.clear()
    with on_bench(app) as made:
        yield made


def test_what_is_due_runs_here_until_nothing_is(bench: AppOnBench) -> None:
    # A5
    job = send.enqueue("ann", copies=2)
    chain.enqueue(3)
    assert bench.drain() == Drained(succeeded=5)
    assert sorted(map(str, ran)) == ["0", "1", "2", "3", "ann"]
    assert job.result(timeout=0) == "hellohello"
    assert bench.drain() == Drained()


def test_no_test_waits_for_a_limit(bench: AppOnBench) -> None:
    app.semaphore("few", capacity=0)
    app.rate("rare", 1, per=3600)
    send.using(limits=["few", "rare"]).enqueue_many([("ann",), ("bob",)])
    assert bench.drain().succeeded == 2
    assert ran == ["ann", "bob"]


def test_the_most_urgent_runs_first_also_of_what_jobs_enqueue(bench: AppOnBench) -> None:
    send.enqueue("later")
    send.using(priority=5).enqueue("first")
    bench.drain()
    assert ran == ["first", "later"]


def test_time_is_the_tests(bench: AppOnBench) -> None:
    # A5
    job = send.using(after=timedelta(days=2)).enqueue("ann")
    assert bench.drain() == Drained()
    bench.clock.advance(days=1, hours=23)
    assert (bench.drain(), job.status) == (Drained(), "scheduled")
    bench.clock.advance(hours=1)
    assert bench.drain() == Drained(succeeded=1)
    with pytest.raises(BadInput):
        bench.clock.advance(-1)


def test_a_failure_is_raised_once_its_job_is_settled(bench: AppOnBench) -> None:
    job = fails.enqueue("luck")
    with pytest.raises(ValueError, match="no luck"):
        bench.drain()
    assert job.status == "retrying"
    bench.clock.advance(minutes=1)
    assert bench.drain(raises=False) == Drained(failed=1)
    assert job.status == "dead"


def test_each_end_is_counted(bench: AppOnBench) -> None:
    fails.enqueue("luck")
    for how in ("snooze", "cancel", "well"):
        ends.enqueue(how)
    counts = bench.drain(raises=False)
    assert counts == Drained(succeeded=1, retried=1, snoozed=1, cancelled=1)
    bench.clock.advance(minutes=5)
    assert bench.drain(raises=False) == Drained(succeeded=1, failed=1)


def test_jobs_without_end_are_an_error(bench: AppOnBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dueline.testing.bench.RUNS_MAX", 20)
    endless.enqueue()
    with pytest.raises(AssertionError, match="without end"):
        bench.drain()


def test_a_job_of_an_unknown_task_is_an_error(bench: AppOnBench) -> None:
    del app._tasks["endless"]
    try:
        endless.enqueue()
        app._callable["hidden"] = app._callable.pop("endless")
        with pytest.raises(NotFound, match="endless"):
            bench.drain()
    finally:
        app._tasks["endless"] = endless.handler
        app._callable["endless"] = app._callable.pop("hidden")


def test_coroutines_run_beside_the_loop_of_an_asynchronous_test(bench: AppOnBench) -> None:
    async def main() -> None:
        await chain.aenqueue(1)
        assert bench.drain() == Drained(succeeded=2)

    asyncio.run(main())


def test_what_is_enqueued_can_be_asserted(bench: AppOnBench) -> None:
    # A5
    send.using(after=60, priority=3).enqueue("ann", copies=2)
    bench.assert_enqueued(send)
    bench.assert_enqueued(send, "ann", copies=2)
    bench.assert_enqueued(send, to="ann", body="hello", copies=2)
    bench.assert_enqueued(send, after=60, priority=3, queue="mail")
    bench.assert_enqueued(send, due=bench.clock.now + timedelta(minutes=1))
    bench.assert_not_enqueued(send, "bob")
    bench.assert_not_enqueued(send, after=61)
    bench.assert_not_enqueued(send, due=bench.clock.now)
    bench.assert_not_enqueued(send, priority=4)
    bench.assert_not_enqueued(send, queue="default")
    bench.assert_not_enqueued(chain)
    with pytest.raises(BadInput):
        bench.assert_enqueued(send, 3)


def test_an_assertion_that_fails_lists_what_is_enqueued(bench: AppOnBench) -> None:
    with pytest.raises(AssertionError, match="nothing"):
        bench.assert_enqueued(chain, 3)
    send.using(after=60).enqueue("ann", copies=2)
    with pytest.raises(AssertionError) as failed:
        bench.assert_enqueued(send, "bob")
    assert str(failed.value) == (
        "Not enqueued: send('bob')\n"
        "Enqueued jobs:\n"
        "  send('ann', copies=2) queue=mail priority=0 due in 0:01:00"
    )
    with pytest.raises(AssertionError, match=r"^Enqueued: "):
        bench.assert_not_enqueued(send, "ann", copies=2)


def test_inline_jobs_run_and_raise_where_they_are_enqueued() -> None:
    # A4
    ran.clear()
    with on_bench(app, inline=True) as bench:
        chain.enqueue(2)
        assert ran == [2, 1, 0]
        with pytest.raises(ValueError, match="no luck"):
            fails.enqueue("luck")
        later = send.using(after=1).enqueue("ann")
        assert later.status == "scheduled"
        bench.clock.advance(1)
        assert bench.drain() == Drained(succeeded=1)


def test_the_application_is_as_it_was_afterwards() -> None:
    url, clock = app.url, app.clock
    with on_bench(app) as bench:
        assert app.clock is bench.clock
        assert app.queues.engine.catalog.settings("mail").lease_us == 5_000_000
    assert (app.url, app.clock) == (url, clock)
    assert "store" not in vars(app)
    used = Dueline("memory://")
    store = used.store
    with on_bench(used):
        assert used.store is not store
    assert used.store is store


# --- chunks ----------------------------------------------------------------------------------


def test_a_chunk_runs_when_it_is_full_or_nothing_else_is_due(bench: AppOnBench) -> None:
    # W6
    jobs = sums.enqueue_many([(number,) for number in range(4)])
    send.enqueue("ann")
    bench.assert_enqueued(sums, 3)
    assert bench.drain() == Drained(succeeded=5)
    assert ran == [[0, 1, 2], "ann", [3]]
    assert [job.result(0) for job in jobs] == [1, 2, 3, 4]


def test_what_is_wrong_with_one_job_of_a_chunk_is_raised_once_all_are_settled(
    bench: AppOnBench,
) -> None:
    jobs = sums.enqueue_many([(1,), (-2,), (-3,)])
    with pytest.raises(ValueError, match="-2 is negative"):
        bench.drain()
    assert [job.status for job in jobs] == ["done", "dead", "dead"]
    assert bench.drain() == Drained()


def test_a_chunk_that_was_not_run_waits_for_the_next_drain(bench: AppOnBench) -> None:
    job = sums.enqueue(1)
    fails.enqueue("it")
    with pytest.raises(ValueError, match="no it"):
        bench.drain()
    assert bench.drain() == Drained(succeeded=1)
    assert job.result(0) == 2
    assert ran == ["it", [1]]


def test_inline_a_chunk_is_what_was_enqueued_at_once() -> None:
    ran.clear()
    with on_bench(app, inline=True):
        assert sums.enqueue(1).result(0) == 2
        sums.enqueue_many([(1,), (2,)])
    assert ran == [[1], [1, 2]]


def test_a_workflow_runs_on_the_bench() -> None:
    one = Dueline("memory://")

    @one.task(name="twice")
    def twice(number: int) -> int:
        return 2 * number

    @one.task(name="total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    with on_bench(one) as bench:
        flow = one.start(chord((twice.step(number) for number in range(4)), total.step()))
        assert bench.drain().succeeded == 5
        assert flow.result(0) == 12
