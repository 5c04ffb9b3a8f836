"""Tasks that take many jobs at once, from the application down."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from dueline import (
    BadInput,
    BatchOptions,
    Call,
    Cancel,
    Dueline,
    Duplicate,
    JobFailed,
    Retry,
    Snooze,
)
from dueline.api.job_handle import parse_id
from dueline.core.job import Job as Row
from dueline.jobs.history import attempts
from dueline.jobs.queue import EnqueueRequest
from dueline.tasks.hooks import RunEvent, SettleEvent
from dueline.workflows.parts import group, pipeline
from tests.harness.batch_tasks import AT_ONCE, Doc

ONCE = Retry(attempts=1)


@pytest.fixture(params=["memory://", "memory://?transactional=off", "sqlite:///jobs.db"])
def app(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Dueline]:
    """Make an application."""
    monkeypatch.chdir(tmp_path)
    app = Dueline(request.param)
    yield app
    app.close()


def work(app: Dueline) -> None:
    """Run all that is due."""
    app.run_worker(burst=True, concurrency=2, monitor=False)


def row_of(app: Dueline, job_id: str) -> Row:
    """Read a job's row."""
    row = app.queues.find(parse_id(job_id)).row
    assert row is not None
    return row


def words(app: Dueline) -> list[str]:
    """Read what history calls the attempts."""
    return sorted(one.outcome for one in attempts(app.store, "default", 1))


# --- what the function is given, and answers -------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_takes_many_jobs_and_answers_for_each(app: Dueline, *, is_async: bool) -> None:
    # W6
    given: list[list[Call[Doc]]] = []

    def measure(calls: list[Call[Doc]]) -> list[int]:
        given.append(calls)
        return [call.value.pages for call in calls]

    async def ameasure(calls: list[Call[Doc]]) -> list[int]:
        await asyncio.sleep(0)
        return measure(calls)

    task: Any = app.task(name="measure", batch=AT_ONCE)(ameasure if is_async else measure)
    jobs = [task.enqueue(Doc(f"{pages}", pages)) for pages in range(3)]
    jobs.append(task.using(tenant="ann", priority=7).enqueue(value=Doc("urgent", 9)))
    work(app)
    assert [job.result(0) for job in jobs] == [0, 1, 2, 9]
    (calls,) = given
    assert [call.value for call in calls] == [Doc("urgent", 9), *(Doc(f"{n}", n) for n in range(3))]
    assert [call.job_id.hex() for call in calls] == [jobs[3].id, *(job.id for job in jobs[:3])]
    assert {(call.attempt, call.fence, call.queue) for call in calls} == {(1, 1, "default")}
    assert (calls[0].tenant, calls[0].priority) == ("ann", 7)
    told = list(attempts(app.store, "default", 1))
    assert [one.outcome for one in told] == ["done"] * 4
    assert len({(one.started_us, one.ended_us) for one in told}) == 1


def test_what_is_said_of_one_job_holds_for_it_alone(app: Dueline) -> None:
    @app.task(name="mixed", batch=AT_ONCE, retry=ONCE)
    def mixed(calls: list[Call[str]]) -> list[str]:
        for call in calls:
            match call.value:
                case "fail":
                    call.fail(ValueError("no good"))
                case "snooze":
                    call.snooze(3600)
                case "cancel":
                    call.cancel("nobody wants it")
                case "done":
                    call.fail(ValueError("not so"))
                    call.done("the last word")
        return [call.value.upper() for call in calls]

    kinds = ("fail", "snooze", "cancel", "done", "else")
    jobs = dict(zip(kinds, mixed.enqueue_many([(kind,) for kind in kinds]), strict=True))
    work(app)
    statuses = {kind: job.status for kind, job in jobs.items()}
    assert statuses == {
        "fail": "dead", "snooze": "scheduled", "cancel": "cancelled", "done": "done", "else": "done"
    }  # fmt: skip
    assert row_of(app, jobs["fail"].id).error.startswith("ValueError: no good")
    assert row_of(app, jobs["snooze"].id).errors == 0
    assert (jobs["done"].result(0), jobs["else"].result(0)) == ("the last word", "ELSE")
    assert words(app) == ["cancelled", "dead", "done", "done", "snoozed"]


def test_what_is_raised_fails_all_of_which_nothing_else_was_said(app: Dueline) -> None:
    @app.task(name="breaks", batch=AT_ONCE, retry=Retry(attempts=2, base=3600))
    def breaks(calls: list[Call[int]]) -> None:
        calls[0].done()
        raise OSError("away")

    jobs = breaks.enqueue_many([(number,) for number in range(3)])
    work(app)
    assert [job.status for job in jobs] == ["done", "retrying", "retrying"]
    rows = [row_of(app, job.id) for job in jobs[1:]]
    assert [(row.errors, row.error) for row in rows] == [(1, "OSError: away")] * 2
    waits = {row.at_us for row in rows}
    assert len(waits) == 2  # each by its own jitter


@pytest.mark.parametrize(
    ("raised", "status"), [(Snooze(60), "scheduled"), (Cancel("enough"), "cancelled")]
)
def test_a_chunk_may_be_snoozed_or_cancelled_whole(
    app: Dueline, raised: Exception, status: str
) -> None:
    @app.task(name="stops", batch=AT_ONCE)
    def stops(calls: list[Call[int]]) -> None:
        raise raised

    jobs = stops.enqueue_many([(1,), (2,)])
    work(app)
    assert [job.status for job in jobs] == [status] * 2


@pytest.mark.parametrize("returned", [[1], [1, 2, 3], 7])
def test_answers_that_do_not_fit_the_calls_are_failures(plain: Dueline, returned: object) -> None:
    @plain.task(name="wrong", batch=AT_ONCE)
    def wrong(calls: list[Call[int]]) -> list[int]:
        return cast("list[int]", returned)

    jobs = wrong.enqueue_many([(1,), (2,)])
    work(plain)
    for job in jobs:
        with pytest.raises(JobFailed, match=r"returned .* for 2 calls"):
            job.result(0)


def test_a_result_that_cannot_be_written_fails_its_own_job(plain: Dueline) -> None:
    @plain.task(name="odd", batch=AT_ONCE)
    def odd(calls: list[Call[int]]) -> list[object]:
        return [object(), 2]

    jobs = odd.enqueue_many([(1,), (2,)])
    work(plain)
    assert [job.status for job in jobs] == ["dead", "done"]


def test_a_value_that_does_not_fit_waits_alone(plain: Dueline) -> None:
    @plain.task(name="typed", batch=AT_ONCE)
    def typed(calls: list[Call[int]]) -> list[int]:
        return [call.value for call in calls]

    good = typed.enqueue(1)
    with pytest.raises(BadInput, match="do not fit typed"):
        typed.enqueue("one")  # type: ignore[arg-type]
    row = plain.queues.enqueue(EnqueueRequest("default", "typed", 0, [b'["one"]']))[0]
    work(plain)
    assert good.result(0) == 1
    assert plain.job(row.id.hex()).explain().reason == "no worker"
    (waits,) = plain.engine.jobs_of("default")
    assert "do not fit typed(value: int): `value`: Expected `int`, got `str`" in waits.error


def test_expired_jobs_are_left_out(plain: Dueline) -> None:
    # C15
    given: list[int] = []

    @plain.task(name="timely", batch=BatchOptions(size=10, within=0.2))
    def timely(calls: list[Call[int]]) -> None:
        given.extend(call.value for call in calls)

    late = timely.using(expires=0.1).enqueue(1)
    timely.enqueue(2)
    work(plain)
    assert given == [2]
    assert late.status == "expired"


def test_called_here_it_runs_with_one_call(plain: Dueline) -> None:
    @plain.task(name="here", batch=AT_ONCE)
    def here(calls: list[Call[int]]) -> list[int]:
        if calls[0].value < 0:
            calls[0].fail(ValueError("negative"))
        return [call.value * 2 for call in calls]

    @plain.task(name="ahere", batch=AT_ONCE)
    async def ahere(calls: list[Call[int]]) -> list[int]:
        return [call.value * 3 for call in calls]

    assert here(4) == 8
    assert asyncio.run(ahere(4)) == 12
    with pytest.raises(ValueError, match="negative"):
        here(-1)


# --- what else is said of jobs ---------------------------------------------------------------


def test_keys_of_limits_and_of_uniqueness_are_fields_of_the_value(app: Dueline) -> None:
    app.semaphore("host", capacity=1)

    @app.task(name="fetch", batch=BatchOptions(size=2, within=0, by="{name}"), unique="doc:{name}")
    def fetch(calls: list[Call[Doc]]) -> list[str]:
        return [f"{call.value.name} of {len(calls)}" for call in calls]

    limited = fetch.using(limits=["host:{name}"])
    first = limited.enqueue(Doc("a"))
    with pytest.raises(Duplicate):
        fetch.enqueue(Doc("a", pages=7))
    second = fetch.enqueue(Doc("b"))
    assert "host:a" in row_of(app, first.id).lane.tenant
    work(app)
    assert (first.result(0), second.result(0)) == ("a of 1", "b of 1")


def test_hooks_hear_of_each_job(plain: Dueline) -> None:
    # A6
    heard: list[tuple[str, str]] = []

    @plain.task(name="heard", batch=AT_ONCE, retry=ONCE)
    def listened(calls: list[Call[int]]) -> None:
        calls[1].fail(ValueError("no"))

    @plain.on("before_run")
    def before(event: RunEvent) -> None:
        heard.append(("before", event.job_id))

    @plain.on("done")
    def done(event: SettleEvent) -> None:
        heard.append(("done", event.job_id))

    @plain.on("dead")
    def dead(event: SettleEvent) -> None:
        heard.append(("dead", event.job_id))

    good, bad = listened.enqueue_many([(1,), (2,)])
    work(plain)
    assert sorted(heard) == sorted(
        [("before", good.id), ("before", bad.id), ("done", good.id), ("dead", bad.id)]
    )


def test_progress_of_each_job_is_there_for_its_next_attempt(app: Dueline) -> None:
    # C18
    seen: list[tuple[int, object]] = []

    @app.task(name="resumed", batch=AT_ONCE, retry=Retry(base=0))
    def resumed(calls: list[Call[int]]) -> None:
        for call in calls:
            seen.append((call.value, getattr(call.last_progress, "done", None)))
            call.progress(call.value, 10)
        if calls[0].attempt == 1:
            raise ValueError("again")

    resumed.enqueue_many([(3,), (4,)])
    work(app)
    assert sorted(seen, key=str) == [(3, 3), (3, None), (4, 4), (4, None)]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_time_limit_holds_for_the_whole_call(plain: Dueline, *, is_async: bool) -> None:
    def slow(calls: list[Call[int]]) -> None:
        calls[0].done()
        while True:
            time.sleep(0.01)

    async def aslow(calls: list[Call[int]]) -> None:
        calls[0].done()
        await asyncio.sleep(60)

    terms: Any = {"name": "slow", "batch": AT_ONCE, "timeout": 0.2, "retry": ONCE}
    task: Any = plain.task(**terms)(aslow if is_async else slow)
    jobs = [task.enqueue(number) for number in range(3)]
    work(plain)
    assert [job.status for job in jobs] == ["done", "dead", "dead"]
    assert row_of(plain, jobs[1].id).error.startswith("JobTimeout")


@pytest.mark.parametrize("url", ["memory://", "sqlite:///jobs.db"])
def test_one_transaction_ends_many_jobs_with_their_product(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # C10
    monkeypatch.chdir(tmp_path)
    app = Dueline(url)

    @app.task(name="stored", batch=AT_ONCE, retry=ONCE)
    def stored(calls: list[Call[int]]) -> None:
        with app.transaction() as tx:
            for call in calls[:2]:
                call.finish(tx, call.value * 10)
        raise ValueError("after the commit, for the last one")

    jobs = stored.enqueue_many([(1,), (2,), (3,)])
    work(app)
    assert [job.status for job in jobs] == ["done", "done", "dead"]
    assert [job.result(0) for job in jobs[:2]] == [10, 20]
    assert words(app) == ["dead", "done", "done"]
    app.close()


def test_a_running_member_is_told_that_its_end_is_wished_for(plain: Dueline) -> None:
    # C19
    told: list[int] = []

    @plain.task(name="asked", batch=AT_ONCE)
    def asked(calls: list[Call[int]]) -> None:
        if calls[0].attempt == 1 and not told:
            jobs[1].cancel()
        give_up_s = time.monotonic() + 60
        while not any(call.is_cancelled for call in calls):
            assert time.monotonic() < give_up_s
            time.sleep(0.01)
        for call in calls:
            if call.is_cancelled:
                told.append(call.value)
                call.cancel("as was asked")

    jobs = asked.enqueue_many([(1,), (2,)])
    work(plain)
    assert told == [2]
    assert [job.status for job in jobs] == ["done", "cancelled"]


def test_steps_of_a_workflow_may_share_a_call(app: Dueline) -> None:
    @app.task(name="double", batch=BatchOptions(size=3, within=0))
    def double(calls: list[Call[int]]) -> list[int]:
        return [call.value * 2 for call in calls]

    @app.task(name="total")
    def total(parts: list[int]) -> int:
        return sum(parts)

    flow = app.start(pipeline(group(double.step(number) for number in range(3)), total.step()))
    again = app.start(pipeline(double.step(4), double.step()))
    work(app)
    assert flow.result(0) == 6
    assert again.result(0) == 16
