"""Dead jobs keep what they died of (R3)."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline, JobFailed, Retry
from dueline.admin.search import attempts_of
from dueline.core.attempt import ERROR_CHARACTERS_MAX, Outcome, epitaph_of, read_epitaph
from dueline.core.job import JobId, State

URLS = ["memory://", "memory://?transactional=off", "sqlite:///{}/jobs.db"]


@pytest.fixture(params=URLS)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dueline]:
    app = Dueline(request.param.format(tmp_path))
    yield app
    app.close()


def innermost(message: str) -> None:
    raise ValueError(message)


@pytest.mark.parametrize("deliver", ["at_least_once", "at_most_once"])
def test_the_traceback_lies_with_the_dead_job(app: Dueline, deliver: str) -> None:
    app.queue("default", deliver=deliver)  # type: ignore[arg-type]

    @app.task(name="t", retry=Retry(attempts=1))
    def t(message: str) -> None:
        innermost(message)

    short, long = t.enqueue("no\n--- such line ---"), t.enqueue("x" * 10_000)
    app.run_worker(burst=True, concurrency=1)
    for job, shown in ((short, "no\n--- such line ---"), (long, "x" * 3000)):
        row = app.queues.find(JobId(bytes.fromhex(job.id))).row
        assert row is not None
        assert row.state == State.DEAD
        assert len(row.error) <= ERROR_CHARACTERS_MAX
        error, traceback = read_epitaph(row.error)
        assert error.startswith(f"ValueError: {shown}")
        assert "raise ValueError(message)\n" in traceback
        assert ", in innermost" in traceback
        with pytest.raises(JobFailed) as failed:
            job.result(timeout=0)
        assert failed.value.message == f"The job {job.id} is dead: {error}"
        attempts = attempts_of(app.queues.engine, row.id, "default", limit=9).attempts
        assert [attempt.error for attempt in attempts] == [error]


def test_what_is_kept_is_the_end_within_the_bound() -> None:
    chance = random.Random(7)
    for _ in range(500):
        error = "ValueError: " + "e" * chance.choice([0, 5, 3000, 5000])
        frames = "f" * chance.choice([1, 3000, 9000]) + "END"
        kept, traceback = epitaph_of(error, frames, "")
        outcome = Outcome("dead", 7, error=kept, traceback=traceback)
        assert len(outcome.epitaph()) <= ERROR_CHARACTERS_MAX
        assert read_epitaph(outcome.epitaph()) == (outcome.error, outcome.traceback)
        assert outcome.error == error[: len(outcome.error)]
        assert outcome.traceback.endswith("END")
    assert epitaph_of("e" * 5000, "", "") == ("e" * 4096, "")
    assert Outcome("dead", 7, error="Poison").epitaph() == "Poison"


@pytest.mark.slow
@pytest.mark.parametrize("by", ["one", "all"])
def test_redriving_keeps_history(app: Dueline, by: str) -> None:
    is_well = False

    @app.task(name="t", retry=Retry(attempts=2, base=0))
    def t() -> None:
        if not is_well:
            innermost("ill")

    job = t.enqueue()
    job_id = JobId(bytes.fromhex(job.id))
    app.run_worker(burst=True)
    assert job.status == "dead"
    for outcome in ("dead", "done"):
        row = app.queues.find(job_id).row
        assert row is not None
        if by == "all":
            assert app.queues.retry_all([row]) == 1
        else:
            job.retry()
        row = app.queues.find(job_id).row
        assert row is not None
        assert (row.errors, row.error) == (0, "")
        is_well = outcome == "done"
        app.run_worker(burst=True)
        assert job.status == outcome
    past = attempts_of(app.queues.engine, job_id, "default", limit=9).attempts
    told = [
        (attempt.outcome, attempt.error, attempt.fence)
        for attempt in reversed(past)
        if attempt.worker
    ]
    assert told == [
        ("retried", "ValueError: ill", 1),
        ("dead", "ValueError: ill", 2),
        ("retried", "ValueError: ill", 3),
        ("dead", "ValueError: ill", 4),
        ("done", "", 5),
    ]
