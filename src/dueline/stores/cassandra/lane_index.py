"""Lane lists in Cassandra's tables: the primitives of `dueline.stores.lane_index`, and reads."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import Final

from dueline.core.errors import StoreUnavailable
from dueline.core.lane import Lane, Marks, Pointer
from dueline.core.store_capabilities import LanesWithRows
from dueline.stores.cassandra import statements as rows
from dueline.stores.cassandra.answers import Rows
from dueline.stores.cassandra.connection import TooManyTombstones
from dueline.stores.cassandra.lane_reader import LanePages, Slice
from dueline.stores.cassandra.session import Call, CassandraSession
from dueline.stores.cassandra.statements import TOKEN_MAX, TOKEN_MIN, chunks
from dueline.stores.cursor_cache import PAGE_MAX, START, Page
from dueline.stores.lane_index import NOTHING_CLOSED, LaneHead, Shard

LISTINGS_A_DAY: Final = 8640
"""Number of listing buckets of a partition: a day, if a bucket has ten seconds."""

_LEAST: Final = (-(2**63), -(2**31), "")

_PUT: Final = (
    "INSERT INTO {keyspace}.lanes (queue, shard, day, listing, bucket, priority, tenant)"
    " VALUES (?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP 1"
)
_REMOVE: Final = (
    "DELETE FROM {keyspace}.lanes USING TIMESTAMP 2 WHERE queue = ? AND shard = ? AND day = ?"
    " AND listing = ? AND bucket = ? AND priority = ? AND tenant = ?"
)
_PAGE: Final = (
    "SELECT listing, bucket, priority, tenant FROM {keyspace}.lanes"
    " WHERE queue = ? AND shard = ? AND day = ?"
    " AND (listing, bucket, priority, tenant) > (?, ?, ?, ?) AND (listing) <= (?) LIMIT ?"
)
_SHARD: Final = "SELECT swept, closed, day FROM {keyspace}.shards WHERE queue = ? AND shard = ?"
_MARKS: Final = f"{_SHARD} LIMIT 1"
# Of several partitions: their columns are compared, in place of a token.
_SHARDS: Final = (
    "SELECT queue, shard, swept, closed, day FROM {keyspace}.shards WHERE queue = ? AND shard IN ?"
)
_MARKS_OF_EACH: Final = f"{_SHARDS} PER PARTITION LIMIT 1"
_PAGES: Final = (
    "SELECT queue, shard, listing, bucket, priority, tenant FROM {keyspace}.lanes"
    " WHERE queue = ? AND shard IN ? AND day = ?"
    " AND (listing, bucket, priority, tenant) > (?, ?, ?, ?) AND (listing) <= (?)"
    " PER PARTITION LIMIT ?"
)
_PUT_DAY: Final = (
    "INSERT INTO {keyspace}.shards (queue, shard, day) VALUES (?, ?, ?) USING TIMESTAMP 1"
)
_REMOVE_DAY: Final = (
    "DELETE FROM {keyspace}.shards USING TIMESTAMP 2 WHERE queue = ? AND shard = ? AND day = ?"
)
_RAISE: Final = (
    "UPDATE {keyspace}.shards SET swept = ?, closed = ? WHERE queue = ? AND shard = ?"
    " IF swept = ? AND closed = ?"
)
_DAYS_MAX: Final = 10_000
_HEAD: Final = Page(START, 8)
_PAGE_ROWS: Final = 1000


class CassandraLaneStorage:
    """Implements `dueline.stores.lane_index.LaneIndexStorage`."""

    def __init__(self, session: CassandraSession, pages: LanePages) -> None:
        self._session = session
        self._pages = pages
        self._days: set[tuple[str, int, int]] = set()

    def closed(self, shards: Sequence[Shard]) -> Sequence[int]:
        """Return the `closed` mark of each shard; those of a queue by one read."""
        if len({shard.queue for shard in shards}) < len(shards):
            return self._closed_together(shards)
        answers = self._session.read_many([(_MARKS, shard) for shard in shards])
        return [_marks_in(rows).closed for rows in answers]

    def _closed_together(self, shards: Sequence[Shard]) -> Sequence[int]:
        numbers: dict[str, list[int]] = {}
        for queue, number in shards:
            numbers.setdefault(queue, []).append(number)
        answers = self._session.read_many([(_MARKS_OF_EACH, each) for each in numbers.items()])
        closed = {
            Shard(*row[:2]): _marks_in([row[2:]]).closed
            for (queue, of_queue), rows in zip(numbers.items(), answers, strict=True)
            for row in _of_shards(queue, of_queue, rows)
        }
        return [closed.get(shard, NOTHING_CLOSED.closed) for shard in shards]

    def marks(self, shard: Shard) -> Marks:
        """Return both marks, by a serial read."""
        return _marks_in(self._session.read_serial(_MARKS, shard))

    def raise_marks(self, shard: Shard, *, old: Marks, new: Marks) -> bool:
        """Replace the marks if they still are `old`; delete the days that are swept."""
        present = (None, None) if old == NOTHING_CLOSED else old
        is_raised = self._session.decide([(_RAISE, (*new, *shard, *present))]).is_applied
        if is_raised:
            days = [day for _, _, day in self._session.read(_SHARD, shard) if day is not None]
            past = [day for day in days if day < _day_of(new.swept + 1)]
            self._session.write([[(_REMOVE_DAY, (*shard, day))] for day in past])
        return is_raised

    def put(self, pointers: Collection[Pointer]) -> None:
        """Add pointers and their days."""
        days = {(p.lane.queue, p.lane.shard, _day_of(p.listing)) for p in pointers} - self._days
        batches: list[list[Call]] = [[(_PUT_DAY, day)] for day in sorted(days)]
        self._session.write(batches + _by_day(_PUT, pointers))
        if len(self._days) > _DAYS_MAX:
            self._days.clear()
        self._days |= days

    def remove(self, pointers: Collection[Pointer]) -> None:
        """Remove pointers for ever."""
        self._session.write(_by_day(_REMOVE, pointers))

    def pointers(self, shard: Shard, *, above: int, until: int) -> Iterable[Pointer]:
        """Yield the pointers with `above < listing <= until`."""
        days = [day for _, _, day in self._session.read(_SHARD, shard) if day is not None]
        after = (above + 1, *_LEAST)
        while page := self._page(shard, days, after, until, _PAGE_ROWS):
            yield from page
            after = (page[-1].listing, *page[-1].lane[2:])

    def heads(self, lanes: Sequence[Lane]) -> Sequence[LaneHead]:
        """Return the first rows of lanes, many at once."""
        return [
            LaneHead(
                [rows.thin(row)[1].at_us for row in reading.rows],
                is_all=reading.is_at_once and len(reading.rows) < _HEAD.limit,
            )
            for reading in self._pages.readings([Slice(lane, _HEAD) for lane in lanes])
        ]

    def ats_us(self, lane: Lane) -> Iterator[int]:
        """Yield `at_us` of every row of a lane.

        A lane that was read in pieces without a row is read again: a row may have moved to a piece
        that had been read (rule S3).
        """
        for _ in range(2):
            page, is_at_once, is_empty = Page(START, PAGE_MAX), True, True
            while True:
                (reading,) = self._pages.readings([Slice(lane, page)])
                read = [rows.thin(row) for row in reading.rows]
                yield from (seen.at_us for _, seen in read)
                is_at_once, is_empty = is_at_once and reading.is_at_once, is_empty and not read
                if len(read) < page.limit:
                    break
                page = page._replace(after=read[-1][0])
            if is_at_once or not is_empty:
                return

    def read(
        self, shard: Shard, *, until: int, after: Pointer | None, limit: int
    ) -> tuple[Marks, list[Pointer]]:
        """Read the marks, then pointers up to a bucket or the first open one, after `after`.

        This takes two reads if all buckets are of one day, as in a poll.
        """
        rows = self._session.read(_SHARD, shard)
        marks = _marks_in(rows)
        days = [day for _, _, day in rows if day is not None]
        start = _start(marks, after)
        return marks, self._page(shard, days, start, max(until, marks.closed + 1), limit)

    def read_many(
        self, queue: str, after: Mapping[int, Pointer | None], *, until: int, limit: int
    ) -> Mapping[int, tuple[Marks, list[Pointer]]]:
        """Read shards as `read` does, together: two reads if all buckets are of one day.

        The reads start where the first shard starts, and return one page in all. A shard with more
        lanes than its part of it is read by itself.
        """
        by_shard: dict[int, Rows] = {shard: [] for shard in after}
        for row in _of_shards(queue, by_shard, self._session.read(_SHARDS, (queue, list(after)))):
            by_shard[row[1]].append(row[2:])
        marks = {shard: _marks_in(rows) for shard, rows in by_shard.items()}
        starts = {shard: _start(marks[shard], after[shard]) for shard in after}
        ends = {shard: min(max(until, marks[shard].closed + 1), 2**63 - 1) for shard in after}
        days = {
            shard: [
                day
                for _, _, day in rows
                if day is not None and _day_of(starts[shard][0]) <= day <= _day_of(ends[shard])
            ]
            for shard, rows in by_shard.items()
        }
        pointers: dict[int, list[Pointer]] = {shard: [] for shard in after}
        most = max(1, min(limit, _PAGE_ROWS // max(1, len(after))))
        full: set[int] = set()
        for day in sorted(set(chain.from_iterable(days.values()))):
            shards = [shard for shard in after if day in days[shard]]
            start = min(starts[shard] for shard in shards)
            end = max(ends[shard] for shard in shards)
            read = self._session.read(_PAGES, (queue, shards, day, *start, end, most))
            for shard, of_shard in groupby(_of_shards(queue, shards, read), key=itemgetter(1)):
                cells = [row[2:] for row in of_shard]
                if len(cells) == most:
                    full.add(shard)
                pointers[shard] += [
                    Pointer(row[0], Lane(queue, shard, *row[1:]))
                    for row in cells
                    if row > starts[shard] and row[0] <= ends[shard]
                ]
        for shard in full:
            place = Shard(queue, shard)
            pointers[shard] = self._page(place, days[shard], starts[shard], ends[shard], limit)
        return {shard: (marks[shard], pointers[shard][:limit]) for shard in after}

    def _page(
        self,
        shard: Shard,
        days: Sequence[int],
        after: tuple[int, int, int, str],
        until: int,
        limit: int,
    ) -> list[Pointer]:
        pointers: list[Pointer] = []
        for day in days:  # in order, as they are clustered
            if _day_of(after[0]) <= day <= _day_of(until) and len(pointers) < limit:
                rows = self._session.read(
                    _PAGE, (*shard, day, *after, min(until, 2**63 - 1), limit - len(pointers))
                )
                pointers += [Pointer(row[0], Lane(*shard, *row[1:])) for row in rows]
        return pointers


def _of_shards(queue: str, shards: Collection[int], rows: Rows) -> Rows:
    """Return rows of several partitions, which have no common token to compare."""
    if any(row[0] != queue or row[1] not in shards for row in rows):
        raise StoreUnavailable("A read of lanes was answered with rows of another partition.")
    return rows


def _start(marks: Marks, after: Pointer | None) -> tuple[int, int, int, str]:
    """Return the sort key after which a list is read."""
    start = (marks.swept + 1, *_LEAST)
    return start if after is None else max(start, (after.listing, *after.lane[2:]))


def _day_of(listing: int) -> int:
    return listing // LISTINGS_A_DAY


def _marks_in(rows: Rows) -> Marks:
    """Return the marks of any row of a shard; a shard may have rows before it has marks."""
    if not rows or rows[0][1] is None:
        return NOTHING_CLOSED
    return Marks(*rows[0][:2])


def _by_day(text: str, pointers: Collection[Pointer]) -> list[list[Call]]:
    """Return batches of one partition each."""
    rows = sorted(
        (lane.queue, lane.shard, _day_of(listing), listing, *lane[2:]) for listing, lane in pointers
    )
    batches: list[list[Call]] = []
    for _, group in groupby(rows, key=lambda row: row[:3]):
        batches += chunks([(text, row) for row in group])
    return batches


_KEY: Final = "queue, shard, bucket, priority, tenant"
_RANGE: Final = (
    f"SELECT DISTINCT token({_KEY}), {_KEY} FROM {{keyspace}}.jobs"
    f" WHERE token({_KEY}) > ? AND token({_KEY}) <= ? LIMIT ?"
)
_PIECE: Final = (
    f"SELECT token({_KEY}), {_KEY} FROM {{keyspace}}.jobs"
    f" WHERE token({_KEY}) = ? AND pos_us > ? AND pos_us <= ? LIMIT 1 ALLOW FILTERING"
)
_WHOLE: Final = 2**64
_SHRINKING: Final = 8


class CassandraLaneLister:
    """Lists the lanes of a keyspace, by ranges of tokens.

    Cassandra reads in the order of tokens, the hashes of keys; a page is a range of tokens. A
    server fails a read that crosses too many rows deleted in the last ten days, so ranges shrink
    as far as needed, and grow again. A single lane with too many deleted rows is read in pieces.
    """

    def __init__(self, session: CassandraSession) -> None:
        self._session = session
        self._width = _WHOLE

    def lanes_with_rows(self, after: str | None, limit: int) -> LanesWithRows:
        """Return the lanes of one range that have rows."""
        start = TOKEN_MIN if after is None else int(after)
        while True:
            end = min(TOKEN_MAX, start + self._width)
            try:
                rows = self._session.read(_RANGE, (start, end, limit))
                break
            except TooManyTombstones:
                if self._width == 1:
                    rows = self._lane_at(end)
                    break
                self._width = max(1, self._width // _SHRINKING)
            except StoreUnavailable:  # it may have taken too long
                self._width = max(1, self._width // _SHRINKING)
                raise
        self._width = min(_WHOLE, 2 * self._width)
        if len(rows) == limit:
            end = rows[-1][0]
        lanes = [Lane(*row[1:]) for row in rows]
        return LanesWithRows(lanes, str(end) if end < TOKEN_MAX else None)

    def _lane_at(self, token: int) -> Rows:
        """Return the lane with a token as a row of a range; nothing if it has no rows.

        Rows at a single position that has too many deleted rows are not found.
        """
        pieces = [(-1, TOKEN_MAX)]
        while pieces:
            after, until = pieces.pop()
            try:
                if rows := self._session.read(_PIECE, (token, after, until)):
                    return rows
            except TooManyTombstones:
                step = max(1, (until - after) // _SHRINKING)
                bounds = [*range(after, until, step), until] if until - after > 1 else []
                pieces += pairwise(bounds)
        return []
