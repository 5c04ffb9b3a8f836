"""Jobs in SQLite's tables.

Each function runs inside the caller's transaction. Sets of rows are one bound array of a single
statement: while other threads run Python, each step of a statement may wait for the interpreter
lock, so one statement for each row is many times slower.
Hot path: the benchmark `default`.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, groupby, islice, repeat
from operator import attrgetter, concat, itemgetter
from typing import Any, Final

from dueline.core.job import UNCLAIMED_TOKEN, Job, State
from dueline.core.lane import Lane, Marks, bucket_of
from dueline.core.store import Drop, Extend, Move, Verdict
from dueline.core.tuples import field
from dueline.stores.sqlite import job_rows
from dueline.stores.sqlite.connection import (
    Database,
    blobs,
    fetch,
    first,
    texts,
)

INLINE_BYTES_MAX: Final = 1024
"""Maximum body size in the table of jobs, in bytes. Longer bodies have their own table, so that
claims do not rewrite them."""

LEAST: Final = -(2**63)
GREATEST: Final = 2**63 - 1

_ROWS: Final = 50  # of one statement
_INSERT = f"{job_rows.INSERT_NEW}{job_rows.NEW_PARAMETERS}"
_INSERT_ROWS = job_rows.INSERT_NEW + ", ".join([job_rows.NEW_PARAMETERS] * _ROWS)
_lane_of, _id_of_job, _hop_of, _body_of = (
    field(Job, name) for name in ("lane", "id", "hop", "body")
)
_tenant_of, _number_of_row, _place_of = field(Lane, "tenant"), itemgetter(0), itemgetter(slice(4))
_token_of, _id_of = attrgetter("job.token"), attrgetter("job.id")  # of a Verdict
_lane_in = attrgetter("job.lane")
_job_of = field(Drop, "job")  # and of Extend and Move
_CLOSED = "coalesce((SELECT closed FROM marks WHERE queue = ?1 AND shard = ?2), -1)"
_LISTED = (  # by this index, or all lanes that are listed would be read
    " FROM lanes INDEXED BY sqlite_autoindex_lanes_1"
    " WHERE queue = ?1 AND shard = ?2 AND bucket = ?3 AND priority = ?4"
    f" AND listing BETWEEN {_CLOSED} + 1 AND max(?5, {_CLOSED} + 1) AND tenant"
)
_CLAIM_MIN = 8  # fewer jobs are deleted by id


def number_of(database: Database, lane: Lane) -> int | None:
    """Return the number of a lane; None if it is not listed and has no rows."""
    number: int | None = first(
        database,
        "SELECT id FROM lanes WHERE queue = ? AND shard = ? AND bucket = ? AND priority = ?"
        " AND tenant = ?",
        lane,
    )
    return number


def marks_of(database: Database, queue: str, shard: int) -> Marks:
    """Return the marks of a (queue, shard); both -1 for none."""
    row = first(
        database, "SELECT swept, closed FROM marks WHERE queue = ? AND shard = ?", (queue, shard)
    )
    return Marks(*row) if row else Marks(-1, -1)


def add(database: Database, jobs: Sequence[Job]) -> None:
    """Insert jobs; a row whose id exists stays as it is."""
    if len(jobs) == 1 and not jobs[0].hop:  # as for most calls
        number = _list_one(database, jobs[0].lane, jobs[0].lane.bucket)
        database.execute(_INSERT, (number, *_put_body(database, jobs[0])))
        return
    lanes = list(map(_lane_of, jobs))
    if is_single := lanes.count(lanes[0]) == len(lanes):  # faster than hashing each lane
        numbers: Iterable[int] = repeat(_list_one(database, lanes[0], lanes[0].bucket))
    else:
        numbers = map(_listed(database, dict.fromkeys(lanes)).__getitem__, lanes)
    values: Iterable[Sequence[object]] = map(job_rows.new_values_of, jobs)
    if max(map(len, map(_body_of, jobs)), default=0) > INLINE_BYTES_MAX:
        values = [_put_body(database, job) for job in jobs]
    rows: Iterable[Sequence[object]] = map(concat, zip(numbers), values)
    if any(map(_hop_of, jobs)):  # a job that was inserted before has values from its claims
        later = map(job_rows.later_values_of, jobs)
        database.executemany(job_rows.INSERT_WHOLE, map(concat, rows, later))
        return
    if not is_single:  # in the order of the index
        rows = sorted(rows, key=_number_of_row)
    rows = iter(rows)
    for _ in range(len(jobs) // _ROWS):
        cells = chain.from_iterable(islice(rows, _ROWS))
        database.execute(_INSERT_ROWS, tuple(cells))
    database.executemany(_INSERT, rows)


def _put_body(database: Database, job: Job) -> tuple[object, ...]:
    """Insert a long body into its own table; return the job's values without it."""
    if len(job.body) <= INLINE_BYTES_MAX:
        return job_rows.new_values_of(job)
    database.execute("INSERT OR IGNORE INTO bodies (id, body) VALUES (?, ?)", (job.id, job.body))
    return job_rows.new_values_without_body(job)


def _listed(database: Database, lanes: Collection[Lane]) -> dict[Lane, int]:
    """List lanes, each under its bucket; return their numbers."""
    numbers: dict[Lane, int] = {}
    for place, same in groupby(sorted(lanes), key=_place_of):
        part = list(same)
        by_tenant = _list(database, place, list(map(_tenant_of, part)), place[2])
        numbers.update(zip(part, map(by_tenant.__getitem__, map(_tenant_of, part)), strict=True))
    return numbers


def _list(
    database: Database, place: Sequence[object], tenants: Sequence[str], listing: int
) -> dict[str, int]:
    """List lanes under an open bucket, unless they are listed earlier; return their numbers.

    A lane that is listed under a closed bucket moves to the first open one: a worker that read the
    closed buckets and found the lane empty does not read them again. Lanes that stay as they are
    are only read: each page that is written costs as much as the job's own.

    Args:
      database: The connection.
      place: The fields of the lanes before their tenant, which they share.
      tenants: Their tenants.
      listing: The bucket.
    """
    bound = (*place, listing, texts(tenants))
    rows = fetch(database, f"SELECT tenant, id{_LISTED} IN carray(?6)", bound)
    if len(rows) == len(tenants):
        return dict(rows)
    numbers = dict(rows)
    first_open = marks_of(database, str(place[0]), int(str(place[1]))).closed + 1
    others = [tenant for tenant in tenants if tenant not in numbers]
    listed = fetch(
        database,
        "INSERT INTO lanes (queue, shard, bucket, priority, tenant, listing)"
        " SELECT ?, ?, ?, ?, value, ? FROM carray(?) WHERE true ON CONFLICT DO UPDATE"
        " SET listing = max(?, min(coalesce(listing, excluded.listing), excluded.listing))"
        " RETURNING tenant, id",
        (*place, max(listing, first_open), texts(others), first_open),
    )
    return numbers | dict(listed)


def settle(database: Database, verdicts: Sequence[Verdict]) -> list[bool]:
    """Apply outcomes in order; adjacent ones of one kind and token are one statement.

    Returns:
      For each whether it was applied.
    """
    held: list[bool] = []
    key = _token_of if set(map(type, verdicts)) == {Drop} else _set_of
    for _, run in groupby(verdicts, key):
        part = list(run)
        held += _SETTLERS[type(part[0])](database, part)
    return held


def _set_of(verdict: Verdict) -> tuple[type[Verdict], *tuple[object, ...]]:
    if isinstance(verdict, Drop):
        return Drop, verdict.job.token
    if isinstance(verdict, Extend):
        return Extend, verdict.job.token, verdict.at_us, verdict.started
    return Move, verdict.job.token


def _together(
    database: Database, verdicts: Sequence[Any], statement: str, bound: tuple[Any, ...]
) -> list[bool]:
    """Run a statement on all rows at once; if one row does not match, on each row.

    All new rows have the same token, dead-letter jobs too, so those also match by lane.
    """
    token = verdicts[0].job.token
    if token != UNCLAIMED_TOKEN:
        return _on_all(database, verdicts, statement, (*bound, token))
    held = []
    for lane, run in groupby(verdicts, _lane_in):
        new = (*bound, token, number_of(database, lane))
        held += _on_all(
            database, list(run), statement.replace("token = ?", "token = ? AND +lane = ?"), new
        )
    return held


def _on_all(
    database: Database, verdicts: Sequence[Any], statement: str, bound: tuple[Any, ...]
) -> list[bool]:
    ids = list(map(_id_of, verdicts))
    if len(ids) > 1:
        database.execute("SAVEPOINT several")
        database.execute(statement, (*bound, blobs(ids)))
        if database.changes() == len(ids):
            database.execute("RELEASE several")
            return [True] * len(ids)
        database.execute("ROLLBACK TO several")
        database.execute("RELEASE several")
    held = []
    statement = statement.replace("IN (SELECT value FROM carray(?))", "= ?")
    for job_id in ids:
        database.execute(statement, (*bound, job_id))
        held.append(database.changes() == 1)
    return held


def _drop(database: Database, verdicts: list[Drop]) -> list[bool]:
    jobs = list(map(_job_of, verdicts))
    held = _drop_claim(database, jobs)
    if held is None:
        held = _together(
            database,
            verdicts,
            "DELETE FROM jobs WHERE token = ? AND id IN (SELECT value FROM carray(?))",
            (),
        )
    if max(map(len, map(_body_of, jobs))) > INLINE_BYTES_MAX:
        for job, sure in zip(jobs, held, strict=True):
            if len(job.body) > INLINE_BYTES_MAX and sure:
                database.execute("DELETE FROM bodies WHERE id = ?", (job.id,))
    return held


def _drop_claim(database: Database, jobs: Sequence[Job]) -> list[bool] | None:
    """Delete the jobs of one claim by one range, if the range has no other rows.

    Faster than deleting by id.

    Returns:
      For each job whether it was deleted; None if the range does not fit: nothing was deleted.
    """
    first_job = jobs[0]
    ids = set(map(_id_of_job, jobs))
    if len(ids) < max(_CLAIM_MIN, len(jobs)):
        return None
    place = (number_of(database, first_job.lane), first_job.at_us)
    there = "SELECT id FROM jobs WHERE lane = ? AND at_us = ? ORDER BY id"
    all_there = f"SELECT CAST(group_concat(id, '') AS BLOB) FROM ({there})"  # noqa: S608
    if first(database, all_there, place) != b"".join(sorted(ids)):
        return None
    statement = "DELETE FROM jobs WHERE lane = ? AND at_us = ? AND token = ?"
    database.execute(statement, (*place, first_job.token))
    if database.changes() == len(jobs):
        return [True] * len(jobs)
    left = {job_id for (job_id,) in fetch(database, there, place)}
    return [job.id not in left for job in jobs]


def _extend(database: Database, verdicts: list[Extend]) -> list[bool]:
    least = State.STARTED if verdicts[0].started else State.CLAIMED
    return _together(
        database,
        verdicts,
        "UPDATE jobs SET at_us = max(at_us, ?), state = max(state, ?)"
        " WHERE token = ? AND id IN (SELECT value FROM carray(?))",
        (verdicts[0].at_us, least),
    )


def _move(database: Database, verdicts: list[Move]) -> list[bool]:
    return [_move_one(database, verdict) for verdict in verdicts]


def _move_one(database: Database, verdict: Move) -> bool:
    job = verdict.job
    database.execute(
        f"UPDATE jobs SET {job_rows.SET_MOVED}, worker = iif(?, worker, ''),"  # noqa: S608
        " opts = coalesce(?, opts), due_us = coalesce(?, due_us)"
        " WHERE id = ? AND token = ? AND +lane = coalesce(?, lane)",
        (
            *job_rows.moved_values_of(verdict),
            verdict.state in (State.CLAIMED, State.STARTED),
            verdict.opts,
            verdict.due_us,
            job.id,
            job.token,
            _lane_that_counts(database, job),
        ),
    )
    if database.changes() == 0:
        return False
    if verdict.to is not None:
        database.execute(
            "UPDATE jobs SET lane = ?, pos_us = at_us, hop = hop + 1 WHERE id = ?",
            (_list_one(database, verdict.to, verdict.listing), job.id),
        )
    else:  # in any case: the row's `at` may have been extended since it was read
        _list_one(database, job.lane, verdict.listing)
    return True


def _list_one(database: Database, lane: Lane, listing: int) -> int:
    place = lane[:4]
    bound = (*place, listing, lane.tenant)
    number: int | None = database.execute(f"SELECT id{_LISTED} = ?6", bound).get
    return number or _list(database, place, [lane.tenant], listing)[lane.tenant]


def _lane_that_counts(database: Database, job: Job) -> int | None:
    """Return the lane in which a new row must be, -1 if it does not exist; None for other rows."""
    if job.token != UNCLAIMED_TOKEN:
        return None
    number = number_of(database, job.lane)
    return -1 if number is None else number


_SETTLERS: Final[dict[type[Verdict], Callable[[Database, list[Any]], list[bool]]]] = {
    Drop: _drop,
    Extend: _extend,
    Move: _move,
}


def sweep(database: Database, queue: str, shard: int, now_us: int, width_us: int) -> Marks:
    """Unlist empty lanes of closed buckets, list future ones later, raise both marks.

    The order of rules S1 to S4 matters only on stores without transactions.
    """
    swept, closed = marks_of(database, queue, shard)
    past = fetch(
        database,
        "SELECT id, (SELECT min(at_us) FROM jobs WHERE lane = lanes.id) FROM lanes"
        " WHERE queue = ? AND shard = ? AND listing <= ?",
        (queue, shard, closed),
    )
    kept = False
    for number, head_us in past:
        if head_us is None:
            database.execute("DELETE FROM lanes WHERE id = ?", (number,))
        elif head_us > now_us:
            listing = max(bucket_of(head_us, width_us), closed + 1)
            database.execute("UPDATE lanes SET listing = ? WHERE id = ?", (listing, number))
        else:
            kept = True
    if kept:
        least = first(
            database,
            "SELECT min(listing) FROM lanes WHERE queue = ? AND shard = ? AND listing <= ?",
            (queue, shard, closed),
        )
    marks = Marks(
        max(swept, least - 1 if kept else closed), max(closed, bucket_of(now_us, width_us) - 1)
    )
    database.execute(
        "INSERT INTO marks (queue, shard, swept, closed) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET swept = excluded.swept, closed = excluded.closed",
        (queue, shard, *marks),
    )
    return marks
