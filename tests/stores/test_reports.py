"""What handlers report is there when their ends are, on each kind of store."""

import asyncio
import time
from contextlib import suppress

import pytest

from dueline import BatchOptions, Call, Cancel, Context, Dueline, Job, JobFailed, Retry, Snooze
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA, WITH_ADDRESS

ROUNDS = 5
WAIT_S = 60.0

SCHEDULED = ("retried", "snoozed")
OUTCOMES = ("done", "dead", "cancelled", *SCHEDULED)


@pytest.mark.slow
@pytest.mark.parametrize("url", [*IN_MEMORY, *LONG_ON_CASSANDRA], indirect=True)
def test_reports_are_there_when_the_end_is(url: str) -> None:
    """Read the notes and the progress of jobs as soon as their ends are seen."""
    # C18
    app = Dueline(url)
    try:
        _expect_reports(app)
    finally:
        app.close()


def _expect_reports(app: Dueline) -> None:
    @app.task(name="plain", retry=Retry(attempts=2, delays=[600]))
    def plain(ctx: Context, outcome: str) -> int:
        return report(ctx, outcome)

    @app.task(name="coroutine", retry=Retry(attempts=2, delays=[600]))
    async def coroutine(ctx: Context, outcome: str) -> int:
        await asyncio.sleep(0)
        return report(ctx, outcome)

    @app.task(name="batch", batch=BatchOptions(size=2, within=0))
    def batch(calls: list[Call[str]]) -> list[int]:
        return [report(call, "done") for call in calls]

    with app.worker(concurrency=2):
        for _ in range(ROUNDS):
            for outcome in OUTCOMES:
                expect_report(plain.enqueue(outcome), outcome)
                expect_report(coroutine.enqueue(outcome), outcome)
            expect_report(batch.enqueue("done"), "done")


@pytest.mark.parametrize("url", [IN_MEMORY[0], *WITH_ADDRESS[:2]], indirect=True)
def test_reports_are_there_when_a_transaction_is_committed(url: str) -> None:
    """Read what handlers reported as soon as the transactions are committed that end their jobs."""
    # C18
    app = Dueline(url)

    @app.task(name="finishing")
    def finishing(ctx: Context) -> int:
        with app.transaction() as tx:
            return ctx.finish(tx, report(ctx, "done"))

    try:
        with app.worker(concurrency=2):
            for _ in range(4 * ROUNDS):
                expect_report(finishing.enqueue(), "done")
    finally:
        app.close()


def report(ctx: Context, outcome: str) -> int:
    """Report, and end in some way."""
    ctx.progress(1, 4, note="first")
    ctx.set_meta(rows=7)
    ctx.progress(3, 4, note="last")
    match outcome:
        case "dead":
            ctx.retry(attempts=1)
        case "cancelled":
            raise Cancel("enough")
        case "retried":
            raise ValueError(outcome)
        case "snoozed":
            raise Snooze(600)
    return 1


def expect_report(job: Job[int], outcome: str) -> None:
    """Wait until a job has come so far, and read what it reported."""
    if outcome in SCHEDULED:
        give_up_s = time.monotonic() + WAIT_S
        while job.status in {"ready", "running"}:
            assert time.monotonic() < give_up_s, job.status
    else:
        with suppress(JobFailed):
            job.result(timeout=WAIT_S)
    seen = job.progress
    assert (job.meta, seen and (seen.done, seen.note)) == ({"rows": 7}, (3, "last")), outcome
