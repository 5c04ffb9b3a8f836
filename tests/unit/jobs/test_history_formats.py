"""Rows of a history as they are stored (V2)."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline, Retry
from dueline.core.errors import StoreCorrupt
from dueline.core.pagination import rows_in
from dueline.core.store import Row
from dueline.jobs.history import HISTORY_SUFFIX, attempts
from dueline.jobs.history_batch import attempts_in, is_bundle, row_id_of, size_of

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


def test_bundles_of_the_last_development_version_are_read_until_it_runs_beside_no_more() -> None:
    body = (
        b'{"many":2,"job":"0000000000000000000000000000000100000000000000000000000000000002",'
        b'"task":"count","queue":"mail","tenant":"acme","priority":-7,'
        b'"enqueued_us":"00000000000003e900000000000003ea","due_us":1000,"claimed_us":2000,'
        b'"started_us":3000,"ended_us":"0000000000000fa00000000000000fa1","outcome":"done",'
        b'"error":"","worker":"here:1:abcd","fence":3,'
        b'"digest":["5feceb66ffc86f38","6b86b273ff34fce1"],"limits":""}'
    )
    row = Row("mail!history", 0, 4001, bytes.fromhex("1405e17db34c557189ab53ffc4a2dff0"), body)
    assert (is_bundle(row), size_of(row)) == (True, 2)
    found = attempts_in(row)
    assert [row_id for row_id, _ in found] == [
        row_id_of((number + 1).to_bytes(16), 3, 1001 + number) for number in range(2)
    ]
    assert [(one.enqueued_us, one.ended_us, one.digest) for _, one in found] == [
        (1001, 4000, "5feceb66ffc86f38"),
        (1002, 4001, "6b86b273ff34fce1"),
    ]
    assert {(one.task, one.tenant, one.priority, one.fence) for _, one in found} == {
        ("count", "acme", -7, 3)
    }
    with pytest.raises(StoreCorrupt):
        attempts_in(row._replace(body=body.replace(b'"many":2', b'"many":3')))
