"""Rows of a history as they are stored (V2)."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline, Retry
from dueline.core.pagination import rows_in
from dueline.core.store import Row
from dueline.jobs.history import HISTORY_SUFFIX, attempts
from dueline.jobs.history_batch import attempts_in, is_bundle, size_of

JOBS = 120


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dueline]:
    """Make an application on a new file."""
    app = Dueline(f"sqlite:///{tmp_path}/q.db")
    app.queue("mail", history="all")
    yield app
    app.close()


def run(app: Dueline) -> None:
    """Run some jobs, of which a quarter fails once, and some die."""

    @app.task(name="count", queue="mail", retry=Retry(attempts=2, base=0.001, cap=0.001))
    def count(number: int) -> int:
        if number % 4 == 0:
            raise OSError(f"no {number % 3}")
        return number

    count.enqueue_many([(number,) for number in range(JOBS)])
    app.run_worker(burst=True)


def rows(app: Dueline) -> list[Row]:
    """Read the rows of the history as they are stored."""
    return list(rows_in(app.store, "mail" + HISTORY_SUFFIX, 0, after=None))


def outcomes(app: Dueline) -> Counter[str]:
    """Count the events of the history."""
    events = attempts(app.store, "mail", 1, everything=True)
    return Counter(event.outcome for event in events)


EXPECTED = Counter(enqueued=JOBS, done=JOBS * 3 // 4, retried=JOBS // 4, dead=JOBS // 4)


def test_all_events_share_rows(app: Dueline) -> None:
    run(app)
    assert outcomes(app) == EXPECTED
    stored = rows(app)
    assert sum(map(size_of, stored)) == EXPECTED.total()
    assert sum(map(is_bundle, stored)) >= len(stored) - 2
    kinds = [{event.outcome for _, event in attempts_in(row)} for row in stored]
    assert any("done" in kind and "retried" in kind for kind in kinds)


def test_attempts_have_the_limits_of_their_jobs_and_when_they_run_again(app: Dueline) -> None:
    app.semaphore("api", capacity=2)

    failed: list[str] = []

    @app.task(name="call", queue="mail", limits=["api", "host:{host}"], retry=Retry.fixed(0.01))
    def call(host: str) -> None:
        if not failed:
            failed.append(host)
            raise OSError(host)

    call.enqueue_many([("one",), ("two",)])
    app.run_worker(burst=True)
    events = list(attempts(app.store, "mail", 1, everything=True))
    assert {event.limits for event in events} == {"api\x1fhost:one", "api\x1fhost:two"}
    (again,) = (event for event in events if event.again_us)
    assert (again.outcome, again.again_us) == ("retried", again.ended_us + 10_000)
