"""What durable functions must not do, and what becomes of those that do."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from dueline import (
    BadInput,
    Conflict,
    Context,
    Duplicate,
    DurableContext,
    JobFailed,
    Retry,
    StepFailed,
    Unique,
)
from dueline.core.errors import NotFound
from dueline.core.features import FUNCTIONS, names_of
from dueline.core.store import Delete, Extend, Lease, Want
from dueline.jobs.bulk import cancel_all
from dueline.jobs.function_list import partition_of
from dueline.testing.bench import AppOnBench
from tests.harness.durable_bench import ended, error_of

ONCE = Retry(attempts=1)


def test_calls_at_once_are_refused(bench: AppOnBench) -> None:
    """Make two calls of one branch at once, in a task group and without awaiting the first."""

    @bench.app.durable(name="group", retry=ONCE)
    async def group(ctx: DurableContext) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ctx.step(str, 1, name="one"))
            tasks.create_task(ctx.step(str, 2, name="two"))

    @bench.app.durable(name="forgotten", retry=ONCE)
    async def forgotten(ctx: DurableContext) -> None:
        left = ctx.step(str, 1, name="one")
        try:
            await ctx.step(str, 2, name="two")
        finally:
            left.close()

    for task in (group, forgotten):
        with pytest.raises(
            JobFailed, match=r"(?s)begins while that of one|ctx\.gather|ExceptionGroup"
        ):
            ended(bench, task.enqueue())


def test_calls_of_other_threads_and_tasks_are_refused(bench: AppOnBench) -> None:
    """Call from a thread and from a task that is not the function's."""
    refused: list[str] = []

    @bench.app.durable(name="threads")
    def threads(ctx: DurableContext) -> str:
        def call() -> None:
            try:
                ctx.step(str, 1, name="one")
            except BadInput as error:
                refused.append(str(error))

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        given: str = ctx.step(str, 2, name="two")
        return given

    @bench.app.durable(name="tasks")
    async def tasks(ctx: DurableContext) -> str:
        async def call() -> None:
            try:
                await ctx.step(str, 1, name="one")
            except BadInput as error:
                refused.append(str(error))

        await asyncio.create_task(call())
        given: str = await ctx.step(str, 2, name="two")
        return given

    assert ended(bench, threads.enqueue()) == "2"
    assert ended(bench, tasks.enqueue()) == "2"
    assert len(refused) == 2
    assert all("ctx.gather" in text for text in refused)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_step_that_raises_what_cancels_tasks_has_failed(
    bench: AppOnBench, *, is_async: bool
) -> None:
    """Raise CancelledError in a step, though nothing cancelled the function."""
    runs: list[str] = []

    def plain() -> None:
        runs.append("plain")
        raise asyncio.CancelledError

    async def coroutine() -> None:
        runs.append("coroutine")
        cancelled = asyncio.ensure_future(asyncio.sleep(60))
        cancelled.cancel()
        await cancelled

    @bench.app.durable(name="awaits")
    async def awaits(ctx: DurableContext) -> str:
        try:
            await ctx.step(coroutine if is_async else plain, name="cancelled", retry=ONCE)
        except StepFailed as error:
            return str(error)
        return "no error"

    assert "CancelledError" in ended(bench, awaits.enqueue())
    assert len(runs) == 1


@pytest.mark.parametrize("catch", ["exception", "bare", "suppress"])
def test_a_suspension_is_not_swallowed(bench: AppOnBench, catch: str) -> None:
    """Catch everything around a wait: the function is suspended all the same."""
    after: list[str] = []

    @bench.app.durable(name="catches")
    def catches(ctx: DurableContext) -> str:
        if catch == "exception":
            try:
                ctx.sleep(30)
            except Exception:  # noqa: BLE001
                return "caught"
        elif catch == "bare":
            with suppress(BaseException):
                ctx.sleep(30)
        else:
            try:
                ctx.sleep(30)
            finally:
                after.append("finally")
        ctx.step(after.append, "step", name="append")
        return "slept"

    job = catches.enqueue()
    bench.drain(raises=False)
    assert job.status == "scheduled"
    assert "step" not in after
    assert ended(bench, job) == "slept"
    assert after.count("step") == 1


def test_a_function_that_returns_after_its_suspension_is_suspended(
    bench: AppOnBench, caplog: pytest.LogCaptureFixture
) -> None:
    """Return from a handler of BaseException: nothing of it counts, and the log says so."""

    @bench.app.durable(name="returns")
    def returns(ctx: DurableContext) -> str:
        try:
            ctx.sleep(30)
        except BaseException:  # noqa: BLE001
            return "too early"
        return "slept"

    assert ended(bench, returns.enqueue()) == "slept"
    assert "returned after it was suspended" in caplog.text


def test_a_call_that_is_cancelled_from_outside_counts_as_a_failure(bench: AppOnBench) -> None:
    """Put asyncio.timeout around a call; the error names the parameter to use."""

    @bench.app.durable(name="outside", retry=Retry.fixed(1, attempts=2))
    async def outside(ctx: DurableContext) -> str:
        try:
            async with asyncio.timeout(0.05):
                given: str = await ctx.step(asyncio.sleep, 30, name="long")
                return given
        except TimeoutError:
            late: str = await ctx.step(str, "late", name="late")
            return late

    job = outside.enqueue()
    bench.drain(raises=False)
    assert job.status == "retrying"
    assert "use timeout= of the call" in error_of(bench, job)
    with pytest.raises(JobFailed, match="use timeout= of the call"):
        ended(bench, job)


@pytest.mark.parametrize("value", [object(), float("nan"), "x" * 1_100_000])
def test_a_step_that_returns_what_cannot_be_stored_has_failed(
    bench: AppOnBench, value: object
) -> None:
    """It ran, so it does not run again."""
    runs: list[int] = []

    def give() -> object:
        runs.append(1)
        return value

    @bench.app.durable(name="gives")
    def gives(ctx: DurableContext) -> str:
        try:
            ctx.step(give, name="give")
        except StepFailed as error:
            return error.type
        return "done"

    assert ended(bench, gives.enqueue()) == "BadInput"
    assert runs == [1]


def test_a_value_that_does_not_fit_its_annotation_is_an_error_of_the_step(
    bench: AppOnBench,
) -> None:
    """Return a string where a number is promised."""

    def give() -> int:
        return "many"  # type: ignore[return-value]

    @bench.app.durable(name="gives")
    def gives(ctx: DurableContext) -> str:
        with pytest.raises(StepFailed, match="cannot be stored"):
            ctx.step(give, name="give")
        return "told"

    assert ended(bench, gives.enqueue()) == "told"


def test_errors_have_one_form(bench: AppOnBench) -> None:
    """Raise a class of `raises`: both runs see an error that is made from the record."""
    seen: list[tuple[str, str]] = []

    def fail() -> None:
        error = ValueError("no")
        error.secret = 1  # type: ignore[attr-defined]
        raise error

    @bench.app.durable(name="fails")
    def fails(ctx: DurableContext) -> str:
        try:
            ctx.step(fail, name="fail", retry=ONCE, raises=ValueError)
        except ValueError as error:
            seen.append((type(error).__name__, f"{error} {hasattr(error, 'secret')}"))
        ctx.sleep(1)
        return "done"

    assert ended(bench, fails.enqueue()) == "done"
    assert seen == [("ValueError", "no False")] * 2


def test_a_begun_function_without_its_log_is_stopped(bench: AppOnBench) -> None:
    """Delete the records of a function that waits."""
    # rule D14
    runs: list[int] = []

    @bench.app.durable(name="naps")
    def naps(ctx: DurableContext) -> str:
        ctx.step(runs.append, 1, name="append")
        ctx.sleep(30)
        return "slept"

    job = naps.enqueue()
    bench.drain()
    store, part = bench.app.engine.store, partition_of(job._id, 0)
    records = store.read(part, after=None, limit=100)
    store.commit(part, [Delete(record.key) for record in records])
    bench.clock.advance(31)
    bench.drain()
    assert job.status == "scheduled"
    assert "it has begun, and its log has 0 of 2 records" in error_of(bench, job)
    assert runs == [1]


def test_a_damaged_record_stops_the_function(bench: AppOnBench) -> None:
    """Overwrite a record with something else."""
    from dueline.core.store import Put  # noqa: PLC0415

    @bench.app.durable(name="naps")
    def naps(ctx: DurableContext) -> str:
        ctx.step(str, 1, name="str")
        ctx.sleep(30)
        return "slept"

    job = naps.enqueue()
    bench.drain()
    bench.app.engine.store.commit(
        partition_of(job._id, 0), [Put("00001", b"v", b"nothing of ours")]
    )
    bench.clock.advance(31)
    bench.drain()
    assert job.status == "scheduled"
    assert "Stopped: " in error_of(bench, job)


def test_code_that_ends_before_its_log_is_stopped(bench: AppOnBench) -> None:
    """Return, and raise, before a call that is recorded."""
    # rule D7
    how = ["as it was"]

    @bench.app.durable(name="shorter", retry=ONCE)
    def shorter(ctx: DurableContext) -> str:
        if how[0] == "raises":
            raise ValueError("new")
        if how[0] == "returns":
            return "early"
        ctx.step(str, 1, name="str")
        ctx.sleep(30)
        return "slept"

    job = shorter.enqueue()
    bench.drain()
    for word in ("returns", "raises"):
        how[0] = word
        bench.clock.advance(700)
        bench.drain(raises=False)
        assert "its code ended after 0 calls, its log has a record of call 2" in error_of(
            bench, job
        )
    how[0] = "as it was"
    bench.clock.advance(700)
    assert ended(bench, job) == "slept"


def test_what_cannot_be_durable_is_refused(bench: AppOnBench) -> None:
    """Forget the context, name nothing, call directly, signal others."""
    app = bench.app
    with pytest.raises(BadInput, match="does not take a DurableContext"):
        app.durable(name="a")(lambda: None)  # type: ignore[arg-type,misc]

    def plain(ctx: Context) -> None: ...

    with pytest.raises(BadInput):
        app.durable(name="b")(plain)

    @app.durable(name="c", retry=ONCE)
    def c(ctx: DurableContext, how: str) -> None:
        async def coroutine() -> None: ...

        calls: dict[str, Callable[[], object]] = {
            "lambda": lambda: ctx.step(lambda: 1),
            "coroutine": lambda: ctx.step(coroutine, name="x"),
            "slash": lambda: ctx.wait_signal("a/b"),
            "negative": lambda: ctx.sleep(-1),
        }
        calls[how]()

    with pytest.raises(BadInput, match="cannot be called directly"):
        c("lambda")
    for how, text in {
        "lambda": "lambda or local function", "coroutine": "is a coroutine function, but c is not",
        "slash": "not a valid name", "negative": "duration",
    }.items():  # fmt: skip
        with pytest.raises(JobFailed, match=text):
            ended(bench, c.enqueue(how))

    @app.task(name="other")
    def other() -> None: ...

    with pytest.raises(NotFound, match="no durable function"):
        other.enqueue().signal("go")


def test_a_queue_that_delivers_once_refuses_durable_functions(bench: AppOnBench) -> None:
    """Enqueue one into such a queue in each way, and run one whose queue has become such."""
    app = bench.app
    app.queue("once", deliver="at_most_once")

    @app.durable(name="f", queue="once")
    def f(ctx: DurableContext) -> None: ...

    @app.durable(name="g", queue="later")
    def g(ctx: DurableContext) -> None: ...

    @app.durable(name="outer", retry=Retry(attempts=1))
    def outer(ctx: DurableContext) -> None:
        ctx.call(g.using(queue="once"))

    ways: dict[str, Callable[[], object]] = {
        "enqueue": f.enqueue,
        "options": g.using(queue="once").enqueue,
        "many": lambda: f.enqueue_many([(), ()]),
        "several": lambda: app.enqueue_many([g.call(), f.call()]),
        "workflow": lambda: app.start(f.step()),
        "schedule": lambda: app.schedules.set("s", f, every=60),
    }
    for way, enqueue in ways.items():
        with pytest.raises(BadInput, match=r"[fg] cannot run in the queue once") as refused:
            enqueue()
        assert "once=True" in str(refused.value), way
    assert not bench.enqueued()
    with pytest.raises(JobFailed, match="g cannot run in the queue once"):
        ended(bench, outer.enqueue())
    job = g.enqueue()
    app.queue("later", deliver="at_most_once")
    with pytest.raises(JobFailed, match="once=True"):
        ended(bench, job)


def test_an_encrypting_codec_covers_all_values(bench: AppOnBench) -> None:
    """Look for clear text in the store: of a step, an error, a signal, a state."""
    app, store = bench.app, bench.app.engine.store
    app.payloads.add(
        "sealed", 64, encode=lambda b: bytes(x ^ 0x5A for x in b),
        decode=lambda b: bytes(x ^ 0x5A for x in b),
    )  # fmt: skip

    def fail() -> None:
        raise ValueError("secret error")

    @app.durable(name="sealed", codec="sealed", retry=ONCE)
    def sealed(ctx: DurableContext, word: str) -> str:
        value = ctx.step(str, word, name="str", undo=str)
        ctx.state("secret state")
        with suppress(StepFailed):
            ctx.step(fail, name="fail")
        assert len(ctx.step("x".__mul__, 500_000, name="large")) == 500_000
        return f"{value} {ctx.wait_signal('go')}"

    job = sealed.enqueue("secret word")
    job.signal("go", "secret signal")
    bench.drain()
    assert job.state == "secret state"
    for part in (partition_of(job._id, 0), f"durable/{job._id.hex()}"):
        for record in store.read(part, after=None, limit=100):
            assert b"secret" not in record.value, record.key
    assert job.result(timeout=0) == "secret word secret signal"


def test_an_expired_function_runs_its_compensations(bench: AppOnBench) -> None:
    """Let it expire while it sleeps, and before it begins."""
    undone: list[str] = []

    @bench.app.durable(name="naps")
    def naps(ctx: DurableContext) -> None:
        ctx.step(str, "a", name="str", undo=undone.append)
        ctx.sleep(3600)

    job = naps.using(expires=60).enqueue()
    bench.drain()
    bench.clock.advance(61)
    bench.drain()
    assert job.status == "expired"
    assert undone == ["a"]
    late = naps.using(expires=60).enqueue()
    bench.clock.advance(61)
    bench.drain()
    assert late.status == "expired"
    assert undone == ["a"]


def test_a_failing_compensation_stops_no_other(bench: AppOnBench) -> None:
    """Fail in the compensation that runs first."""
    undone: list[str] = []

    def refuse(value: str) -> None:
        undone.append(f"refused {value}")
        raise ValueError("no")

    @bench.app.durable(name="f", retry=Retry.fixed(1, attempts=2))
    def f(ctx: DurableContext) -> None:
        ctx.step(str, "a", name="a", undo=undone.append)
        ctx.step(str, "b", name="b", undo=refuse)
        raise ValueError("end")

    with pytest.raises(JobFailed, match="ValueError: end"):
        ended(bench, f.enqueue())
    assert undone == ["refused b", "refused b", "a"]


def test_a_step_that_starts_once_is_lost_if_its_worker_died(bench: AppOnBench) -> None:
    """Leave the record of a start without an end."""
    runs: list[int] = []

    class Died(BaseException):
        pass

    def pay() -> None:
        runs.append(1)

    @bench.app.durable(name="f")
    def f(ctx: DurableContext) -> str:
        try:
            ctx.step(pay, name="pay", once=True)
        except StepFailed as error:
            return error.type
        return "paid"

    assert ended(bench, f.enqueue()) == "paid"
    job = f.enqueue()
    from dueline.core.store import Put  # noqa: PLC0415
    from dueline.durable.log import Entry, Head  # noqa: PLC0415

    start = Entry(Head("start", "pay")).to_bytes()
    bench.app.engine.store.commit(partition_of(job._id, 0), [Put("00001!start", b"v", start)])
    assert ended(bench, job) == "StepLost"
    assert runs == [1]


def test_bulk_cancels_and_replacements_leave_begun_functions_to_a_claim(bench: AppOnBench) -> None:
    """Cancel by a filter, and replace by a unique key, while functions wait."""
    app = bench.app
    undone: list[str] = []

    @app.durable(name="naps", unique=Unique("key:{word}", mode="replace"))
    def naps(ctx: DurableContext, word: str) -> None:
        ctx.step(str, word, name="str", undo=undone.append)
        ctx.sleep(3600)

    job = naps.enqueue("a")
    bench.drain()
    with pytest.raises(Duplicate):
        naps.enqueue("a")
    rows = [app.queues.find(job._id).row]
    assert [result.asked for result in cancel_all(app.queues, [row for row in rows if row])] == [1]
    assert undone == []
    bench.drain(raises=False)
    assert job.status == "cancelled"
    assert undone == ["a"]


def test_deaths_at_one_position_stop_a_function_and_checks_do_not(bench: AppOnBench) -> None:
    """Let workers die on a function that waits, and let it check its wait many times."""
    engine = bench.app.engine
    runs: list[int] = []

    @bench.app.durable(name="waits")
    def waits(ctx: DurableContext) -> str:
        runs.append(1)
        word: str = ctx.wait_signal("go")
        return word

    def die() -> None:
        row = engine.store.find([job._id])[0]
        assert row is not None
        bench.clock.advance(1000)
        now_us = engine.time.latest_us()
        lease = Lease(now_us, 1_000_000, "w", engine.ids.token())
        (claimed,) = engine.store.claim([Want(row.lane, 1)], limit=1, lease=lease).jobs
        assert engine.store.settle([Extend(claimed, claimed.at_us, started=True)]) == [True]
        bench.clock.advance(2)

    job = waits.enqueue()
    bench.drain()
    die()
    for _ in range(5):
        bench.drain()
        assert "Stopped" not in error_of(bench, job)
        bench.clock.advance(1000)
    die()
    bench.drain()
    die()
    bench.drain()
    assert "Stopped: 3 workers died on it" in error_of(bench, job)
    before = len(runs)
    bench.clock.advance(31)
    bench.drain()
    assert len(runs) == before + 1
    job.signal("go", "on")
    assert ended(bench, job) == "on"


def test_a_function_that_has_begun_is_not_rescheduled(bench: AppOnBench) -> None:
    """Reschedule before the first claim, and while it waits."""

    @bench.app.durable(name="naps")
    def naps(ctx: DurableContext) -> str:
        ctx.sleep(3600)
        return "slept"

    job = naps.enqueue()
    job.reschedule(after=10)
    bench.clock.advance(10)
    bench.drain()
    with pytest.raises(Conflict, match="has begun and cannot be rescheduled"):
        job.reschedule(after=10)
    bench.clock.advance(3600)
    assert ended(bench, job) == "slept"


def test_a_store_with_durable_functions_names_them(bench: AppOnBench) -> None:
    """Begin one: from then on, older versions refuse the store."""
    # rule V2

    @bench.app.durable(name="naps")
    def naps(ctx: DurableContext) -> None:
        ctx.sleep(3600)

    store = bench.app.engine.store
    naps.enqueue()
    assert FUNCTIONS not in names_of(store)
    bench.drain()
    assert FUNCTIONS in names_of(store)
