"""What a claimer remembers of a lane.

In a store whose rows stay where they were born, the rows that are done lie between the start of
a lane and what is due. Reading past them again and again is what a claim must not do, so a
claimer keeps for each lane a cursor and the rows behind it that are alive (rule R2). It is a
cache, never an answer: each claim is conditional on what was remembered (rule R1), and a cache
that is old is replaced by a reading from the lane's start (rule R3). Once a second a scan starts
some seconds before the cursor, for the rows of producers whose time is behind (rule R8), and
reads remembered claims again, since other processes may release them early (rule R9).
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple

from dueline.core.clock import SECOND_US
from dueline.core.job import Job, JobId, Token
from dueline.core.lane import Lane

Key = tuple[int, JobId, int]
"""Where a row lies in its lane: position, id, hop. A row's `at_us` is never below its position."""

START: Key = (-(2**63), JobId(b""), -(2**31))
"""Before every row."""

END: Key = (2**63 - 1, JobId(b"\xff" * 16), 2**31 - 1)
"""After every row."""

LATE_US = SECOND_US
"""The cursor stays so far behind the present: inserts arrive a little after their position."""

BEHIND_US = 5 * SECOND_US
"""A producer's time may be this far behind the claimer's, and its rows are still found soon."""

REREAD_US = SECOND_US
"""How often a scan reads the rows again in which such a producer's may have appeared."""

CHECKED_MAX = 50
"""Maximum number of remembered claims that a scan reads again."""

AGE_US_MAX = 15 * SECOND_US
"""A cache is replaced when it is older than this, or than half a lease."""

PAGE_MIN, PAGE_MAX, PAGE_GROWTH = 8, 2000, 4
"""Pages of one scan grow from the first to the second: of a lane's last second many are done."""

FIRST_PAGE_MAX = 500
LANES_MAX = 10_000
ROWS_MAX = 30_000


class RowVersion(NamedTuple):
    """What is known of a row: when it may be touched, and the token it stood under."""

    at_us: int
    token: Token


class Page(NamedTuple):
    """What to read next: so many rows of the lane, in the order of their keys, past one.

    is_first: of its scan. That one mostly holds what is due; those that follow mostly hold what
    is not, and need not be read whole.
    """

    after: Key
    limit: int
    is_first: bool = False


def key_of(job: Job) -> Key:
    """Tell where a job's row lies in its lane."""
    return (job.pos_us, job.id, job.hop)


class _LaneCache:
    """Of one lane. Every row at or before the cursor that is alive is in `rows`."""

    def __init__(self, read_us: int, cursor: Key, rows: dict[Key, RowVersion]) -> None:
        self.read_us = read_us
        self.reread_us = read_us
        self.checked_us = read_us
        self.checked = START
        self.cursor = cursor
        self.rows = rows
        self.is_outdated = False

    def next_claims(self, now_us: int, until_us: int) -> list[Key]:
        """Return some of the rows that are remembered as claimed, in turn (rule R9)."""
        keys = sorted(key for key, seen in self.rows.items() if now_us < seen.at_us <= until_us)
        later = [key for key in keys if key > self.checked]
        chosen = (later + keys)[: min(CHECKED_MAX, len(keys))]
        self.checked = chosen[-1] if chosen else START
        return chosen


class LaneScan:
    """One look at one lane: what is known, what is to be read, what is due.

    Not read rows lie past the last one that was read, and so does their `at_us`: whatever is
    due before that place is known in its order.
    """

    def __init__(
        self,
        lane: Lane,
        *,
        now_us: int,
        most: int,
        start: Key = START,
        known: Mapping[Key, RowVersion] | None = None,
    ) -> None:
        """Start where a cursor stands, knowing the rows behind it; at the lane's start else.

        Args: most: how many jobs are wanted, > 0.
        """
        self.lane = lane
        self.now_us = now_us
        self.most = most
        self.start = start
        self.rows: dict[Key, RowVersion] = dict(known or {})
        self.last = start
        self.has_ended = False
        self._limit = 0
        self.inserts: list[tuple[Key, RowVersion]] = []
        self.changes: list[tuple[Key, RowVersion | None]] = []
        """What others in this process did meanwhile."""
        self.cache: _LaneCache | None = None
        self.unconfirmed: Sequence[Key] = ()
        """Remembered claims that are read again before anything is chosen."""

    def next_page(self) -> Page | None:
        """Tell what to read next; None when what is known is enough.

        It is when the rows that come first are known, one more than wanted: that one is what
        is left.
        """
        if self.has_ended or sum(self._is_sure(*row) for row in self.rows.items()) > self.most:
            return None
        if self._limit == 0:
            first = min(max(self.most + 1, PAGE_MIN), FIRST_PAGE_MAX)
            return Page(self.last, first, is_first=True)
        return Page(self.last, min(PAGE_GROWTH * self._limit, PAGE_MAX), is_first=False)

    def take(self, page: Page, rows: Iterable[tuple[Key, RowVersion]]) -> None:
        """Take in what a page held, in the order of the keys; a short page is the last."""
        read = dict(rows)
        self.rows.update(read)
        self._limit = page.limit
        if len(read) < page.limit:
            self.has_ended = True
        else:
            self.last = max(read)

    def due(self, most: int) -> list[Key]:
        """List the first rows that are due, in (at, id) order."""
        sure = (
            (seen.at_us, key[1], key)
            for key, seen in self.rows.items()
            if seen.at_us <= self.now_us and self._is_sure(key, seen)
        )
        return [key for _, _, key in nsmallest(most, sure)]

    def note(self, key: Key, seen: RowVersion | None) -> None:
        """Replace what is known of a row by what the store answered (rule R4); None: it is gone."""
        _note(self.rows, key, seen)

    def next_at_us(self) -> int | None:
        """Tell the least `at_us` in the lane; None when it is empty."""
        return min((seen.at_us for seen in self.rows.values()), default=None)

    def left(self) -> Key:
        """Tell the place before the first row that is due still: it is to be read whole again."""
        past = [key for key in self.rows if key > self.start]
        due = min((key for key in past if self.rows[key].at_us <= self.now_us), default=None)
        if due is None:
            return END
        return max((key for key in past if key < due), default=self.start)

    def _is_sure(self, key: Key, seen: RowVersion) -> bool:
        return self.has_ended or (seen.at_us, key[1]) <= self.last[:2]


class CursorCache:
    """What one process remembers of the lanes that it claims from; threads may share it."""

    def __init__(self, *, is_on: bool = True) -> None:
        """Remember nothing yet; `is_on=False`: never, each scan reads from the lane's start."""
        self._is_on = is_on
        self._lock = threading.Lock()
        self._caches: OrderedDict[Lane, _LaneCache] = OrderedDict()
        self._scans: dict[Lane, list[LaneScan]] = {}
        self._newest: dict[tuple[str, int, int, str], Lane] = {}

    def open(self, lane: Lane, *, now_us: int, lease_us: int, most: int) -> LaneScan:
        """Begin a scan; it is given back to `close`.

        It goes on from the cursor while the cache is young enough, and starts from the lane's
        start otherwise, and when a newer lane of the same kind was visited since.
        """
        with self._lock:
            self._outdate_older(lane)
            cache = self._caches.get(lane)
            age_us_max = min(lease_us // 2, AGE_US_MAX)
            if cache is None or cache.is_outdated or not 0 <= now_us - cache.read_us <= age_us_max:
                scan = LaneScan(lane, now_us=now_us, most=most)
            else:
                start, known = cache.cursor, cache.rows
                before: Key = (now_us - LATE_US - BEHIND_US, *START[1:])
                if before < start and now_us - cache.reread_us >= REREAD_US:
                    start = before
                    known = {key: seen for key, seen in known.items() if key <= start}
                scan = LaneScan(lane, now_us=now_us, most=most, start=start, known=known)
                scan.cache = cache
                if now_us - cache.checked_us >= REREAD_US:
                    cache.checked_us = now_us
                    claims = cache.next_claims(now_us, now_us + lease_us)
                    scan.unconfirmed = [key for key in claims if key in scan.rows]
            self._scans.setdefault(lane, []).append(scan)
            return scan

    def close(self, scan: LaneScan) -> None:
        """Remember what a scan has seen, up to where a late insert may still appear."""
        with self._lock:
            self._end(scan)
            if not self._is_on:
                return
            for key, insert in scan.inserts:
                scan.rows.setdefault(key, insert)
            for key, seen in scan.changes:
                scan.note(key, seen)
            cursor: Key = (scan.now_us - LATE_US, *START[1:])
            if not scan.has_ended:
                cursor = min(cursor, scan.last)
            self._remember(scan, max(min(cursor, scan.left()), scan.start))

    def abandon(self, scan: LaneScan) -> None:
        """Give back a scan that came to nothing; what was remembered before stays."""
        with self._lock:
            self._end(scan)

    def learn_inserts(self, lane: Lane, inserts: Sequence[tuple[Key, RowVersion]]) -> None:
        """Take in which rows of a lane this process bore.

        A repeated insert says nothing of a row that is known already.
        """
        with self._lock:
            for scan in self._scans.get(lane, ()):
                scan.inserts += inserts
            cache = self._caches.get(lane)
            if cache is not None:
                for key, seen in inserts:
                    if key <= cache.cursor:
                        cache.rows.setdefault(key, seen)

    def learn(self, lane: Lane, key: Key, seen: RowVersion | None) -> None:
        """Take in what this process did to a row: moved, extended; None: it is gone."""
        self.learn_all(lane, [(key, seen)])

    def learn_all(self, lane: Lane, changes: Sequence[tuple[Key, RowVersion | None]]) -> None:
        """Take in what this process did to rows of a lane, in order."""
        with self._lock:
            for scan in self._scans.get(lane, ()):
                scan.changes += changes
            cache = self._caches.get(lane)
            if cache is not None:
                for key, seen in changes:
                    if key <= cache.cursor:
                        _note(cache.rows, key, seen)

    def _end(self, scan: LaneScan) -> None:
        scans = self._scans[scan.lane]
        scans.remove(scan)
        if not scans:
            del self._scans[scan.lane]

    def _remember(self, scan: LaneScan, cursor: Key) -> None:
        cache = self._caches.get(scan.lane)
        rows = {key: seen for key, seen in scan.rows.items() if key <= cursor}
        if scan.cache is None:
            cache = _LaneCache(scan.now_us, cursor, rows)
            self._caches[scan.lane] = cache
        elif scan.cache is not cache:
            return  # replaced meanwhile: what this scan went on from is no longer known
        else:  # another scan may have come further
            if scan.start < cache.cursor:
                cache.reread_us = scan.now_us
            rows |= {key: seen for key, seen in cache.rows.items() if key > cursor}
            cache.cursor, cache.rows = max(cache.cursor, cursor), rows
        if len(cache.rows) > ROWS_MAX:
            del self._caches[scan.lane]
            return
        self._caches.move_to_end(scan.lane)
        if len(self._caches) > LANES_MAX:
            self._caches.popitem(last=False)

    def _outdate_older(self, lane: Lane) -> None:
        """Read a lane from its start once more when the next one of its kind is begun."""
        kind = (lane.queue, lane.shard, lane.priority, lane.tenant)
        older = self._newest.get(kind)
        if older is None or older.bucket < lane.bucket:
            if len(self._newest) >= LANES_MAX:
                self._newest.clear()
            self._newest[kind] = lane
            cache = self._caches.get(older) if older else None
            if cache is not None:
                cache.is_outdated = True


def _note(rows: dict[Key, RowVersion], key: Key, seen: RowVersion | None) -> None:
    if seen is None:
        rows.pop(key, None)
    else:
        rows[key] = seen
