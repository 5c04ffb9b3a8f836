"""Reads of a lane page by page, within limits.

The number of whole rows in one read depends on the largest row seen in the queue. A server fails a
read that crosses too many deleted rows, and would fail the same read again, so such a read is
split.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from dueline.core.codec import PAYLOAD_BYTES_MAX
from dueline.core.errors import DuelineError
from dueline.core.job import JobId
from dueline.core.lane import Lane
from dueline.core.pagination import parts_of
from dueline.stores.cassandra import statements as rows
from dueline.stores.cassandra.answers import Rows
from dueline.stores.cassandra.connection import TooManyTombstones
from dueline.stores.cassandra.session import Call, CassandraSession
from dueline.stores.cassandra.statements import Found
from dueline.stores.cursor_cache import END, Key, Page

BYTES_AT_ONCE: Final = 8 * 1024 * 1024
"""Maximum size of the whole rows of one read, in all of its lanes, in bytes."""

_SHRINKING: Final = 8
_QUEUES_MAX: Final = 1000
_LANES_MAX: Final = 100
_PARTS: Final = 8
_BOX_MAX: Final = 16
"""Maximum number of partitions in one read: managed clusters refuse more than 20."""

_ID_BITS: Final = 128
_POSITION_MIN: Final = -(2**63)
_LAST_HOP: Final = END[2]


class Slice(NamedTuple):
    """A part of a lane: a page up to a key, optionally with rows due in a range only."""

    lane: Lane
    page: Page
    is_whole: bool = False
    until: Key = END
    ats_us: tuple[int, int] | None = None

    def call(self) -> Call:
        """Return the statement and its values."""
        if self.is_whole:
            return rows.whole_page(self.lane, self.page, until=self.until)
        return rows.thin_page(self.lane, self.page, until=self.until, ats_us=self.ats_us)


class Reading(NamedTuple):
    """The rows of a slice. is_at_once: Whether one read returned all of them."""

    rows: Rows
    is_at_once: bool


class Whole(NamedTuple):
    """The first whole rows of a part of a lane. is_all: It has no others."""

    found: list[Found]
    is_all: bool


class LanePages:
    """Reads slices of lanes. Thread-safe: its caches are only hints."""

    def __init__(self, session: CassandraSession) -> None:
        self._session = session
        self._largest: dict[str, int] = {}
        self._cuts: OrderedDict[Lane, frozenset[Key]] = OrderedDict()

    # Bytes

    def whole_max(self, queue: str, share: int = 1) -> int:
        """Return how many whole rows of a queue may be read at once in one of `share` lanes.

        At first rows are assumed to have the maximum size. A queue whose rows have just become
        larger may exceed BYTES_AT_ONCE in one read.
        """
        largest = self._largest.get(queue, PAYLOAD_BYTES_MAX)
        return max(1, BYTES_AT_ONCE // (share * max(1, largest)))

    def weigh(self, queue: str, read: Iterable[Found]) -> None:
        """Update the largest row size of a queue; it shrinks slowly."""
        sizes = [size_of(row) for row in read]
        if not sizes:
            return
        if len(self._largest) >= _QUEUES_MAX and queue not in self._largest:
            self._largest.clear()
        known = self._largest.get(queue, 0)
        self._largest[queue] = max(*sizes, known - known // _SHRINKING, 1)

    def some(self, asked: Sequence[tuple[Lane, Sequence[Key]]]) -> list[list[Found]]:
        """Return whole rows by key, lane by lane; missing rows are omitted."""
        answers = self._session.read_many([rows.some(lane, keys) for lane, keys in asked])
        return [self._found(lane, answer) for (lane, _), answer in zip(asked, answers, strict=True)]

    def whole(self, lane: Lane, answer: Rows) -> list[Found]:
        """Return the rows of a whole page, and update the largest row size."""
        return self._found(lane, answer)

    def each(
        self, asked: Iterable[tuple[Sequence[Lane], Sequence[Slice]]], limit: int
    ) -> dict[Lane, list[Whole]]:
        """Read parts of many lanes at once; the lane and the limit in the parts are ignored.

        Lanes are omitted if the server fails their read for their deleted rows, or has failed it.
        """
        boxes = [
            (box, part)
            for lanes, parts in asked
            for box in _boxes(lane for lane in lanes if lane not in self._cuts)
            for part in parts
        ]
        share = sum(len(box) for box, _ in boxes)
        most = [min(limit, self.whole_max(box[0].queue, share)) for box, _ in boxes]
        calls = [
            rows.whole_each(box, count, part.page.after, part.until, part.ats_us)
            for (box, part), count in zip(boxes, most, strict=True)
        ]
        by_lane: dict[Lane, list[Whole]] = {}
        failed: set[Lane] = set()
        answers = self._session.try_read_many(calls)
        for (box, _), count, answer in zip(boxes, most, answers, strict=True):
            if isinstance(answer, TooManyTombstones):
                failed.update(box)
                continue
            if isinstance(answer, DuelineError):
                raise answer
            for lane, read in rows.found_each(box, answer).items():
                self.weigh(lane.queue, read)
                by_lane.setdefault(lane, []).append(Whole(read, is_all=len(read) < count))
        return {lane: wholes for lane, wholes in by_lane.items() if lane not in failed}

    def is_weighed(self, queue: str) -> bool:
        """Return whether the size of a row of the queue is known."""
        return queue in self._largest

    def _found(self, lane: Lane, answer: Rows) -> list[Found]:
        read = [rows.found(lane, row) for row in answer]
        self.weigh(lane.queue, read)
        return read

    # Deleted rows

    def read(self, slices: Sequence[Slice]) -> list[Rows]:
        """Read slices of lanes at once."""
        return [reading.rows for reading in self.readings(slices)]

    def readings(self, slices: Sequence[Slice]) -> list[Reading]:
        """Read slices of lanes at once.

        A slice that the server fails for its deleted rows is read in pieces, one after the other.
        The bounds of the pieces are cached for the next read.
        """
        direct = [slice_ for slice_ in slices if not self._is_cut(slice_)]
        answers = iter(self._session.try_read_many([slice_.call() for slice_ in direct]))
        direct_answers: Mapping[int, Rows | DuelineError] = {
            id(slice_): next(answers) for slice_ in direct
        }
        return [self._reading_of(slice_, direct_answers.get(id(slice_))) for slice_ in slices]

    def _is_cut(self, part: Slice) -> bool:
        return any(part.page.after < cut < part.until for cut in self._cuts.get(part.lane, ()))

    def _reading_of(self, part: Slice, answer: Rows | DuelineError | None) -> Reading:
        if answer is None or isinstance(answer, TooManyTombstones):
            rows = self._in_pieces(part, has_failed=answer is not None)
            return Reading(rows, is_at_once=False)
        if isinstance(answer, DuelineError):
            raise answer
        return Reading(answer, is_at_once=True)

    def _in_pieces(self, part: Slice, *, has_failed: bool) -> Rows:
        """Read a slice piece by piece, in order; split a failed piece in eight.

        The range of keys is split, down to a single key. Each failure costs a full read. Deleted
        rows close together take dozens of failures: seconds, once for each process and lane.
        """
        after, limit = part.page.after, part.page.limit
        cuts = sorted(cut for cut in self._cuts.get(part.lane, ()) if after < cut < part.until)
        ends = [part.until, *reversed(cuts)]  # the next one is the last
        read: Rows = []
        is_hopeless = has_failed and not cuts  # tried as a whole: cut first
        while ends and len(read) < limit:
            until = ends[-1]
            piece = part._replace(page=Page(after, limit - len(read)), until=until)
            if not is_hopeless:
                try:
                    read += self._session.read(*piece.call())
                except TooManyTombstones:
                    is_hopeless = True
                else:
                    after = ends.pop()
                    continue
            between = _between(after, until)
            if not between:
                raise TooManyTombstones
            ends += reversed(between)
            self._cuts[part.lane] = self._cuts.get(part.lane, frozenset()).union(between)
            if len(self._cuts) > _LANES_MAX:
                self._cuts.popitem(last=False)
            is_hopeless = False
        return read


def _boxes(lanes: Iterable[Lane]) -> Iterator[list[Lane]]:
    """Split lanes into those that one read may return, which reads few other lanes, too."""
    for _, same in groupby(sorted(lanes, key=_box_of), key=lambda lane: _box_of(lane)[:3]):
        for box in parts_of(same, _BOX_MAX):
            if len({lane.shard for lane in box}) * len({lane.priority for lane in box}) <= _BOX_MAX:
                yield box
            else:
                for _, alike in groupby(box, key=attrgetter("priority")):
                    yield list(alike)


_box_of = attrgetter("queue", "bucket", "tenant", "priority", "shard")


def size_of(row: Found) -> int:
    """Return the size of the columns of a row that may be large, in bytes."""
    job = row.job
    return len(job.body) + len(job.opts) + len(job.outcome) + len(job.error) + len(row.stub)


def _between(after: Key, until: Key) -> list[Key]:
    """Return keys that split a range into equal parts; none for a single key."""
    start, end = _number(after), _number(until)
    cuts: list[Key] = []
    for part in range(1, _PARTS):
        pos_us, number = divmod(start + (end - start) * part // _PARTS, 2**_ID_BITS)
        cut = (pos_us + _POSITION_MIN, JobId(number.to_bytes(_ID_BITS // 8)), _LAST_HOP)
        if [after, *cuts][-1] < cut < until:
            cuts.append(cut)
    return cuts


def _number(key: Key) -> int:
    id_bytes = key[1].ljust(_ID_BITS // 8, b"\0")
    return ((key[0] - _POSITION_MIN) << _ID_BITS) + int.from_bytes(id_bytes)
