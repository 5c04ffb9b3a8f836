"""Look-up by id, and reading a lane in order, on Cassandra."""

from collections.abc import Sequence
from contextlib import suppress

from dueline.errors import StoreUnavailable
from dueline.job import Job, JobId
from dueline.lane import Lane
from dueline.recall import Key, Visit, key_of
from dueline.store import JobPage
from dueline.stores import cassandra_rows as rows
from dueline.stores.cassandra_rows import Found
from dueline.stores.cassandra_session import Call, CassandraSession
from dueline.stores.cassandra_settle import Verdicts


def find(
    session: CassandraSession, verdicts: Verdicts, ids: Sequence[JobId]
) -> Sequence[Job | None]:
    """Look jobs up by id: all places where the row may be, then those rows."""
    unique = list(dict.fromkeys(ids))
    placed = session.read_many([rows.places(job_id) for job_id in unique])
    calls: list[Call] = []
    owners: list[tuple[JobId, Lane]] = []
    for job_id, places in zip(unique, placed, strict=True):
        for place in places:
            lane, key = Lane(*place[1:6]), (place[6], job_id, place[0])
            calls.append(rows.some(lane, [key]))
            owners.append((job_id, lane))
    best: dict[JobId, Found] = {}
    for (job_id, lane), answer in zip(owners, session.read_many(calls), strict=True):
        for row in answer:
            found = rows.found(lane, row)
            if job_id not in best or found.job.hop > best[job_id].job.hop:
                best[job_id] = found
    stubs = [found for found in best.values() if found.stub]
    with suppress(StoreUnavailable):  # it is shown as it will be, and completed by another
        verdicts.carry(stubs)
    return [_shown(best[job_id]) if job_id in best else None for job_id in ids]


def _shown(found: Found) -> Job:
    return rows.target_of(found)[0] if found.stub else found.job


def scan(
    session: CassandraSession,
    lane: Lane,
    *,
    after: tuple[int, JobId] | None,
    until_us: int | None,
    limit: int,
) -> JobPage:
    """Read a lane in (at, id) order.

    A row's `at_us` is never below its position, so a page is known in its order when the
    reading has come to the position of its last row. Rows that are being carried are not shown.
    """
    until_us = 2**63 - 1 if until_us is None else until_us
    visit = Visit(lane, now_us=until_us, most=limit)
    found: dict[Key, Found] = {}
    while (page := visit.next_page()) is not None:
        read = [rows.found(lane, row) for row in session.read(*rows.whole_page(lane, page))]
        found |= {key_of(one.job): one for one in read}
        visit.take(page, [(key_of(one.job), rows.seen(one.job)) for one in read])
        for key, one in found.items():
            if one.stub or (after is not None and (one.job.at_us, one.job.id) <= after):
                visit.note(key, None)
    due = [found[key].job for key in visit.due(limit + 1)]
    jobs = due[:limit]
    return JobPage(jobs, (jobs[-1].at_us, jobs[-1].id) if len(due) > limit else None)
