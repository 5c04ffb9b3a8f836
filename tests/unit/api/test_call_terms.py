"""Options of single calls: retry, timeout, kill_after, keep; and many calls with their own."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from dueline import (
    BadInput,
    BatchOptions,
    Call,
    Context,
    Dueline,
    Duplicate,
    Job,
    NotFound,
    Retry,
    group,
)
from dueline.api.job_handle import parse_id
from dueline.api.task import PlannedCall, Using
from dueline.core.call_options import headers_of, terms_of
from dueline.core.clock import to_datetime
from dueline.tasks.hooks import EnqueueEvent
from tests.harness.clocks import NOW_US, HandClock

STORES = ("memory://", "memory://?transactional=off", "sqlite:///jobs.db")


@pytest.fixture(params=STORES)
def app(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Dueline]:
    monkeypatch.chdir(tmp_path)
    made = Dueline(request.param)
    yield made
    made.close()


def work(app: Dueline) -> None:
    app.run_worker(concurrency=1, burst=True)


def row_of(app: Dueline, job: Job[Any]) -> Any:  # noqa: ANN401
    return app.queues.find(parse_id(job.id)).row


def test_a_call_has_its_own_retries(app: Dueline) -> None:
    # A12
    @app.task(name="fails", retry=Retry(attempts=1, on=(ValueError,)))
    def fails(name: str) -> NoReturn:
        raise (ValueError if name == "value" else KeyError)

    own: Using[[str], Any] = fails.using(retry=Retry.fixed(3600, attempts=2))
    jobs = [fails.enqueue("value"), own.enqueue("value"), own.enqueue("key")]
    work(app)
    assert [job.status for job in jobs] == ["dead", "retrying", "dead"]  # `on` is the task's
    jobs[1].retry()
    work(app)
    assert jobs[1].status == "dead"


def test_a_call_has_its_own_time_limit(app: Dueline) -> None:
    # A12, R9
    once = Retry(attempts=1)

    @app.task(name="slow", retry=once)
    def slow() -> None:
        until = time.monotonic() + 5
        while time.monotonic() < until:
            time.sleep(0.001)

    @app.task(name="sleeps", retry=once, timeout=0.05)
    async def sleeps() -> str:
        import asyncio  # noqa: PLC0415

        await asyncio.sleep(0.15)
        return "slept"

    jobs: list[Job[Any]] = [slow.using(timeout=0.05).enqueue(), sleeps.using(timeout=5).enqueue()]
    work(app)
    assert [job.status for job in jobs] == ["dead", "done"]
    assert "JobTimeout" in row_of(app, jobs[0]).error


def test_a_call_says_how_long_its_result_is_kept(app: Dueline) -> None:
    # A12
    @app.task(name="add")
    def add(one: int) -> int:
        return one + 1

    app.queue("short", keep=0)
    some = [add.using(keep=0).enqueue(1), add.using(queue="short", keep=60).enqueue(2)]
    both = [add.using(queue="short").enqueue(3), add.enqueue(4)]
    app.run_worker(["default", "short"], concurrency=1, burst=True)
    kept = [some[1], both[1]]
    assert [job.result(timeout=5) for job in kept] == [3, 5]
    for job in (some[0], both[0]):
        with pytest.raises(NotFound):
            _ = job.status


@pytest.mark.parametrize(
    "options",
    [
        {"retry": 5},
        {"retry": Retry(on=(ValueError,))},
        {"retry": Retry(per_error={ValueError: Retry.fixed(1)})},
        {"timeout": 0},
        {"timeout": 9, "kill_after": 8},
        {"kill_after": 3},  # the task's timeout is 4
        {"keep": -1},
        {"keep": timedelta.max},
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any]) -> None:
    app = Dueline("memory://")

    @app.task(name="add", timeout=4)
    def add() -> None: ...

    @app.task(name="index", batch=BatchOptions(2))
    def index(calls: list[Call[int]]) -> None: ...

    with pytest.raises(BadInput):
        add.using(**options)
    with pytest.raises(BadInput, match="batch"):
        index.using(timeout=5)
    with pytest.raises(BadInput, match="step"):
        add.using(keep=5).step()


def test_the_steps_of_a_workflow_have_their_own_retries_and_time_limits(app: Dueline) -> None:
    # A12
    @app.task(name="fails", retry=Retry(attempts=1))
    def fails() -> NoReturn:
        raise ValueError

    @app.task(name="sleeps", retry=Retry(attempts=1))
    async def sleeps() -> None:
        import asyncio  # noqa: PLC0415

        await asyncio.sleep(5)

    steps = [fails.using(retry=Retry.fixed(3600, attempts=2)).step(), fails.step()]
    flow = app.start(group(*steps, sleeps.using(timeout=0.05).step(), failures="collect"))
    work(app)
    assert [flow.step(number).status for number in range(3)] == ["retrying", "dead", "dead"]
    assert "JobTimeout" in row_of(app, flow.step(2)).error


def test_the_jobs_of_a_schedule_have_their_own_retries_and_results(app: Dueline) -> None:
    # A12
    @app.task(name="fails", retry=Retry(attempts=1))
    def fails() -> NoReturn:
        raise ValueError

    own: Using[[], Any] = fails.using(retry=Retry.fixed(3600, attempts=2), keep=3600)
    app.schedules.set("own", own, every=3600)
    app.schedules.set("plain", fails, every=3600)
    jobs = [app.schedules.trigger(name) for name in ("own", "plain")]
    work(app)
    assert [job.status for job in jobs] == ["retrying", "dead"]
    assert terms_of(row_of(app, jobs[0])).keep_us == 3600 * 10**6


# Many calls with their own options


def test_calls_of_several_tasks_are_stored_with_their_own_options(app: Dueline) -> None:
    # C22
    @app.task(name="send", limits=["host:{to}"])
    def send(to: str) -> str:
        return to

    @app.task(name="count", queue="numbers")
    def count(number: int) -> int:
        return number

    app.semaphore("host", capacity=9)
    events: list[EnqueueEvent] = []
    app.on("after_enqueue")(events.append)
    due = datetime.now(UTC) + timedelta(hours=1)
    jobs = app.enqueue_many([
        send.using(priority=5, tags=["one"], headers={"request": "7"}).call("ann"),
        count.using(due=due).call(number=1),
        send.using(unique="to:{to}", expires=60).call("ben"),
        send.using(unique="to:{to}", timeout=5).call("eve"),
        count.call(2),
    ])  # fmt: skip
    rows = [row_of(app, job) for job in jobs]
    assert [row.task for row in rows] == ["send", "count", "send", "send", "count"]
    queues = ["default", "numbers", "default", "default", "numbers"]
    assert [row.lane.queue for row in rows] == queues
    assert rows[0].lane.priority == 5
    assert headers_of(rows[0]) == {"request": "7"}
    assert [event.job_ids for event in events] == [[job.id] for job in jobs]
    assert [app.find("to:ben"), app.find("to:eve")] == jobs[2:4]
    app.run_worker(["default", "numbers"], burst=True)
    assert [job.status for job in jobs] == ["done", "scheduled", "done", "done", "done"]


def test_a_call_that_does_not_fit_is_named_and_nothing_is_stored(app: Dueline) -> None:
    # C22
    @app.task(name="count")
    def count(number: int) -> None: ...

    with pytest.raises(BadInput, match=r"calls\[1\]: .*number"):
        app.enqueue_many([count.call(1), count.call("two")])  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"calls\[1\]: It is a tuple"):
        app.enqueue_many(cast("list[PlannedCall[Any]]", [count.call(1), (2,)]))
    assert list(app.queues.engine.jobs_of("default")) == []


def test_a_key_that_is_held_ends_the_batch_where_it_is(app: Dueline) -> None:
    # C22
    @app.task(name="count", unique="{number}")
    def count(number: int) -> None: ...

    free = count.enqueue_many([(1,), (2,)])
    assert [job.status for job in free] == ["ready"] * 2
    plain = app.task(name="plain")(lambda: None)
    calls = [plain.call(), count.call(3), count.call(1), count.call(4), plain.call()]
    with pytest.raises(Duplicate) as caught:
        app.enqueue_many(calls)
    assert caught.value.unsent == 3
    assert caught.value.message.startswith("calls[2]: The job ")
    assert str(caught.value).startswith("calls[2]: The job ")
    assert len(list(app.queues.engine.jobs_of("default"))) == 4
    app.enqueue_many(calls[-2:])
    assert len(list(app.queues.engine.jobs_of("default"))) == 6
    with pytest.raises(Duplicate, match=r"^calls\[3\]: The job "):  # in the second write
        app.enqueue_many([*[plain.call()] * 3, count.call(1)], chunk=2)
    with pytest.raises(Duplicate, match=r"^calls\[0\]: The job "):
        count.enqueue_many([(1,), (9,)])
    with pytest.raises(Duplicate, match=r"^The job "):
        count.enqueue(1)


def test_many_calls_join_a_transaction() -> None:
    app = Dueline("memory://")

    @app.task(name="count", unique="{number}")
    def count(number: int) -> None: ...

    with app.transaction() as tx:
        app.enqueue_many([count.call(1), count.call(2)], tx=tx)
        with pytest.raises(BadInput, match="tx=tx"):
            app.enqueue_many([count.using(tx=tx).call(3)])
    assert app.find("1") is not None


# Find, peek, due


def test_a_job_is_found_by_its_key_while_it_waits_or_runs(app: Dueline) -> None:
    # C23
    seen: list[Any] = []

    @app.task(name="count", unique="number:{number}", queue="numbers", retry=Retry(attempts=1))
    def count(ctx: Context, number: int) -> None:
        found = app.find("number:1", queue="numbers")
        seen.append(found and found.status)
        raise ValueError

    assert app.find("number:1", queue="numbers") is None
    job = count.enqueue(1)
    assert app.find("number:1", queue="numbers") == job
    assert app.find("number:1") is None
    app.run_worker(["numbers"], burst=True)
    assert seen == ["running"]
    assert job.status == "dead"
    assert app.find("number:1", queue="numbers") is None
    with pytest.raises(BadInput):
        app.find("")


def test_the_next_jobs_are_those_that_a_worker_starts(app: Dueline) -> None:
    # V3
    ran: list[str] = []

    @app.task(name="note")
    def note(ctx: Context) -> None:
        ran.append(ctx.job_id.hex())

    now = datetime.now(UTC)
    past, future = now - timedelta(minutes=1), now + timedelta(minutes=1)
    for priority, due in ((0, past), (5, past), (-3, past), (5, past), (9, future)):
        note.using(priority=priority, due=due).enqueue()
    coming = app.peek(limit=10)
    assert [job.id for job in app.peek(limit=2)] == [job.id for job in coming[:2]]
    work(app)
    assert [job.id for job in coming] == ran
    with pytest.raises(NotFound):
        app.peek("nosuch")
    with pytest.raises(BadInput):
        app.peek(limit=0)


@pytest.mark.parametrize("url", STORES)
def test_a_handler_reads_for_which_occurrence_it_runs(
    url: str, clock: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # T17
    monkeypatch.chdir(tmp_path)
    app = Dueline(url, clock=clock)
    seen: list[datetime] = []

    @app.task(name="note")
    def note(ctx: Context) -> None:
        seen.append(ctx.due)

    start = to_datetime(NOW_US)
    app.schedule("hourly", note.using(window=5), every=3600, start=start, catch_up="all")
    assert app.schedules.list()
    clock.advance(3 * 3600 + 100)
    app.run_worker(["default"], concurrency=1, burst=True)
    clock.advance(10)
    app.run_worker(["default"], concurrency=1, burst=True)
    assert sorted(seen) == [start + timedelta(hours=hours) for hours in (1, 2, 3)]
    app.close()
