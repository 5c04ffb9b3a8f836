"""Rows of a history in a store of an older version, and in one that knows columns."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dueline import Dueline, Retry
from dueline.core.features import COLUMNS, PARTITION, names_of
from dueline.core.pagination import rows_in
from dueline.core.store import Delete, Row
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
    found = attempts(app.store, "mail", 1, everything=True)
    return Counter(one.outcome for one in found)


EXPECTED = Counter(enqueued=JOBS, done=JOBS * 3 // 4, retried=JOBS // 4, dead=JOBS // 4)


def test_all_events_share_rows(app: Dueline) -> None:
    run(app)
    assert outcomes(app) == EXPECTED
    found = rows(app)
    assert sum(map(size_of, found)) == EXPECTED.total()
    assert sum(map(is_bundle, found)) >= len(found) - 2
    kinds = [{event.outcome for _, event in attempts_in(row)} for row in found]
    assert any("done" in kind and "retried" in kind for kind in kinds)


def test_a_store_of_an_older_version_gets_columns_by_its_migration(app: Dueline) -> None:
    catalog = app.queues.engine.catalog
    catalog.settings("mail")
    assert app.store.commit(PARTITION, (Delete(COLUMNS),))
    older = Dueline(app.url)
    older.queue("mail", history="all")
    run(older)
    before = rows(older)
    assert all(row.body.startswith(b"{") for row in before)  # as an older process reads them
    assert any(map(is_bundle, before))
    assert COLUMNS in older.queues.engine.catalog.upgrade()
    assert COLUMNS in names_of(older.store)
    older.close()
    newer = Dueline(app.url)
    newer.queue("mail", history="all")
    run(newer)
    after = [row for row in rows(newer) if row not in before]
    assert any(row.body.startswith(b"\x01") for row in after)
    assert outcomes(newer) == EXPECTED + EXPECTED
    newer.close()


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
    found = list(attempts(app.store, "mail", 1, everything=True))
    assert {one.limits for one in found} == {"api\x1fhost:one", "api\x1fhost:two"}
    (again,) = (one for one in found if one.again_us)
    assert (again.outcome, again.again_us) == ("retried", again.ended_us + 10_000)


def test_bundles_of_older_versions_end_before_the_limits(app: Dueline) -> None:
    run(app)
    for row in filter(is_bundle, rows(app)):
        older = row._replace(
            body=row.body[:3] + msgspec.msgpack.encode(msgspec.msgpack.decode(row.body[3:])[:18])
        )
        assert [(row_id, one.limits) for row_id, one in attempts_in(older)] == [
            (row_id, "") for row_id, _ in attempts_in(row)
        ]
