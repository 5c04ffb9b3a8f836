"""Jobs in PostgreSQL's tables: inserts, outcomes and lookups, each by few statements.

Hot path: the benchmark `postgres-default`.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, TypeVar

from dueline.core.job import MOVED, UNCLAIMED_TOKEN, Job, JobId, State
from dueline.core.lane import Lane
from dueline.core.store import Drop, Extend, JobPage, Move, Place, Verdict
from dueline.core.tuples import field
from dueline.stores.postgres import job_rows, lanes
from dueline.stores.postgres.arrays import columns_of
from dueline.stores.postgres.database import GREATEST, LEAST, Database
from dueline.stores.postgres.job_rows import SELECT, TYPES

LANES_MAX: Final = 4
"""Maximum number of lanes into which jobs are inserted by one statement."""

V = TypeVar("V", bound=Verdict)

_lane_of, _hop_of = field(Job, "lane"), field(Job, "hop")
_id_of, _token_of = field(Job, "id"), field(Job, "token")
_job_of = attrgetter("job")
_moved_values = field(Move, *MOVED)

_KEY_NAMES: Final = "id, token, queue, shard, bucket, priority, tenant"
_KEY: Final = (
    "%s::bytea[], %s::bytea[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[]"
)
_LANE: Final = (
    "(t.queue IS NULL OR lane = (SELECT l.id FROM @lanes l WHERE l.queue = t.queue"
    " AND l.shard = t.shard AND l.bucket = t.bucket AND l.priority = t.priority"
    " AND l.tenant = t.tenant))"
)


def _held(values: str = "", names: str = "") -> str:
    """Return the rows of ids and tokens, given as arrays, that it locks in their order.

    The order by id, which no other index has, decides for the primary key. By the statistics of a
    table whose rows were deleted beside an old snapshot, reading all of `jobs_by_place` would cost
    as little.

    Args:
      values: Further arrays.
      names: Their names.
    """
    return (
        f"held AS MATERIALIZED (SELECT t.*, j.tid FROM unnest({_KEY}{values})"
        f" AS t ({_KEY_NAMES}{names}) CROSS JOIN LATERAL (SELECT ctid AS tid FROM @jobs"
        f" WHERE id >= t.id AND id <= t.id AND token = t.token AND {_LANE}"
        " ORDER BY id LIMIT 1 FOR UPDATE) AS j)"
    )


_DROP: Final = (
    f"WITH {_held()} DELETE FROM @jobs AS jobs USING held AS t WHERE jobs.ctid = t.tid"
    " RETURNING t.id"
)
_DROP_CLAIM: Final = (
    "DELETE FROM @jobs WHERE ctid = ANY(ARRAY(SELECT ctid FROM @jobs"
    " WHERE id = ANY(%s::bytea[]) AND token = %s ORDER BY id)) RETURNING id"
)
"""Not for a row that is changed meanwhile."""
_EXTEND: Final = (
    f"WITH {_held(', %s::bigint[], %s::bigint[]', ', at_us, least')} UPDATE @jobs AS jobs"
    " SET at_us = greatest(jobs.at_us, t.at_us), state = greatest(jobs.state, t.least)"
    " FROM held AS t WHERE jobs.ctid = t.tid RETURNING t.id"
)
_HOLD: Final = f"WITH {_held()} SELECT id FROM held"
_STATE: Final = MOVED.index("state")
_MOVED: Final = {f"new_{name}": TYPES[name] for name in MOVED}
_MOVES: Final = _held(
    "".join(f", %s::{kind}[]" for kind in [*_MOVED.values(), "bytea", "bigint", "bigint"]),
    f", {', '.join(_MOVED)}, opts, due_us, to_lane",
)
_MOVE: Final = (
    f"WITH {_MOVES} UPDATE @jobs AS jobs SET"
    f" {', '.join(f'{name} = t.new_{name}' for name in MOVED)},"
    " worker = CASE WHEN t.new_state IN (1, 2) THEN jobs.worker ELSE '' END,"
    " opts = coalesce(t.opts, jobs.opts), due_us = coalesce(t.due_us, jobs.due_us),"
    " lane = coalesce(t.to_lane, jobs.lane),"
    " pos_us = CASE WHEN t.new_outcome = '' THEN t.new_at_us"
    " ELSE least(jobs.pos_us, t.new_at_us) END,"
    " hop = jobs.hop + CASE WHEN t.to_lane IS NOT NULL"
    " OR (t.new_outcome = '' AND t.new_at_us <> jobs.pos_us) THEN 1 ELSE 0 END"
    " FROM held AS t WHERE jobs.ctid = t.tid RETURNING t.id"
)
_FIND: Final = (
    f"SELECT queue, shard, bucket, priority, tenant, {SELECT} FROM (SELECT * FROM @jobs"
    " WHERE id = ANY(%s::bytea[]) ORDER BY id OFFSET 0) AS jobs"
    " JOIN @lanes AS lanes ON lanes.id = jobs.lane"
)


def add(database: Database, jobs: Sequence[Job], *, are_new: bool = False) -> None:
    """Insert jobs and list their lanes; a row whose id exists stays as it is.

    Jobs of few lanes, which most often are listed, are inserted by the statement that holds these:
    it joins lanes and jobs in a loop.

    Args:
      database: The connection, in a transaction.
      jobs: The jobs.
      are_new: The transaction may fail with UniqueViolation, if an id exists: that costs less.
    """
    wanted = {lane: lane.bucket for lane in set(map(_lane_of, jobs))}
    if len(wanted) <= LANES_MAX and not any(map(_hop_of, jobs)):
        row = database.first(*insert_held(wanted, jobs, are_new=are_new))
        if row is not None and row[0] == len(wanted):
            return
    numbers = lanes.hold(database, wanted)
    database.execute(*job_rows.insert_of(jobs, [numbers[job.lane] for job in jobs]))


def insert_held(
    wanted: Mapping[Lane, int], jobs: Sequence[Job], *, are_new: bool
) -> tuple[str, list[Any]]:
    """Return a statement that inserts jobs into those of their lanes that are listed.

    It returns how many are, and the number of its transaction.
    """
    listed = sorted(wanted)
    hold: str = lanes.HOLD
    held: Sequence[object] = lanes.arrays_of(listed, wanted)
    if len(listed) == 1:
        hold, held = lanes.HOLD_ONE, [*listed[0], listed[0].bucket]
    return job_rows.insert_held(hold, held, listed, jobs, are_new=are_new)


def settle(database: Database, verdicts: Sequence[Verdict]) -> list[bool]:
    """Apply outcomes; those of one kind are one statement.

    Returns:
      For each whether it was applied.
    """
    ids = list(map(_id_of, map(_job_of, verdicts)))
    if len(set(ids)) < len(ids):  # in their order
        return [held for verdict in verdicts for held in _settle(database, [verdict])]
    return _settle(database, verdicts)


def _settle(database: Database, verdicts: Sequence[Verdict]) -> list[bool]:
    held: set[bytes] = set()
    kinds = set(map(type, verdicts))
    for kind, call in _SETTLERS.items():
        left = [verdict for verdict in verdicts if type(verdict) is kind] if kind in kinds else []
        # A row that another transaction changes meanwhile is locked by the first statement, which
        # does not see the change. The second one does.
        for _ in range(2):
            if left:
                held.update(row[0] for row in call(database, left))
                left = [verdict for verdict in left if verdict.job.id not in held]
    return list(map(held.__contains__, map(_id_of, map(_job_of, verdicts))))


def _in_order(verdicts: Sequence[V]) -> list[V]:
    """Return them in the order in which all transactions lock rows."""
    return sorted(verdicts, key=lambda change: (change.job.lane, change.job.pos_us, change.job.id))


def _key_of(verdicts: Sequence[Verdict]) -> list[list[object]]:
    """Return ids and tokens, and the lanes of new rows, which all have the same token."""
    jobs = [verdict.job for verdict in verdicts]
    places = [job.lane if job.token == UNCLAIMED_TOKEN else (None,) * 5 for job in jobs]
    return [[job.id for job in jobs], [job.token for job in jobs], *columns_of(places)]


def _drop(database: Database, drops: Sequence[Drop]) -> list[tuple[Any, ...]]:
    jobs = list(map(_job_of, drops))
    token = jobs[0].token
    if token == UNCLAIMED_TOKEN or len(set(map(_token_of, jobs))) > 1:
        return _drop_locked(database, drops)
    dropped = database.fetch(_DROP_CLAIM, (list(map(_id_of, jobs)), token))
    if len(dropped) == len(drops):
        return dropped
    ids = {row[0] for row in dropped}
    return dropped + _drop_locked(database, [drop for drop in drops if drop.job.id not in ids])


def _drop_locked(database: Database, drops: Sequence[Drop]) -> list[tuple[Any, ...]]:
    return database.fetch(_DROP, _key_of(_in_order(drops)))


def _extend(database: Database, extends: Sequence[Extend]) -> list[tuple[Any, ...]]:
    extends = _in_order(extends)
    least = [int(State.STARTED if extend.started else State.CLAIMED) for extend in extends]
    return database.fetch(_EXTEND, [*_key_of(extends), [extend.at_us for extend in extends], least])


def _move(database: Database, moves: Sequence[Move]) -> list[tuple[Any, ...]]:
    """Move rows; list the lanes of those that have their tokens, and of no others."""
    moves = _in_order(moves)
    held = {row[0] for row in database.fetch(_HOLD, _key_of(moves))}
    moves = [move for move in moves if move.job.id in held]
    if not moves:
        return []
    wanted: dict[Lane, int] = {}
    for move in moves:  # in any case: the row's `at` may have been extended since it was read
        lane = move.to or move.job.lane
        wanted[lane] = min(wanted.get(lane, GREATEST), move.listing)
    numbers = lanes.hold(database, wanted)
    values = [
        (
            *_moved_values(move), move.opts, move.due_us,
            numbers[move.to] if move.to is not None else None,
        )
        for move in moves
    ]  # fmt: skip
    columns = columns_of(values)
    columns[_STATE] = [int(move.state) for move in moves]
    return database.fetch(_MOVE, [*_key_of(moves), *columns])


_SETTLERS: Final[dict[type[Verdict], Callable[..., list[tuple[Any, ...]]]]] = {
    Drop: _drop,
    Extend: _extend,
    Move: _move,
}


def find(database: Database, ids: Sequence[JobId]) -> list[Job | None]:
    """Return jobs by id."""
    rows = database.fetch(_FIND, (list(ids),))
    by_id = {job.id: job for row in rows for job in job_rows.jobs_of(Lane(*row[:5]), [row[5:]])}
    return [by_id.get(job_id) for job_id in ids]


def scan(
    database: Database,
    lane: Lane,
    *,
    after: tuple[int, JobId] | None,
    until_us: int | None,
    limit: int,
    skip: int = 0,
) -> JobPage:
    """Read a lane in (at, id) order.

    The index has the order of positions, and no row is due before its position. The first
    `skip + limit` rows in that order that match, so, are a bound for the times of the page.
    """
    number = lanes.number_of(database, lane)
    if number is None:
        return JobPage((), None)
    past = after or (LEAST, b"")
    until = GREATEST if until_us is None else until_us
    rows = database.fetch(
        "WITH waiting AS MATERIALIZED (SELECT at_us FROM @jobs WHERE lane = %s AND pos_us >= %s"
        " AND pos_us <= %s AND at_us = pos_us AND (at_us, id) > (%s, %s) ORDER BY pos_us, id"
        " LIMIT %s), bound AS MATERIALIZED (SELECT CASE WHEN count(*) < %s THEN %s"
        " ELSE max(at_us) END AS us FROM waiting)"
        f" SELECT {SELECT} FROM @jobs AS jobs WHERE lane = %s"
        " AND pos_us <= (SELECT us FROM bound) AND at_us <= (SELECT us FROM bound)"
        " AND (at_us, id) > (%s, %s) ORDER BY at_us, id LIMIT %s OFFSET %s",
        (
            number,
            past[0],
            until,
            *past,
            skip + limit,
            skip + limit,
            until,
            number,
            *past,
            limit,
            skip,
        ),
    )
    jobs = job_rows.jobs_of(lane, rows)
    more = len(jobs) == limit
    return JobPage(jobs, (jobs[-1].at_us, jobs[-1].id) if more else None)


def walk(
    database: Database,
    lane: Lane,
    *,
    after: Place | None,
    until: Place | None,
    limit: int,
    skip: int = 0,
) -> JobPage:
    """Read a lane in the order of positions, which is that of the index."""
    number = lanes.number_of(database, lane)
    if number is None:
        return JobPage((), None)
    rows = database.fetch(
        f"SELECT {SELECT} FROM @jobs AS jobs WHERE lane = %s AND (pos_us, id) > (%s, %s)"
        " AND (pos_us, id) <= (%s, %s) ORDER BY pos_us, id LIMIT %s OFFSET %s",
        (number, *(after or (LEAST, b"")), *(until or (GREATEST, b"")), limit, skip),
    )
    jobs = job_rows.jobs_of(lane, rows)
    more = len(jobs) == limit
    return JobPage(jobs, (jobs[-1].pos_us, jobs[-1].id) if more else None)
