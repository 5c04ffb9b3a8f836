"""The raw loop on Cassandra: what the node itself can do for this driver.

The tables of the store and the same changes to their rows, by prepared statements. Everything
that can be left out is: no codec, no checks, ids made beforehand, no memory of a lane beside the
last key that was read, rows never turned into anything. Each lane goes its own way (a page is
read, claimed by one conditional batch, deleted by another), and one thread serves them in turn,
so that a request of every lane is always under way.
"""

import os
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from socket import IPPROTO_TCP, TCP_NODELAY
from typing import Any, Final

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import RoundRobinPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType, tuple_factory

from dueline.core.ids import Ids
from dueline.core.process_identity import worker_name

BATCH: Final = 100
LANES: Final = 8
_IN_FLIGHT: Final = 32
_LEASE_US: Final = 30_000_000
_INDEX_KEPT_S: Final = 30 * 86_400
_MINUTE_US: Final = 60_000_000

_INSERT = (
    "INSERT INTO jobs (queue, shard, bucket, priority, tenant, pos_us, id, hop, due_us,"
    " enqueued_us, task, codec, body, opts, at_us, fence, claim_token, errors, crashes, state)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP 1"
)
_INDEX = (
    "INSERT INTO ids (part, id, hop, queue, shard, bucket, priority, tenant, pos_us)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP 1 AND TTL ?"
)
_PAGE = (
    "SELECT pos_us, id, hop, due_us, enqueued_us, task, codec, body, opts, at_us, fence,"
    " claim_token, worker, claimed_us, errors, crashes, alone, state, outcome, error, moved_to"
    " FROM jobs WHERE queue = ? AND shard = ? AND bucket = ? AND priority = ? AND tenant = ?"
    " AND (pos_us, id, hop) > (?, ?, ?) LIMIT 100"  # BATCH
)
_CLAIM = (
    "UPDATE jobs SET at_us = ?, fence = ?, claim_token = ?, worker = ?, claimed_us = ?,"
    " crashes = ?, alone = ?, state = ?"
    " WHERE queue = ? AND shard = ? AND bucket = ? AND priority = ? AND tenant = ?"
    " AND pos_us = ? AND id = ? AND hop = ?"
    " IF claim_token = ? AND at_us = ? AND state = ?"
)
_DROP = (
    "DELETE FROM jobs WHERE queue = ? AND shard = ? AND bucket = ? AND priority = ? AND tenant = ?"
    " AND pos_us = ? AND id = ? AND hop = ? IF claim_token = ?"
)
_AT, _FENCE, _TOKEN, _STATE = 9, 10, 11, 17  # places in a page's rows

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Raw:
    """A session, and the statements prepared in it."""

    session: Session
    insert: Any
    index: Any
    page: Any
    claim: Any
    drop: Any

    def close(self) -> None:
        """Close the connections."""
        self.session.cluster.shutdown()


def open_raw(host: str, keyspace: str) -> Raw:
    """Connect as the store does: quorum, token-aware, no wait for full packets."""
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(RoundRobinPolicy()),
        consistency_level=ConsistencyLevel.QUORUM,
        serial_consistency_level=ConsistencyLevel.SERIAL,
        row_factory=tuple_factory,
    )
    cluster = Cluster(
        [host],
        protocol_version=5,
        sockopts=[(IPPROTO_TCP, TCP_NODELAY, 1)],
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
    )
    session = cluster.connect(keyspace)
    return Raw(session, *map(session.prepare, (_INSERT, _INDEX, _PAGE, _CLAIM, _DROP)))


def rows(count: int, queue: str, body: bytes) -> list[Row]:
    """Make what `insert` binds, over LANES lanes; not part of what is timed."""
    now_us = time.time_ns() // 1000
    bucket = now_us // 10_000_000
    cells = ("bench.noop", 0, body, b"", now_us, 0, bytes(16), 0, 0, 0)
    return [
        (queue, number % LANES, bucket, 0, "", now_us, job_id, 0, now_us, now_us, *cells)
        for number, job_id in enumerate(Ids().many(count, now_us))
    ]


def insert(raw: Raw, births: Sequence[Row]) -> None:
    """Insert rows and their index by unlogged batches of one partition, many under way."""
    lanes: dict[int, list[Row]] = {}
    parts: dict[bytes, list[Row]] = {}
    for row in births:
        pos_us, job_id = row[5:7]
        part = (pos_us // _MINUTE_US).to_bytes(6, "big") + bytes([job_id[-1] % 4])
        lanes.setdefault(row[1], []).append(row)
        parts.setdefault(part, []).append((part, job_id, 0, *row[:6], _INDEX_KEPT_S))
    batches = [(raw.index, some) for some in parts.values()]
    batches += [(raw.insert, some) for some in lanes.values()]
    under_way: list[Any] = []
    for statement, some in batches:
        for start in range(0, len(some), BATCH):
            if len(under_way) == _IN_FLIGHT:
                under_way.pop(0).result()
            batch = batch_of(statement, some[start : start + BATCH])
            under_way.append(raw.session.execute_async(batch))
    for future in under_way:
        future.result()


def drain(raw: Raw, births: Sequence[Row]) -> int:
    """Claim and drop every row of the lanes of some births, BATCH at once.

    Returns: how many rows there were.
    """
    lanes = sorted({row[:5] for row in births})
    turns = [_drain_lane(raw, lane) for lane in lanes]
    under_way = [(turn, next(turn)) for turn in turns]
    drained = 0
    while under_way:
        again: list[tuple[Generator[Any, Any, int], Any]] = []
        for turn, future in under_way:
            try:
                again.append((turn, turn.send(future.result())))
            except StopIteration as end:
                drained += end.value
        under_way = again
    return drained


def _drain_lane(raw: Raw, lane: Row) -> Generator[Any, Any, int]:
    """Yield each request of a lane, be sent its answer; return how many rows were drained."""
    send, worker, token = raw.session.execute_async, worker_name(), os.urandom(16)
    after: Row = (-1, b"", 0)
    drained = 0
    while True:
        page = list((yield send(raw.page.bind((*lane, *after)))))
        if not page:
            return drained
        now_us = time.time_ns() // 1000
        claims = [_claim(lane, row, now_us, worker, token) for row in page]
        answer = yield send(batch_of(raw.claim, claims))
        assert answer.was_applied
        answer = yield send(batch_of(raw.drop, [(*lane, *row[:3], token) for row in page]))
        assert answer.was_applied
        after = page[-1][:3]
        drained += len(page)


def drain_singly(raw: Raw, births: Sequence[Row]) -> int:
    """Claim and drop every row, a conditional write for each of both, one after the other.

    Returns: how many rows there were.
    """
    worker, token = worker_name(), os.urandom(16)
    drained = 0
    for lane, row in _pages(raw, sorted({row[:5] for row in births})):
        now_us = time.time_ns() // 1000
        claim = _claim(lane, row, now_us, worker, token)
        assert raw.session.execute(raw.claim, claim).was_applied
        assert raw.session.execute(raw.drop, (*lane, *row[:3], token)).was_applied
        drained += 1
    return drained


def _pages(raw: Raw, lanes: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    for lane in lanes:
        after: Row = (-1, b"", 0)
        while page := list(raw.session.execute(raw.page, (*lane, *after))):
            yield from ((lane, row) for row in page)
            after = page[-1][:3]


def _claim(lane: Row, row: Row, now_us: int, worker: str, token: bytes) -> Row:
    cells = (now_us + _LEASE_US, row[_FENCE] + 1, token, worker, now_us, 0, False, 1)
    return (*cells, *lane, *row[:3], row[_TOKEN], row[_AT], row[_STATE])


def batch_of(statement: Any, values: Sequence[Row]) -> BatchStatement:  # noqa: ANN401  (untyped)
    """Put rows of one statement into an unlogged batch."""
    batch = BatchStatement(BatchType.UNLOGGED)
    for row in values:
        batch.add(statement, row)
    return batch
