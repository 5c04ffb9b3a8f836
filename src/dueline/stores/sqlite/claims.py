"""Claims in SQLite's tables.

Each function runs inside the caller's transaction. Many lanes with one job wanted from each, as
with many tenants, are read by one statement, which is several times faster than one for each lane.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from dueline.core.job import Job, JobId, State
from dueline.core.lane import Lane
from dueline.core.store import Claimed, Lease, Want
from dueline.core.store_capabilities import Prefetched, PrefetchResult
from dueline.stores.row_updates import claimed
from dueline.stores.sqlite import job_rows
from dueline.stores.sqlite.connection import Database, blobs, fetch, first, integers, texts
from dueline.stores.sqlite.job_rows import SELECT_CLAIM
from dueline.stores.sqlite.jobs import number_of

_DUE = f"{SELECT_CLAIM} FROM jobs WHERE lane = ? AND at_us <= ? ORDER BY at_us, id LIMIT ?"
_FIRST_DUE = (
    f"{SELECT_CLAIM} FROM carray(?) AS wanted CROSS JOIN jobs ON jobs.rowid = (SELECT due.rowid"  # noqa: S608
    " FROM jobs AS due WHERE due.lane = wanted.value AND due.at_us <= ?"
    " ORDER BY due.at_us, due.id LIMIT 1)"
)
_LANE = (
    "(SELECT id FROM lanes WHERE queue = ?2 AND shard = ?3 AND bucket = ?4 AND priority = ?5"
    " AND tenant = ?6)"
)
_OF_LANE = (
    f"{SELECT_CLAIM}, (SELECT at_us FROM jobs WHERE lane = {_LANE} AND at_us > ?7"  # noqa: S608
    f" ORDER BY at_us LIMIT 1) FROM jobs WHERE lane = {_LANE} AND at_us <= ?7"
    " ORDER BY at_us, id LIMIT ?8"
)
"""The due rows of a lane, and in each row the `at_us` of the first row that is not due."""
_MARK = (
    "UPDATE jobs SET at_us = ?, fence = fence + 1, token = ?, worker = ?, claimed_us = ?,"
    " crashes = crashes + (state = 2), alone = max(alone, state = 2), state = 1 WHERE rowid"
)
_place_of = itemgetter(slice(4))  # of a Lane: all but its tenant
_later_of = itemgetter(-1)  # of a row of _OF_LANE


def claim(database: Database, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
    """Claim the first due rows, want by want, by one update."""
    if len(wants) == 1:  # as for most claims
        return _claim_from(database, wants[0], limit, lease)
    now_us, lease_us, worker, token = lease
    all_jobs: list[Job] = []
    rowids: list[int] = []
    died: dict[JobId, Job] = {}
    visited: list[Lane] = []
    numbers: dict[Lane, int] = {}
    at_us = now_us + lease_us
    for is_single, same in groupby(wants, key=_is_single):
        at_once = limit if is_single else 1  # one statement for many lanes, or for one
        while part := list(islice(same, min(at_once, limit - len(all_jobs)))):
            lanes = [want.lane for want in part]
            visited += lanes
            numbers |= (known := _numbers_of(database, lanes))
            due = _due(database, part, known, (at_us, now_us), limit - len(all_jobs))
            rowids += map(job_rows.rowid_of, due)
            jobs = job_rows.claimed(due, known, token=token, worker=worker, now_us=now_us)
            if any(map(job_rows.is_special, due)):
                _complete(database, due, jobs, died)
            all_jobs += jobs
    if all_jobs:
        _mark(database, rowids, lease)
    return Claimed(all_jobs, died, _heads(database, visited, numbers))


def _claim_from(database: Database, want: Want, limit: int, lease: Lease) -> Claimed:
    """Claim the first due rows of a lane, by two statements if it has no others that are due."""
    now_us, lease_us, worker, token = lease
    lane, most = want
    most = min(most, limit)
    due = fetch(database, _OF_LANE, (now_us + lease_us, *lane, now_us, most))
    if not due:
        return Claimed([], {}, _heads(database, [lane], _numbers_of(database, [lane])))
    numbers = {lane: job_rows.lane_number_of(due[0])}
    if None in map(job_rows.read_body_of, due):
        due = _with_bodies(database, due)
    jobs = job_rows.claimed(due, numbers, token=token, worker=worker, now_us=now_us)
    died: dict[JobId, Job] = {}
    if any(map(job_rows.is_special, due)):
        _complete(database, due, jobs, died)
    _mark(database, list(map(job_rows.rowid_of, due)), lease)
    if len(due) == most:
        return Claimed(jobs, died, _heads(database, [lane], numbers))
    later_us: int | None = _later_of(due[0])
    ends_us = now_us + lease_us
    return Claimed(jobs, died, {lane: ends_us if later_us is None else min(later_us, ends_us)})


def _mark(database: Database, rowids: Sequence[int], lease: Lease) -> None:
    """Write a claim into its rows."""
    now_us, lease_us, worker, token = lease
    bound = (now_us + lease_us, token, worker, now_us)
    if len(rowids) == 1:  # twice as fast without an array
        database.execute(f"{_MARK} = ?", (*bound, *rowids))
    else:
        all_of_them = f"{_MARK} IN (SELECT value FROM carray(?))"  # noqa: S608
        database.execute(all_of_them, (*bound, integers(rowids)))


def _is_single(want: Want) -> bool:
    return want.most == 1


def _due(
    database: Database,
    wants: Sequence[Want],
    numbers: Mapping[Lane, int],
    times_us: tuple[int, int],
    limit: int,
) -> list[tuple[Any, ...]]:
    """Return the due rows of one lane, or the first one of each of several.

    `times_us` is the end of the lease, and now.
    """
    at_us, now_us = times_us
    if len(wants) == 1:
        lane, most = wants[0]
        rows = fetch(database, _DUE, (at_us, numbers.get(lane), now_us, min(most, limit)))
    elif numbers:
        rows = fetch(database, _FIRST_DUE, (at_us, integers([*numbers.values()]), now_us))
    else:
        rows = []
    return _with_bodies(database, rows) if None in map(job_rows.read_body_of, rows) else rows


def _numbers_of(database: Database, lanes: Sequence[Lane]) -> dict[Lane, int]:
    """Return the numbers of lanes that have one; one statement for many lanes."""
    numbers: dict[Lane, int] = {}
    for place, same in groupby(lanes, key=_place_of):
        run = list(same)
        rows = fetch(
            database,
            "SELECT tenant, id FROM lanes WHERE queue = ? AND shard = ? AND bucket = ?"
            " AND priority = ? AND tenant IN (SELECT value FROM carray(?))",
            (*place, texts([lane.tenant for lane in run])),
        )
        by_tenant = dict(rows)
        numbers |= {lane: by_tenant[lane.tenant] for lane in run if lane.tenant in by_tenant}
    return numbers


def _heads(
    database: Database, lanes: Iterable[Lane], numbers: Mapping[Lane, int]
) -> dict[Lane, int | None]:
    """Return the lowest `at_us` in each lane; None for an empty one."""
    heads: dict[int, int | None] = {}
    if numbers:
        statement = (
            "SELECT value, (SELECT at_us FROM jobs WHERE lane = value ORDER BY at_us LIMIT 1)"
            " FROM carray(?)"
        )
        heads = dict(fetch(database, statement, (integers([*numbers.values()]),)))
    return {lane: heads[numbers[lane]] if lane in numbers else None for lane in lanes}


def _with_bodies(database: Database, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Add long bodies to rows, by one statement for all."""
    ids = [job_rows.read_id_of(row) for row in rows if job_rows.read_body_of(row) is None]
    statement = "SELECT id, body FROM bodies WHERE id IN (SELECT value FROM carray(?))"
    bodies = dict(fetch(database, statement, (blobs(ids),)))
    return [
        row
        if job_rows.read_body_of(row) is not None
        else job_rows.with_body(row, bodies.get(job_rows.read_id_of(row), b""))
        for row in rows
    ]


def _complete(
    database: Database,
    rows: Sequence[Sequence[Any]],
    jobs: list[Job],
    died: dict[JobId, Job],
) -> None:
    """Read all columns of rows that are not new, before the claim.

    Args:
      database: The connection.
      rows: The rows.
      jobs: The jobs made from them, which are completed here.
      died: Receives the jobs whose last claim ended without an outcome.
    """
    special = {
        job_rows.read_id_of(row): place
        for place, row in enumerate(rows)
        if job_rows.is_special(row)
    }
    before = fetch(
        database,
        f"SELECT {job_rows.SELECT} FROM jobs WHERE rowid IN (SELECT value FROM carray(?))",  # noqa: S608
        (integers([job_rows.rowid_of(rows[place]) for place in special.values()]),),
    )
    for row in before:
        place = special[job_rows.id_of(row)]
        job = job_rows.to_job(jobs[place].lane, row)
        was_started = job.state == State.STARTED
        if job.is_claimed():
            died[job.id] = job
        jobs[place] = jobs[place]._replace(
            errors=job.errors,
            crashes=job.crashes + was_started,
            alone=job.alone or was_started,
            outcome=job.outcome,
            error=job.error,
        )


def prefetch(
    database: Database, wants: Sequence[Want], *, limit: int, until_us: int, lease: Lease
) -> PrefetchResult:
    """Claim the first rows that become due soon, want by want, by one update."""
    now_us, lease_us, worker, token = lease
    jobs: list[Prefetched] = []
    numbers: dict[Lane, int | None] = {}
    for lane, most in wants:
        if len(jobs) >= limit:
            break
        numbers[lane] = number = number_of(database, lane)
        due = fetch(
            database,
            f"SELECT {job_rows.SELECT} FROM jobs WHERE lane = ? AND at_us > ? AND at_us <= ?"  # noqa: S608
            " AND state = ? AND outcome = x'' ORDER BY at_us, jobs.id LIMIT ?",
            (number, now_us, until_us, State.WAITING, min(most, limit - len(jobs))),
        )
        unclaimed = (job_rows.to_job(lane, row) for row in due)
        jobs += [Prefetched(claimed(job, lease), job.at_us) for job in unclaimed]
    if jobs:
        database.execute(
            "UPDATE jobs SET at_us = at_us + ?, fence = fence + 1, token = ?, worker = ?,"
            " claimed_us = ?, state = ? WHERE id IN (SELECT value FROM carray(?))",
            (lease_us, token, worker, now_us, State.CLAIMED, blobs([job.id for job, _ in jobs])),
        )
    head = "SELECT at_us FROM jobs WHERE lane = ? ORDER BY at_us LIMIT 1"
    return PrefetchResult(
        jobs, {lane: first(database, head, (number,)) for lane, number in numbers.items()}
    )
