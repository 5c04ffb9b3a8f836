"""Handlers that ask for a retry, and policies for some exceptions, in a worker (R2)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dueline import BadInput, BatchOptions, Call, Context, Dueline, Job, Retry
from dueline.core.clock import SECOND_US
from dueline.core.retry import WAIT_US_MAX

ONCE = Retry(attempts=1)


class BusyError(Exception):
    pass


def raise_busy() -> None:
    raise BusyError("try later")


@pytest.fixture
def app() -> Dueline:
    return Dueline("memory://")


def work(app: Dueline) -> None:
    app.run_worker(concurrency=1, burst=True)


def row_of(app: Dueline, job: Job[Any]) -> Any:  # noqa: ANN401
    row = app.queues.find(bytes.fromhex(job.id)).row  # type: ignore[arg-type]
    assert row is not None
    return row


def wait_s(app: Dueline, job: Job[Any]) -> float:
    """Return the wait of a job that just failed, to a few seconds."""
    return float(row_of(app, job).at_us - app.queues.engine.time.latest_us()) / SECOND_US


def asks(ctx: Context, after: float | None) -> None:
    ctx.retry(after=after)


async def asks_async(ctx: Context, after: float | None) -> None:
    ctx.retry(after=after)


@pytest.mark.parametrize("function", [asks, asks_async])
def test_a_handler_asks_for_a_retry_after_a_wait(
    app: Dueline, function: Callable[..., Any]
) -> None:
    task: Any = app.task(name="asks", retry=Retry(attempts=2, on=()))(function)
    job = task.enqueue(3600)
    work(app)
    assert job.status == "retrying"
    assert 3590 < wait_s(app, job) <= 3600
    assert row_of(app, job).errors == 1
    job.reschedule(after=0)
    work(app)
    assert job.status == "dead"  # both attempts are used up


def test_without_a_wait_the_policy_decides(app: Dueline, caplog: pytest.LogCaptureFixture) -> None:
    task: Any = app.task(name="asks", retry=Retry.fixed(600))(asks)
    job = task.enqueue(None)
    work(app)
    assert 590 < wait_s(app, job) <= 600
    assert "The handler asked for a retry." in caplog.text
    assert "Traceback" not in caplog.text


def test_a_request_may_have_another_number_of_attempts(app: Dueline) -> None:
    @app.task(name="counted", retry=ONCE)
    def counted(ctx: Context, attempts: int) -> None:
        ctx.retry(after=0, attempts=attempts)

    jobs = [counted.enqueue(attempts) for attempts in (3, 1, 0)]
    work(app)
    assert [job.status for job in jobs] == ["dead"] * 3
    assert [row_of(app, job).errors for job in jobs] == [3, 1, 1]
    assert "`attempts` must be an integer from 1 to 100" in row_of(app, jobs[2]).error


def test_the_caught_error_is_the_reason_and_chooses_the_policy(
    app: Dueline, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="busy", retry=Retry(per_error={BusyError: Retry.fixed(600)}))
    def busy(ctx: Context) -> None:
        try:
            raise_busy()
        except BusyError:
            ctx.retry()

    job = busy.enqueue()
    work(app)
    assert 590 < wait_s(app, job) <= 600
    assert row_of(app, job).error.endswith("asked for a retry. BusyError: try later")
    assert "in raise_busy" in caplog.text


@pytest.mark.parametrize("after", [-1, "soon", timedelta(seconds=-1), True])
def test_a_wait_out_of_range_is_a_mistake_of_the_handler(app: Dueline, after: object) -> None:
    @app.task(name="wrong")
    def wrong(ctx: Context) -> None:
        with pytest.raises(BadInput, match="`after`"):
            ctx.retry(after=after)  # type: ignore[arg-type]

    job = wrong.enqueue()
    work(app)
    assert job.status == "done"


def test_a_wait_of_centuries_is_cut(app: Dueline) -> None:
    task: Any = app.task(name="asks")(asks)
    job = task.enqueue(1e10)
    work(app)
    assert job.status == "retrying"
    assert wait_s(app, job) <= WAIT_US_MAX / SECOND_US


def test_an_exception_follows_the_policy_for_it(app: Dueline) -> None:
    @app.task(
        name="one", retry=Retry(attempts=1, per_error={BusyError: Retry.fixed(600, attempts=2)})
    )
    def one(kind: str) -> None:
        raise BusyError if kind == "busy" else ValueError

    busy, other = one.enqueue("busy"), one.enqueue("other")
    work(app)
    assert (busy.status, other.status) == ("retrying", "dead")
    assert 590 < wait_s(app, busy) <= 600


def test_one_job_of_a_batch_asks_and_the_others_go_on(app: Dueline) -> None:
    @app.task(name="batch", batch=BatchOptions(within=0), retry=ONCE)
    def batch(calls: list[Call[int]]) -> None:
        for call in calls:
            if call.value == 1:
                call.retry(after=600)

    jobs = batch.enqueue_many([(0,), (1,), (2,)])
    work(app)
    assert [job.status for job in jobs] == ["done", "dead", "done"]  # one attempt


def test_the_policy_of_an_exception_reaches_a_child_process() -> None:
    from dueline.core.attempt import Failed  # noqa: PLC0415
    from dueline.core.job import Claim, JobId  # noqa: PLC0415
    from dueline.worker.child_protocol import Finished, dump, load  # noqa: PLC0415

    ended = Finished(Claim(JobId(bytes(16)), 1), Failed("E", "", "", retry=True, case=2), 1, 2)
    assert load(dump(ended)) == ended
