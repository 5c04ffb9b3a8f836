"""Statements that read and write jobs as rows of Cassandra's tables.

Hot path: the benchmark `cassandra-default`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import pack, unpack
from dueline.core.errors import StoreUnavailable
from dueline.core.ids import created_us
from dueline.core.job import MOVED, Job, JobId, State
from dueline.core.lane import Lane
from dueline.core.store import Extend, Move
from dueline.core.tuples import field
from dueline.stores.cassandra.answers import Rows
from dueline.stores.cassandra.session import Call
from dueline.stores.cursor_cache import END, Key, Page, RowVersion, key_of

BATCH_ROWS_MAX: Final = 512
BATCH_BYTES_MAX: Final = 1024 * 1024

SHARED_PARTITIONS_MAX: Final = 8
SHARED_ROWS_MAX: Final = 32
SHARED_BYTES_MAX: Final = 3072
"""Maximum of a batch of several partitions: above 10, or 5 KiB, servers log a warning."""

# Columns have the names of the fields of Job and Lane; `token` is a reserved word of CQL.
_RENAMED: Final = {"token": "claim_token"}
_KEY: Final = ("pos_us", "id", "hop")
_CELLS: Final = Job._fields[1:]  # without the lane
_NEW: Final = (*_CELLS[: _CELLS.index("fence") + 1], "token", "errors", "crashes", "state")
_LATER: Final = tuple(name for name in _CELLS if name not in _NEW)
_FROM_AT: Final = slice(Job._fields.index("at_us"), None)
"""The fields of a Job that a stub stores."""

_UNSET: Final = [(_CELLS.index(name), value) for name, value in Job._field_defaults.items()]
"""Values of columns that may be null, with their places."""

_new_values, _later_values = field(Job, *_NEW[:-1]), field(Job, *_LATER)
_moved_values = field(Move, *MOVED)
_kept_by_end = field(Job, "errors", "crashes", "alone", "error")
_kept_values = field(Job, *_CELLS[_CELLS.index("hop") + 1 : _CELLS.index("at_us")])


def _columns(*names: str) -> str:
    return ", ".join(_RENAMED.get(name, name) for name in names)


_NEW_COLUMNS: Final = _columns(*Lane._fields, *_NEW)
_ALL: Final = f"{_NEW_COLUMNS}, {_columns(*_LATER)}"
_READ: Final = f"{_columns(*_CELLS)}, moved_to"
_LANE: Final = "queue = ? AND shard = ? AND bucket = ? AND priority = ? AND tenant = ?"
_ROW: Final = f"{_LANE} AND pos_us = ? AND id = ? AND hop = ?"


def _insert(columns: str) -> str:
    parameters = ", ".join("?" for _ in columns.split(","))
    return f"INSERT INTO {{keyspace}}.jobs ({columns}) VALUES ({parameters})"


# A statement with fewer columns writes fewer cells: most inserts need only the first.
# Unconditional, at one timestamp (rule U3); only conditional writes change the cells (rule U4).
_INSERT_NEW: Final = f"{_insert(_NEW_COLUMNS)} USING TIMESTAMP 1"
_INSERT_WHOLE: Final = f"{_insert(_ALL)} USING TIMESTAMP 1"
_HOP: Final = _insert(_ALL)
_INDEX: Final = (
    "INSERT INTO {keyspace}.ids (part, id, hop, queue, shard, bucket, priority, tenant, pos_us)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP 1 AND TTL ?"
)
_PLACES: Final = (
    "SELECT hop, queue, shard, bucket, priority, tenant, pos_us FROM {keyspace}.ids"
    " WHERE part = ? AND id = ?"
)
_SOME: Final = f"SELECT {_READ} FROM {{keyspace}}.jobs WHERE {_LANE} AND (pos_us, id, hop) IN ?"
_PAST: Final = f"{_LANE} AND (pos_us, id, hop) > (?, ?, ?)"
_UNTIL: Final = f"{_PAST} AND (pos_us, id, hop) <= (?, ?, ?)"
_SEEN: Final = _columns(*_KEY, "at_us", "token")
_WHOLE_PAGE: Final = f"SELECT {_READ} FROM {{keyspace}}.jobs WHERE {_PAST} LIMIT ?"
_WHOLE_UNTIL: Final = f"SELECT {_READ} FROM {{keyspace}}.jobs WHERE {_UNTIL} LIMIT ?"
_THIN_PAGE: Final = f"SELECT {_SEEN} FROM {{keyspace}}.jobs WHERE {_PAST} LIMIT ?"
_THIN_UNTIL: Final = f"SELECT {_SEEN} FROM {{keyspace}}.jobs WHERE {_UNTIL} LIMIT ?"
# Of several partitions: their columns are compared, in place of a token.
_LANES: Final = "queue = ? AND shard IN ? AND bucket = ? AND priority IN ? AND tenant = ?"
_WHOLE_EACH: Final = (
    f"SELECT {_columns(*Lane._fields)}, {_READ} FROM {{keyspace}}.jobs"
    f" WHERE {_LANES}{_UNTIL.removeprefix(_LANE)}"
)
_EACH: Final = " PER PARTITION LIMIT ?"
_DUE_BETWEEN: Final = " AND at_us >= ? AND at_us <= ?"
# Filters within one partition: the server reads it, and returns few of its rows.
_THIN_BETWEEN: Final = (
    f"SELECT {_SEEN} FROM {{keyspace}}.jobs WHERE {_UNTIL}{_DUE_BETWEEN} LIMIT ? ALLOW FILTERING"
)
# The state is compared too: an extension may set it and leave `at_us` as it is.
_SET_CLAIM: Final = (
    "UPDATE {keyspace}.jobs SET at_us = ?, fence = ?, claim_token = ?, worker = ?, claimed_us = ?,"
    " state = ?"
)
# Tokens are compared for equality, and no condition with null (rule P4).
_CLAIM_IF: Final = f" WHERE {_ROW} IF claim_token = ? AND at_us = ? AND state = ?"
_CLAIM: Final = f"{_SET_CLAIM}{_CLAIM_IF}"
_CLAIM_AFTER_CRASH: Final = f"{_SET_CLAIM}, crashes = ?, alone = ?{_CLAIM_IF}"
_EXTEND: Final = f"UPDATE {{keyspace}}.jobs SET at_us = ? WHERE {_ROW} IF claim_token = ?"
_EXTEND_STARTED: Final = (
    f"UPDATE {{keyspace}}.jobs SET at_us = ?, state = ? WHERE {_ROW} IF claim_token = ?"
)
_MOVE: Final = (
    f"UPDATE {{keyspace}}.jobs SET {', '.join(f'{_columns(name)} = ?' for name in MOVED)}"
    f" WHERE {_ROW} IF claim_token = ?"
)
_DECIDE: Final = (
    "UPDATE {keyspace}.jobs SET at_us = ?, claim_token = ?, state = ?, outcome = ?"
    f" WHERE {_ROW} IF claim_token = ?"
)
_STUB: Final = (
    f"UPDATE {{keyspace}}.jobs SET moved_to = ?, claim_token = ? WHERE {_ROW} IF claim_token = ?"
)
_DROP: Final = f"DELETE FROM {{keyspace}}.jobs WHERE {_ROW} IF claim_token = ?"
_NOT_LATER: Final = " AND at_us <= ?"
# A decided row only goes. At the end of time, so that no write of another claim outlasts it.
_ERASE: Final = f"DELETE FROM {{keyspace}}.jobs USING TIMESTAMP {2**62} WHERE {_ROW}"

TOKEN_MIN: Final = -(2**63)
TOKEN_MAX: Final = 2**63 - 1

_INDEX_KEPT_US: Final = 30 * DAY_US
_INDEX_TTL_US_MAX: Final = 3 * 365 * DAY_US  # servers refuse expiries past 2038
_MINUTE_US: Final = 60 * SECOND_US
_SLICES: Final = 4
_UUID_TIME_ORDERED: Final = 7

Item = TypeVar("Item")


class Found(NamedTuple):
    """A row that was read. stub: Its future row, while it moves to another lane; else empty."""

    job: Job
    stub: bytes


def place_of(job: Job) -> tuple[object, ...]:
    """Return the values of a row's lane and key columns."""
    return (*job.lane, job.pos_us, job.id, job.hop)


# Inserts


def insert(job: Job) -> Call:
    """Insert a new row; a job that was claimed before, such as a dead-letter job, in full."""
    was_claimed = job.worker or job.claimed_us or job.alone or job.outcome or job.error
    return insert_whole(job) if was_claimed else (_INSERT_NEW, _new(job))


def _new(job: Job) -> tuple[object, ...]:
    return (*job.lane, *_new_values(job), int(job.state))


def _whole(job: Job) -> tuple[object, ...]:
    return (*_new(job), *_later_values(job))


def insert_whole(job: Job) -> Call:
    """Insert a row with all columns."""
    return (_INSERT_WHOLE, _whole(job))


def index(job: Job) -> Call:
    """Insert the place of a job's row; it expires a month after the job is due."""
    since_us = max(job.enqueued_us, job.claimed_us)
    rest_us = max(job.due_us, job.at_us, job.pos_us, since_us) - since_us + _INDEX_KEPT_US
    ttl_s = 0 if rest_us > _INDEX_TTL_US_MAX else rest_us // SECOND_US
    return (_INDEX, (part_of(job.id), job.id, job.hop, *job.lane, job.pos_us, ttl_s))


def part_of(job_id: JobId) -> bytes:
    """Return the index partition of an id: a quarter of its minute, or the id if it has no time."""
    if job_id[6] >> 4 != _UUID_TIME_ORDERED:
        return job_id
    return (created_us(job_id) // _MINUTE_US).to_bytes(6) + bytes([job_id[-1] % _SLICES])


def chunks(
    items: Sequence[Item], bytes_of: Callable[[Item], int] | None = None
) -> Iterator[list[Item]]:
    """Split rows of one partition into batches within BATCH_ROWS_MAX and BATCH_BYTES_MAX.

    Args:
      items: The rows.
      bytes_of: Returns the size of what may be large in a row; None if nothing is.
    """
    if bytes_of is None:
        for start in range(0, len(items), BATCH_ROWS_MAX):
            yield list(items[start : start + BATCH_ROWS_MAX])
        return
    batch: list[Item] = []
    size = 0
    for item in items:
        more = bytes_of(item)
        if batch and (len(batch) == BATCH_ROWS_MAX or size + more > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += more
    if batch:
        yield batch


def insert_batches(
    jobs: Sequence[Job], write: Callable[[Job], Call]
) -> Iterator[tuple[list[Job], list[Call]]]:
    """Split new jobs of one lane into batches, each with its statements."""
    for batch in chunks(jobs, _body_bytes_of):
        yield batch, list(map(write, batch))


def _body_bytes_of(job: Job) -> int:
    return len(job.body)


def together(batches: Sequence[Sequence[Call]]) -> Iterator[slice]:
    """Yield which batches, each of one partition, may be sent as one: a few small ones."""
    start, size = 0, 0
    for place, calls in enumerate(batches):
        more = SHARED_BYTES_MAX
        if len(batches) > 1 and len(calls) <= SHARED_ROWS_MAX:
            more = sum(map(_bytes_in, calls))
        if place > start and (
            size + more > SHARED_BYTES_MAX or place - start == SHARED_PARTITIONS_MAX
        ):
            yield slice(start, place)
            start, size = place, 0
        size += more
    if batches:
        yield slice(start, len(batches))


def _bytes_in(call: Call) -> int:
    return sum(len(cell) if isinstance(cell, (bytes, str)) else 8 for cell in call[1])


# Reads


def whole_page(lane: Lane, page: Page, *, until: Key = END) -> Call:
    """Read whole rows in the order of keys, up to and including `until`."""
    if until == END:
        return (_WHOLE_PAGE, (*lane, *page.after, page.limit))
    return (_WHOLE_UNTIL, (*lane, *page.after, *until, page.limit))


def whole_each(
    lanes: Sequence[Lane], limit: int, after: Key, until: Key, ats_us: tuple[int, int] | None
) -> Call:
    """Read whole rows of each of some lanes, which have one queue, bucket and tenant.

    The answer has rows of other lanes, too: of all these shards with all these priorities.
    """
    shards, priorities = {lane.shard for lane in lanes}, {lane.priority for lane in lanes}
    queue, _, bucket, _, tenant = lanes[0]
    values = (queue, list(shards), bucket, list(priorities), tenant, *after, *until)
    if ats_us is None:
        return (f"{_WHOLE_EACH}{_EACH}", (*values, limit))
    return (f"{_WHOLE_EACH}{_DUE_BETWEEN}{_EACH} ALLOW FILTERING", (*values, *ats_us, limit))


def found_each(lanes: Sequence[Lane], rows: Rows) -> dict[Lane, list[Found]]:
    """Return the rows of each lane in the answer to `whole_each`."""
    width = len(Lane._fields)
    shards, priorities = {lane.shard for lane in lanes}, {lane.priority for lane in lanes}
    read: dict[Lane, list[Found]] = {lane: [] for lane in lanes}
    for key, group in groupby(rows, key=itemgetter(slice(width))):
        lane = Lane(*key)
        if lane in read:
            read[lane] += [found(lane, row[width:]) for row in group]
        elif (
            lane != lanes[0]._replace(shard=lane.shard, priority=lane.priority)
            or lane.shard not in shards
            or lane.priority not in priorities
        ):
            raise StoreUnavailable("A read of lanes was answered with rows of another partition.")
    return read


def some(lane: Lane, keys: Sequence[Key]) -> Call:
    """Read whole rows by their keys."""
    return (_SOME, (*lane, list(keys)))


def places(job_id: JobId) -> Call:
    """Read the places where a job's row may be."""
    return (_PLACES, (part_of(job_id), job_id))


def found(lane: Lane, row: Sequence[Any]) -> Found:
    """Return a row as a job; columns that were never written are null."""
    *cells, stub = row
    for place, default in _UNSET:
        if cells[place] is None:
            cells[place] = default
    return Found(Job._make((lane, *cells)), stub or b"")


def thin_page(
    lane: Lane, page: Page, *, until: Key = END, ats_us: tuple[int, int] | None = None
) -> Call:
    """Read keys and versions of rows, in the order of keys.

    With `ats_us`, only rows whose `at_us` is in this range, both ends included.
    """
    if ats_us is not None:
        return (_THIN_BETWEEN, (*lane, *page.after, *until, *ats_us, page.limit))
    if until == END:
        return (_THIN_PAGE, (*lane, *page.after, page.limit))
    return (_THIN_UNTIL, (*lane, *page.after, *until, page.limit))


def thin(row: Sequence[Any]) -> tuple[Key, RowVersion]:
    """Return the key and version of a row of a thin page."""
    pos_us, job_id, hop, at_us, token = row
    return (pos_us, job_id, hop), RowVersion(at_us, token)


# Claims and outcomes


def claim(job: Job, claimed: Job) -> Call:
    """Claim a row, if it has not changed since it was read."""
    cells = (claimed.at_us, claimed.fence, claimed.token, claimed.worker, claimed.claimed_us)
    row = (*place_of(job), job.token, job.at_us, int(job.state))
    if (claimed.crashes, claimed.alone) == (job.crashes, job.alone):
        return (_CLAIM, (*cells, int(claimed.state), *row))
    crash = (claimed.crashes, claimed.alone)
    return (_CLAIM_AFTER_CRASH, (*cells, int(claimed.state), *crash, *row))


def drop(job: Job) -> Call:
    """Delete a row."""
    return (_DROP, (*place_of(job), job.token))


def erase(job: Job) -> Call:
    """Delete a decided row, whatever its token (rule P5)."""
    return (_ERASE, place_of(job))


def extend(verdict: Extend) -> Call:
    """Extend a lease, unless it is longer already; a started row stays started."""
    row = (*place_of(verdict.job), verdict.job.token, verdict.at_us)
    if verdict.started:
        return (_EXTEND_STARTED + _NOT_LATER, (verdict.at_us, int(State.STARTED), *row))
    return (_EXTEND + _NOT_LATER, (verdict.at_us, *row))


def move(verdict: Move, row: Job | None, *, is_listed: bool) -> list[Call]:
    """Move a row within its lane.

    Args:
      verdict: The move.
      row: The row after it; None for an outcome, whose row stays in its place.
      is_listed: Whether the lane is listed for it; otherwise the move is applied only if it does
        not make the job due earlier.
    """
    job = verdict.job
    assert row is not None or verdict.at_us >= job.pos_us, (
        "a row with an outcome keeps its position"
    )
    if row is None or key_of(row) == key_of(job):
        place = (*place_of(job), job.token)
        at_us, token, _, *kept, state, outcome, error, _, _, _ = verdict[1:]
        if (*kept, error) == _kept_by_end(job):  # most jobs end well at once
            calls: list[Call] = [(_DECIDE, (at_us, token, int(state), outcome, *place))]
        else:
            calls = [(_MOVE, (*_moved_values(verdict._replace(state=int(state))), *place))]
    else:
        calls = [drop(job), (_HOP, _whole(row))]
    if not is_listed:
        text, bound = calls[0]
        calls[0] = (text + _NOT_LATER, (*bound, verdict.at_us))
    return calls


# Moves to another lane: a stub stores the future row.


def stub(verdict: Move, row: Job) -> Call:
    """Turn a row into a stub of its future row (rules K1, K2)."""
    job = verdict.job
    return (_STUB, (stub_of(verdict, row), verdict.token, *place_of(job), job.token))


def stub_of(verdict: Move, row: Job) -> bytes:
    """Encode a future row; the body and other columns that stay the same are not included."""
    opts = () if verdict.opts is None else (verdict.opts,)
    return pack(([*row.lane], row.pos_us, row.hop, row[_FROM_AT], verdict.listing, *opts))


def target_of(row: Found) -> tuple[Job, int]:
    """Return the future row of a stub, and the bucket to list its lane under."""
    lane, pos_us, hop, cells, listing, *opts = unpack(row.stub)
    job = Job(Lane(*lane), pos_us, row.job.id, hop, *_kept_values(row.job), *cells)
    return job._replace(opts=opts[0] if opts else job.opts), listing


def seen(job: Job) -> RowVersion:
    """Return the cached part of a row."""
    return RowVersion(job.at_us, job.token)


def key_in(row: Mapping[str, Any]) -> Key:
    """Return the key of a row in the answer to a rejected batch."""
    return (row["pos_us"], row["id"], row["hop"])
