"""Streams in Cassandra's tables.

They implement the primitives of `dueline.core.watermark`, and read rows bucket by bucket.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from dueline.core.errors import Unknown
from dueline.core.store import Row, RowPage
from dueline.core.watermark import MARK_DAMAGED, NOTHING_CLOSED, StreamShard, StreamWatermarks
from dueline.stores.cassandra.answers import Rows
from dueline.stores.cassandra.session import Call, CassandraSession
from dueline.stores.cassandra.statements import chunks

BUCKET_US: Final = 60_000_000
"""Time range of a partition: sixty thousand rows, at a thousand rows a second."""

_APPEND: Final = (
    "INSERT INTO {keyspace}.stream_rows (stream, shard, bucket, at_us, id, body)"
    " VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
)
_BODY: Final = 5  # its place among the values
_BUCKET: Final = (
    "INSERT INTO {keyspace}.stream_buckets (stream, shard, bucket) VALUES (?, ?, ?)"
    " USING TIMESTAMP 1"
)
_BUCKETS: Final = (
    "SELECT bucket FROM {keyspace}.stream_buckets WHERE stream = ? AND shard = ?"
    " AND bucket >= ? AND bucket <= ? LIMIT ?"
)
_TAIL: Final = (
    "SELECT stream, shard, at_us, id, body FROM {keyspace}.stream_rows"
    " WHERE stream = ? AND shard = ? AND bucket = ?"
    " AND (at_us, id) > (?, ?) AND (at_us) <= (?) LIMIT ?"
)
_KEYS: Final = _TAIL.replace("stream, shard, at_us, id, body", "at_us, id", 1)
_EXPIRE: Final = "DELETE FROM {keyspace}.stream_rows WHERE stream = ? AND shard = ? AND bucket = ?"
_FORGET: Final = (
    "DELETE FROM {keyspace}.stream_buckets USING TIMESTAMP ?"
    " WHERE stream = ? AND shard = ? AND bucket <= ?"
)
_MARK: Final = "SELECT closed_us FROM {keyspace}.stream_marks WHERE stream = ? AND shard = ?"
_FIRST_MARK: Final = (
    "INSERT INTO {keyspace}.stream_marks (stream, shard, closed_us) VALUES (?, ?, ?) IF NOT EXISTS"
)
_RAISE: Final = (
    "UPDATE {keyspace}.stream_marks SET closed_us = ? WHERE stream = ? AND shard = ?"
    " IF closed_us = ?"
)
_LEAST: Final = (-(2**63), b"")
_LAST_US: Final = 2**63 - 1
_BUCKETS_A_PAGE: Final = 100
_BUCKETS_NOTED_MAX: Final = 10_000


class CassandraMarks:
    """The steps of `dueline.core.watermark.StreamStorage`."""

    def __init__(self, session: CassandraSession) -> None:
        self._session = session
        self._buckets: set[tuple[str, int, int]] = set()

    def marks_of(self, shards: Sequence[StreamShard]) -> Sequence[int]:
        """Return the watermark of each shard."""
        return [_mark_in(rows) for rows in self._session.read_many([(_MARK, s) for s in shards])]

    def mark_of(self, shard: StreamShard) -> int:
        """Return a watermark, by a serial read."""
        return _mark_in(self._session.read_serial(_MARK, shard))

    def raise_mark(self, shard: StreamShard, *, old: int, new: int) -> bool:
        """Replace a watermark if it still is `old`; read it if the result is unknown."""
        call: Call = (_RAISE, (new, *shard, old))
        if old == NOTHING_CLOSED:
            call = (_FIRST_MARK, (*shard, new))
        try:
            return self._session.decide([call]).is_applied
        except Unknown:
            return self.mark_of(shard) >= new

    def put_rows(self, rows: Sequence[Row]) -> Sequence[bool]:
        """Insert rows; a repeat writes the same cells."""
        by_bucket: dict[tuple[str, int, int], list[tuple[int, Call]]] = {}
        for place, row in enumerate(rows):
            bucket = (row.stream, row.shard, row.at_us // BUCKET_US)
            call = (_APPEND, (*bucket, row.at_us, row.id, row.body, row.at_us))
            by_bucket.setdefault(bucket, []).append((place, call))
        new = [bucket for bucket in by_bucket if bucket not in self._buckets]
        self._session.write([[(_BUCKET, bucket)] for bucket in new])
        if len(self._buckets) > _BUCKETS_NOTED_MAX:
            self._buckets.clear()
        self._buckets.update(new)
        batches = [batch for group in by_bucket.values() for batch in chunks(group, _bytes_of)]
        errors = self._session.write_many([[call for _, call in batch] for batch in batches])
        sure = [True] * len(rows)
        for batch, error in zip(batches, errors, strict=True):
            for place, _ in batch:
                sure[place] = error is None
        return sure


def _bytes_of(placed: tuple[int, Call]) -> int:
    body = placed[1][1][_BODY]
    assert isinstance(body, bytes)
    return len(body)


class CassandraStreams:
    """Append-only logs, in partitions of one minute."""

    def __init__(self, session: CassandraSession) -> None:
        self._session = session
        self._marks = CassandraMarks(session)
        self._watermarks = StreamWatermarks(self._marks)

    def append(self, rows: Sequence[Row]) -> list[int | None]:
        """Insert rows, then check that they are above their shards' watermarks."""
        return self._watermarks.append(rows) if rows else []

    def close_until(self, stream: str, shard: int, at_us: int) -> int:
        """Raise a shard's watermark."""
        return self._watermarks.close_until(StreamShard(stream, shard), at_us)

    def tail(
        self,
        stream: str,
        shard: int,
        after: tuple[int, bytes] | None,
        limit: int,
        *,
        until_us: int | None,
        skip: int = 0,
    ) -> RowPage:
        """Read a shard's rows in (at, id) order; only the keys of skipped ones are read."""
        start = _LEAST if after is None else after
        last_us = _LAST_US if until_us is None else until_us
        cells: list[tuple[Any, ...]] = []
        for bucket in self._buckets(StreamShard(stream, shard), start[0], last_us):
            if len(cells) == limit:
                break
            if skip:
                keys = self._session.read(_KEYS, (stream, shard, bucket, *start, last_us, skip))
                skip -= len(keys)
                start = keys[-1] if keys else start
                if skip:
                    continue
            place = (stream, shard, bucket, *start, last_us, limit - len(cells))
            cells += self._session.read(_TAIL, place)
        rows = list(map(Row._make, cells))
        return RowPage(rows, (rows[-1].at_us, rows[-1].id) if rows else after)

    def expire(self, stream: str, shard: int, before_us: int) -> None:
        """Delete the buckets below a timestamp and the watermark, a page at a time.

        Each is one deleted partition, which no read visits once it is no longer listed.
        """
        place = StreamShard(stream, shard)
        below_us = min(before_us, self._marks.mark_of(place) + 1)
        last_us = below_us // BUCKET_US * BUCKET_US - 1
        buckets = self._buckets(place, _LEAST[0], last_us)
        while page := list(islice(buckets, _BUCKETS_A_PAGE)):
            self._session.write([[(_EXPIRE, (*place, bucket))] for bucket in page])
            # A range from the start with a later timestamp: it replaces those of earlier calls.
            self._session.write([[(_FORGET, (page[-1] + 2, *place, page[-1]))]])

    def _buckets(self, shard: StreamShard, first_us: int, last_us: int) -> Iterator[int]:
        """Yield the buckets of a shard, in order."""
        first, last = max(first_us, 0) // BUCKET_US, last_us // BUCKET_US
        while True:
            rows = self._session.read(_BUCKETS, (*shard, first, last, _BUCKETS_A_PAGE))
            yield from (bucket for (bucket,) in rows)
            if len(rows) < _BUCKETS_A_PAGE:
                return
            first = rows[-1][0] + 1


def _mark_in(rows: Rows) -> int:
    if not rows:
        return NOTHING_CLOSED
    mark = rows[0][0]
    return MARK_DAMAGED if mark is None else int(mark)
