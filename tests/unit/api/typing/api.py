"""The typed API: checked by mypy, never run (A1).

A line that ends in `# type: ignore[code]` is a deliberate mistake. Under mypy strict an ignore
that is not needed is an error itself, so each of these lines must err, and with that code.
"""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from dueline import (
    AsyncTask,
    BadInput,
    Cancel,
    CommitUnknown,
    ConfigError,
    Conflict,
    Context,
    Dueline,
    DuelineError,
    Duplicate,
    EnqueueUnknown,
    Job,
    JobFailed,
    JobTimeout,
    LeaseLost,
    NotFound,
    Progress,
    Retry,
    SchemaMismatch,
    Snooze,
    StoreCorrupt,
    StoreUnavailable,
    Task,
    Transaction,
    Unique,
)

from dueline.tasks.hooks import EnqueueEvent, SettleEvent

app = Dueline("sqlite:///jobs.db")
Dueline()
Dueline(3)  # type: ignore[arg-type]
Dueline("memory://", shards=3)  # type: ignore[call-arg]


# --- tasks: plain, with options, with a Context, asynchronous ----------------------------------


@app.task
def plain(to: str, body: str = "", *, copies: int = 1) -> str:
    return to + body * copies


@app.task(
    name="mail.send",
    queue="mail",
    priority=-(2**31),
    retry=Retry(attempts=8, base=2, cap=3600, on=(OSError,), unless=(TimeoutError,)),
    timeout=30,
)
def send(to: str, body: str) -> int:
    if not to:
        raise Cancel("nobody to send to")
    if not body:
        raise Snooze(minutes=5)
    raise Snooze(30)


@app.task
def count(ctx: Context, day: str) -> int:
    ctx.check_cancelled()
    ctx.progress(1, 10, note=day)
    ctx.progress(0.5, 1)
    assert_type(ctx.is_cancelled, bool)
    assert_type(ctx.last_progress, Progress | None)
    ctx.progress("1", 10)  # type: ignore[arg-type]
    ctx.progress(1)  # type: ignore[call-arg]
    return ctx.fence + ctx.attempt + len(ctx.job_id)


@app.task(queue="etl", timeout=timedelta(minutes=1))
def counted(ctx: Context, day: str) -> list[int]:
    return [ctx.attempt]


@app.task(timeout=30, kill_after=timedelta(minutes=1))
def limited() -> None: ...


@app.task
async def load(day: str) -> dict[str, int]:
    return {day: 1}


@app.task(queue="etl")
async def loaded(ctx: Context, day: str, limit: int = 10) -> float:
    return ctx.attempt * 1.0


@app.task()
def nothing() -> None: ...


@app.task
def many(*parts: int, **names: bool) -> int:
    return len(parts) + len(names)


send_it: Task[[str, str], int] = send
load_it: AsyncTask[[str], dict[str, int]] = load
wrong_task: Task[[int], int] = send  # type: ignore[assignment]
wrong_kind: AsyncTask[[str, str], int] = send  # type: ignore[assignment]

app.task(name="n", colour="red")(len)  # type: ignore[call-overload]
app.task(queue=3)  # type: ignore[call-overload]
app.task(priority="high")  # type: ignore[call-overload]
app.task(retry=8)  # type: ignore[call-overload]
app.task(timeout="30 s")  # type: ignore[call-overload]
app.task(kill_after="30 s")  # type: ignore[call-overload]


# --- a task is still the function that it was --------------------------------------------------

assert_type(plain("ann"), str)
assert_type(plain("ann", "hi", copies=2), str)
assert_type(count("monday"), int)
coroutine: Coroutine[Any, Any, dict[str, int]] = load("monday")
wrong_coroutine: Coroutine[Any, Any, str] = load("monday")  # type: ignore[assignment]
assert_type(send.name, str)
plain(1)  # type: ignore[arg-type]
plain()  # type: ignore[call-arg]
number: int = plain("ann")  # type: ignore[assignment]


async def call_here() -> None:
    assert_type(await load("monday"), dict[str, int])
    assert_type(await loaded("monday", limit=3), float)
    await plain("ann")  # type: ignore[misc]


# --- enqueue: arguments as the function takes them, the Context left out -----------------------

assert_type(plain.enqueue("ann"), Job[str])
assert_type(plain.enqueue("ann", body="hi", copies=3), Job[str])
assert_type(send.enqueue("ann", "hi"), Job[int])
assert_type(count.enqueue("monday"), Job[int])
assert_type(counted.enqueue(day="monday"), Job[list[int]])
assert_type(load.enqueue("monday"), Job[dict[str, int]])
assert_type(loaded.enqueue("monday", 3), Job[float])
assert_type(nothing.enqueue(), Job[None])
assert_type(many.enqueue(1, 2, 3, urgent=True), Job[int])

send.enqueue("ann", 3)  # type: ignore[arg-type]
send.enqueue("ann")  # type: ignore[call-arg]
send.enqueue("ann", "hi", "again")  # type: ignore[call-arg]
send.enqueue("ann", "hi", colour="red")  # type: ignore[call-arg]
plain.enqueue("ann", "hi", 3)  # type: ignore[call-arg]
many.enqueue("one")  # type: ignore[arg-type]
many.enqueue(urgent="yes")  # type: ignore[arg-type]
nothing.enqueue(None)  # type: ignore[call-arg]
load.enqueue(3)  # type: ignore[arg-type]


def by_hand(ctx: Context) -> None:
    count.enqueue(ctx, "monday")  # type: ignore[arg-type, call-arg]
    count(ctx, "monday")  # type: ignore[arg-type, call-arg]
    loaded.enqueue(ctx, "monday")  # type: ignore[arg-type]
    ctx.retry_after = 3  # type: ignore[attr-defined]


# --- using: where and when ---------------------------------------------------------------------

assert_type(send.using(after=timedelta(minutes=10)).enqueue("ann", "later"), Job[int])
assert_type(send.using(after=1.5, priority=50).enqueue("ann", "later"), Job[int])
assert_type(
    load.using(due=datetime(2027, 1, 1, tzinfo=UTC), queue="etl", tenant="acme")
    .using(priority=-50)
    .enqueue("monday"),
    Job[dict[str, int]],
)
assert_type(
    send.using(expires=timedelta(days=1), window=300, unique="mail:{to}").enqueue("ann", "hi"),
    Job[int],
)
assert_type(
    load.using(
        expires=datetime(2027, 1, 1, tzinfo=UTC),
        window=timedelta(minutes=5),
        unique=Unique("{day}", within=timedelta(hours=1), mode="earliest"),
    ).enqueue("monday"),
    Job[dict[str, int]],
)
send.using(expires="tomorrow")  # type: ignore[arg-type]
send.using(window="5m")  # type: ignore[arg-type]
send.using(unique=3)  # type: ignore[arg-type]
send.using(tags=3)  # type: ignore[arg-type]
Unique("a", mode="never")  # type: ignore[arg-type]
Unique("a", "1 h")  # type: ignore[arg-type]
Unique("a").mode = "reject"  # type: ignore[misc]


@app.task(unique=Unique("report:{day}", within=3600, mode="existing"))
def report(day: str) -> int:
    return len(day)


assert_type(report.enqueue("monday"), Job[int])
app.task(unique=3)  # type: ignore[call-overload]
send.using(after=10).enqueue("ann", 3)  # type: ignore[arg-type]
send.using(prio=3)  # type: ignore[arg-type]
send.using(due="tomorrow")  # type: ignore[arg-type]
send.using(priority=0.5)  # type: ignore[arg-type]
send.using(50)  # type: ignore[arg-type, call-arg]

assert_type(send.enqueue_many([("ann", "1"), ("bob", "2")], chunk=500), list[Job[int]])
assert_type(load.using(priority=1).enqueue_many([["monday"]]), list[Job[dict[str, int]]])
send.enqueue_many(("ann", "1"), chunk="all")  # type: ignore[arg-type]
send.enqueue_many(3)  # type: ignore[arg-type]


# --- transactions ------------------------------------------------------------------------------

with app.transaction() as tx:
    assert_type(tx, Transaction)
    assert_type(tx.execute("select 1"), list[tuple[Any, ...]])
    tx.execute("select ?", (1,))
    tx.execute("select :a", {"a": 1})
    assert_type(send.using(tx=tx).enqueue("ann", "hi"), Job[int])
    assert_type(send.using(tx=tx, priority=1).enqueue_many([("ann", "1")]), list[Job[int]])
    tx.execute("select ?", 1)  # type: ignore[arg-type]
    tx.execute(3)  # type: ignore[arg-type]
app.transaction().execute("select 1")  # type: ignore[attr-defined]


@app.task
def product(ctx: Context, number: int) -> int:
    with app.transaction() as tx:
        assert_type(ctx.finish(tx, "text"), str)
        ctx.finish("text")  # type: ignore[call-arg]
        if number:
            return ctx.finish(tx, "text")  # type: ignore[return-value]
        return ctx.finish(tx, number)


async def enqueue_on_a_loop() -> None:
    assert_type(await send.aenqueue("ann", "hi"), Job[int])
    assert_type(await load.using(priority=1).aenqueue("monday"), Job[dict[str, int]])
    assert_type(await send.aenqueue_many([("ann", "1")], chunk=5), list[Job[int]])
    assert_type(await (await count.aenqueue("monday")).aresult(timeout=3), int)
    await send.aenqueue("ann", 3)  # type: ignore[arg-type]
    await send.aenqueue("ann")  # type: ignore[call-arg]
    async with app.worker(["mail"], concurrency=100, drain=5):
        pass
    async with app.worker({"mail": 16}, processes=2):
        pass
    app.worker(burst=True)  # type: ignore[call-arg]


# --- the handle --------------------------------------------------------------------------------

job = send.enqueue("ann", "hi")
assert_type(job.id, str)
assert_type(job.status, str)
assert_type(job.result(), int)
assert_type(job.result(timeout=0.5), int)
job.cancel()
job.retry()
job.reschedule(due=datetime(2027, 1, 1, tzinfo=UTC))
job.reschedule(after=timedelta(minutes=10))
job.reschedule(after=0.5)
job.change(priority=5)
job.reschedule("10m")  # type: ignore[arg-type, call-arg]
job.reschedule(after="10m")  # type: ignore[arg-type]
job.change(tags=["a"], priority=None)
job.change(tags=[1])  # type: ignore[list-item]
job.change(priority="high")  # type: ignore[arg-type]
ended: str = job.cancel()  # type: ignore[assignment]
assert_type(job.cancel(), bool)
assert_type(job.progress, Progress | None)
assert_type(app.job(job.id), Job[Any])
a_supertype: Job[object] = job
text: str = job.result()  # type: ignore[assignment]
narrowed: Job[bool] = job  # type: ignore[assignment]
job.result(timeout="soon")  # type: ignore[arg-type]
job.id = "mine"  # type: ignore[misc]
app.job(3)  # type: ignore[arg-type]


# --- retry, snooze, cancel ---------------------------------------------------------------------

Retry()
Retry(attempts=1, base=0.1, cap=10)
Retry(attempts="8")  # type: ignore[arg-type]
Retry(on=(3,))  # type: ignore[arg-type]
Retry(on=OSError)  # type: ignore[arg-type]
Retry(tries=3)  # type: ignore[call-arg]
Retry().attempts = 3  # type: ignore[misc]
Snooze(seconds=1, minutes=2, hours=3, days=4)
Snooze(weeks=1)  # type: ignore[call-arg]
Snooze("5 min")  # type: ignore[arg-type]


# --- queues and workers ------------------------------------------------------------------------

app.queue("mail")
app.queue("mail", lease=30, shards=8, history="off", keep=timedelta(days=7))
app.queue("mail", deliver="at_most_once")
app.queue("mail", deliver="twice")  # type: ignore[arg-type]
app.queue("mail", history="every")  # type: ignore[arg-type]
app.queue("mail", shards="8")  # type: ignore[arg-type]
app.queue("mail", slots=3)  # type: ignore[call-arg]
app.queue("mail", 30)  # type: ignore[call-arg]

app.run_worker()
app.run_worker(queues={"mail": 16, "etl": None}, processes=2, drain=30)
app.run_worker(["mail"], concurrency=4, drain=timedelta(seconds=5), burst=True)
app.run_worker(processes=2, recycle_jobs=1000, recycle_mb=500)
app.run_worker(recycle_mb="500")  # type: ignore[arg-type]
app.run_worker(queues="mail")  # type: ignore[arg-type]
app.run_worker({"mail": "16"})  # type: ignore[dict-item]
app.run_worker(threads=4)  # type: ignore[call-arg]
app.run_worker(burst=3)  # type: ignore[arg-type]


# --- hooks -------------------------------------------------------------------------------------


@app.on("before_enqueue")
def checks(event: EnqueueEvent) -> None:
    assert_type(event.count, int)


@app.on("dead")
def mourns(event: SettleEvent) -> None:
    assert_type(event.again_us, int | None)


app.on("before_run")(lambda event: print(event.fence))
app.on("dead")(checks)  # type: ignore[arg-type]
app.on("ack")  # type: ignore[call-overload]


# --- calls with options of their own, middleware -------------------------------------------------

assert_type(app.enqueue_many([send.call("ann", "1"), send.call("bob", "2")]), list[Job[int]])
app.enqueue_many([send.call("ann", "1"), load.using(retry=Retry(), keep=5).call("monday")])
send.call("ann", 3)  # type: ignore[arg-type]
app.enqueue_many([("ann", "1")])  # type: ignore[arg-type]
send.using(timeout="5")  # type: ignore[arg-type]
assert_type(app.find("key"), Job[Any] | None)
assert_type(app.peek(limit=3), list[Job[Any]])


@app.middleware
@contextmanager
def wrapped(ctx: Context) -> Iterator[None]:
    assert_type(ctx.due, datetime)
    ctx.set_meta(step=1)
    yield


@app.task(middleware=[wrapped])
def inside(number: int) -> int:
    return number


assert_type(inside.enqueue(3), Job[int])


@app.task(middleware=[5])  # type: ignore[list-item]
def refused() -> None: ...


with app.worker():
    assert_type(inside.enqueue(3).cancel(force=True), bool)


# --- errors: one tree --------------------------------------------------------------------------


def one_tree() -> None:
    roots: list[type[DuelineError]] = [
        BadInput,
        Conflict,
        NotFound,
        StoreUnavailable,
        StoreCorrupt,
        JobFailed,
        JobTimeout,
        Snooze,
        Cancel,
    ]
    leaves: tuple[type[BadInput], type[Conflict], type[StoreUnavailable], type[StoreCorrupt]] = (
        ConfigError,
        Duplicate,
        EnqueueUnknown,
        SchemaMismatch,
    )
    conflicts: tuple[type[Conflict], ...] = (LeaseLost, Duplicate)
    assert_type(Duplicate().job_id, str)
    values: type[ValueError] = BadInput
    look_ups: type[LookupError] = NotFound
    unknown: type[StoreUnavailable] = CommitUnknown
    strangers: type[OSError] = StoreUnavailable  # type: ignore[assignment]
    assert_type(BadInput("no", hint="yes").hint, str)
    print(roots, leaves, conflicts, values, look_ups, unknown, strangers)
