"""Reading a lane of Cassandra page by page, within bounds.

Of bytes: how many whole rows one reading may ask for follows from the largest that its queue
was seen to hold. Of deleted rows: a server fails a read that crosses too many of them, and the
same read would fail for ever; it is then made in pieces.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from dueline.core.codec import PAYLOAD_BYTES_MAX
from dueline.core.errors import DuelineError
from dueline.core.job import JobId
from dueline.core.lane import Lane
from dueline.stores.cassandra import statements as rows
from dueline.stores.cassandra.answers import Rows
from dueline.stores.cassandra.connection import TooManyTombstones
from dueline.stores.cassandra.session import Call, CassandraSession
from dueline.stores.cassandra.statements import Found
from dueline.stores.cursor_cache import END, Key, Page

BYTES_AT_ONCE: Final = 8 * 1024 * 1024
"""How much the whole rows of one reading should be, in all of its lanes."""

_SHRINKING: Final = 8
_QUEUES_MAX: Final = 1000
_LANES_MAX: Final = 100
_PARTS: Final = 8
_ID_BITS: Final = 128
_POSITION_MIN: Final = -(2**63)
_LAST_HOP: Final = END[2]


class Slice(NamedTuple):
    """A part of a lane: a page of it, up to a key, and maybe only rows due between two times."""

    lane: Lane
    page: Page
    is_whole: bool = False
    until: Key = END
    ats_us: tuple[int, int] | None = None

    def call(self) -> Call:
        """Make the statement."""
        if self.is_whole:
            return rows.whole_page(self.lane, self.page, until=self.until)
        return rows.thin_page(self.lane, self.page, until=self.until, ats_us=self.ats_us)


class Reading(NamedTuple):
    """The rows of a slice. is_at_once: as they were at one moment; False where read in pieces."""

    rows: Rows
    is_at_once: bool


class LanePages:
    """Reads slices of lanes. Threads may share it: what it remembers are guesses."""

    def __init__(self, session: CassandraSession) -> None:
        self._session = session
        self._largest: dict[str, int] = {}
        self._cuts: OrderedDict[Lane, frozenset[Key]] = OrderedDict()

    # Bytes

    def whole_max(self, queue: str, share: int = 1) -> int:
        """Tell how many whole rows of a queue may be read at once in one of `share` lanes.

        Nothing is known of a queue at first, so that its rows may be as large as rows can be. A
        queue whose rows have just become larger may exceed the bound by one reading.
        """
        largest = self._largest.get(queue, PAYLOAD_BYTES_MAX)
        return max(1, BYTES_AT_ONCE // (share * max(1, largest)))

    def weigh(self, queue: str, read: Iterable[Found]) -> None:
        """Learn from whole rows how large those of a queue are; large ones are forgotten slowly."""
        sizes = [size_of(found) for found in read]
        if not sizes:
            return
        if len(self._largest) >= _QUEUES_MAX and queue not in self._largest:
            self._largest.clear()
        known = self._largest.get(queue, 0)
        self._largest[queue] = max(*sizes, known - known // _SHRINKING, 1)

    def some(self, asked: Sequence[tuple[Lane, Sequence[Key]]]) -> list[list[Found]]:
        """Read whole rows by their keys, lane by lane; those that are gone are not answered."""
        answers = self._session.read_many([rows.some(lane, keys) for lane, keys in asked])
        return [self._found(lane, answer) for (lane, _), answer in zip(asked, answers, strict=True)]

    def whole(self, lane: Lane, answer: Rows) -> list[Found]:
        """Turn the rows of a whole page into jobs, and learn how large they are."""
        return self._found(lane, answer)

    def _found(self, lane: Lane, answer: Rows) -> list[Found]:
        found = [rows.found(lane, row) for row in answer]
        self.weigh(lane.queue, found)
        return found

    # Deleted rows

    def read(self, slices: Sequence[Slice]) -> list[Rows]:
        """Read slices of lanes at once."""
        return [reading.rows for reading in self.readings(slices)]

    def readings(self, slices: Sequence[Slice]) -> list[Reading]:
        """Read slices of lanes at once; tell of each whether it was read as a whole.

        One that the server fails for its deleted rows is read in pieces, one after the other.
        Where they had to be cut is remembered for the next time.
        """
        direct = [one for one in slices if not self._is_cut(one)]
        answers = iter(self._session.try_read_many([one.call() for one in direct]))
        direct_answers: Mapping[int, Rows | DuelineError] = {
            id(one): next(answers) for one in direct
        }
        return [self._reading_of(one, direct_answers.get(id(one))) for one in slices]

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
        """Read a slice piece by piece, in order; a piece that fails is cut in eight.

        What is cut is the range of the keys, down to a single one. A failure costs as much as
        crossing what is allowed, and finding deleted rows that lie close together takes some
        dozens of them: seconds, once in a process and lane.
        """
        after, limit = part.page.after, part.page.limit
        cuts = sorted(cut for cut in self._cuts.get(part.lane, ()) if after < cut < part.until)
        ends = [part.until, *reversed(cuts)]  # the next one is the last
        found: Rows = []
        is_hopeless = has_failed and not cuts  # tried as a whole: cut first
        while ends and len(found) < limit:
            until = ends[-1]
            piece = part._replace(page=Page(after, limit - len(found)), until=until)
            if not is_hopeless:
                try:
                    found += self._session.read(*piece.call())
                except TooManyTombstones:
                    is_hopeless = True
                else:
                    after = ends.pop()
                    continue
            between = _between(after, until)
            if not between:
                raise TooManyTombstones
            ends += reversed(between)
            self._remember(part.lane, between)
            is_hopeless = False
        return found

    def _remember(self, lane: Lane, cuts: Iterable[Key]) -> None:
        self._cuts[lane] = self._cuts.get(lane, frozenset()).union(cuts)
        if len(self._cuts) > _LANES_MAX:
            self._cuts.popitem(last=False)


def size_of(found: Found) -> int:
    """Count the bytes of what may be large in a row."""
    job = found.job
    return len(job.body) + len(job.opts) + len(job.outcome) + len(job.error) + len(found.stub)


def _between(after: Key, until: Key) -> list[Key]:
    """Find keys that cut a range into equal parts; none where there is only one key."""
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
