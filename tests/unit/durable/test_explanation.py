"""What `explain` says of durable functions (T7)."""

from datetime import timedelta
from typing import Any

from dueline import DurableContext, Job, Retry
from dueline.core.store import Delete
from dueline.jobs.function_list import partition_of
from dueline.testing.bench import AppOnBench


def begun(bench: AppOnBench, job: Job[Any]) -> Job[Any]:
    """Let a worker run a function until it waits."""
    bench.drain(raises=False)
    return job


def test_a_sleep_is_explained_with_its_end_and_its_place(bench: AppOnBench) -> None:
    """Sleep in the second call."""

    @bench.app.durable(name="shop.checkout")
    def checkout(ctx: DurableContext) -> None:
        ctx.step(str, 1, name="first")
        ctx.sleep(timedelta(days=3))

    found = begun(bench, checkout.enqueue()).explain(until=timedelta(days=1))
    assert found.reason == "sleep"
    assert str(found).startswith("It sleeps until ")
    assert "(in 3d), in call 2 of shop.checkout." in str(found)
    assert found.facts["call"] == "2"
    assert found.until is not None
    assert found.until.starts == "no"


def test_a_wait_for_a_signal_names_it_and_the_command_that_sends_it(bench: AppOnBench) -> None:
    """Wait with and without an end."""

    @bench.app.durable(name="approval")
    def approval(ctx: DurableContext, timeout: float | None) -> None:
        ctx.wait_signal("approved", timeout=timeout, default=False)

    job = begun(bench, approval.enqueue(None))
    bench.clock.advance(30)
    found = job.explain()
    assert found.reason == "signal"
    assert "It waits for the signal approved since" in str(found)
    assert "(30s ago), in call 1 of approval" in str(found)
    assert found.conditions[0].command == f"dueline flows signal {job.id} approved"
    assert found.conditions[0].change == "operator"
    ending = begun(bench, approval.enqueue(86_400)).explain()
    assert "since" in str(ending)
    assert "until" in str(ending)
    assert ending.conditions[0].change == "time"


def test_a_step_that_waits_for_its_retry_is_named_with_its_error(bench: AppOnBench) -> None:
    """Fail a step whose policy waits for long."""

    def fetch() -> None:
        raise ConnectionError("no route")

    @bench.app.durable(name="import")
    def load(ctx: DurableContext) -> None:
        ctx.step(fetch, name="fetch", retry=Retry(attempts=3, base=60, cap=60, jitter=0))

    found = begun(bench, load.enqueue()).explain()
    assert found.reason == "retrying"
    assert "Attempt 1 of fetch failed (ConnectionError: no route)" in str(found)
    assert "in call 1 of import" in str(found)


def test_other_code_is_explained_as_a_stop_with_what_to_do(bench: AppOnBench) -> None:
    """Change the code of a function that waits."""
    names = ["fetch"]

    @bench.app.durable(name="changed")
    def changed(ctx: DurableContext) -> None:
        ctx.step(str, 1, name=names[0])
        ctx.wait_signal("go")

    job = begun(bench, changed.enqueue())
    names[0] = "notify"
    job.signal("go")
    begun(bench, job)
    found = job.explain()
    assert found.reason == "stopped"
    assert str(found).startswith("It is stopped since ")
    assert "call 1 was fetch, the code now calls notify" in str(found)
    assert "un workers with the code that began it" in str(found)
    assert found.conditions[0].change == "operator"
    first_us = found.facts["since_us"]
    bench.clock.advance(minutes=1)
    begun(bench, job)
    again = job.explain()
    assert again.facts["since_us"] == first_us
    names[0] = "fetch"
    bench.clock.advance(minutes=10)
    bench.drain()
    assert job.status == "done"


def test_a_missing_record_is_explained_as_a_damaged_log(bench: AppOnBench) -> None:
    """Delete the log of a function that has begun."""

    @bench.app.durable(name="nap")
    def nap(ctx: DurableContext) -> None:
        ctx.step(str, 1, name="one")
        ctx.sleep(60)

    job = begun(bench, nap.enqueue())
    store, place = bench.app.store, partition_of(job._id, 0)
    store.commit(place, [Delete(record.key) for record in store.read(place, after=None, limit=10)])
    bench.clock.advance(61)
    begun(bench, job)
    found = job.explain()
    assert found.reason == "stopped"
    assert "its log has 0 of 2 records" in str(found)
    assert "`dueline doctor`" in str(found)


def test_a_wait_for_called_jobs_names_them(bench: AppOnBench) -> None:
    """Call one task that no worker runs, and gather two calls."""

    @bench.app.task(name="reserve", queue="later")
    def reserve(number: int) -> int:
        return number

    @bench.app.durable(name="order")
    def order(ctx: DurableContext) -> list[int]:
        first = ctx.call(reserve.using(after=60), 1)
        return [first, *ctx.gather([reserve.using(after=60).call(2)])]

    job = begun(bench, order.enqueue())
    found = job.explain()
    assert found.reason == "calls"
    assert str(found).startswith("It waits for the end of the job of reserve, in call 1 of order")
    assert found.conditions[0].command == f"dueline jobs explain {found.facts['job']}"
    bench.clock.advance(60)
    bench.drain()
    assert "It waits for the ends of 1 calls, in call 3 of order" in str(job.explain())
    bench.clock.advance(60)
    bench.drain()
    assert job.result(timeout=0) == [1, 2]


def test_a_wait_by_a_handle_names_the_jobs_that_have_not_ended(bench: AppOnBench) -> None:
    """Wait for the end of a call of `wait=False` after other calls; explain while they end."""
    # W12

    @bench.app.task(name="reserve")
    def reserve(number: int) -> int:
        return number

    @bench.app.task(name="pack")
    def pack() -> None: ...

    @bench.app.durable(name="order")
    def order(ctx: DurableContext) -> int:
        first = ctx.call(reserve.using(after=120), 1, wait=False)
        ctx.call(pack.using(after=60), wait=False)
        ctx.step(len, "abc", name="count")
        reserved: int = first.result()
        return reserved

    job = begun(bench, order.enqueue())
    found = job.explain()
    assert found.reason == "calls"
    assert str(found).startswith("It waits for the end of one of 2 jobs: reserve, pack, in call")
    assert found.conditions[0].command == f"dueline flows show {job.id}"
    bench.clock.advance(60)
    bench.drain()
    found = job.explain()
    assert str(found).startswith("It waits for the end of the job of reserve, in call 1 of order")
    assert found.conditions[0].command == f"dueline jobs explain {found.facts['job']}"
    bench.clock.advance(60)
    bench.drain()
    assert job.result(timeout=0) == 1
