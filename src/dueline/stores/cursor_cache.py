"""A cache of the position up to which a process has read each lane.

In a store whose rows keep their position, deleted rows lie between the start of a lane and the
rows that are due. A claim must not read past them every time, so a process keeps a cursor for each
lane, and the live rows before it (rule R2). This is only a cache: each claim is conditional on the
cached version of a row (rule R1), and an old cache is replaced by a scan from the lane's start
(rule R3). Once a second a scan starts some seconds before the cursor, for rows of producers whose
clock is behind (rule R8). It also reads cached claims again, since other processes may release
them early (rule R9).
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dueline.core.clock import BEHIND_US, SECOND_US
from dueline.core.job import Job, JobId, Token
from dueline.core.lane import Lane

Key = tuple[int, JobId, int]
"""Key of a row in its lane: position, id, hop. A row's `at_us` is never below its position."""

START: Key = (-(2**63), JobId(b""), -(2**31))
"""Before every row."""

END: Key = (2**63 - 1, JobId(b"\xff" * 16), 2**31 - 1)
"""After every row."""

LATE_US = SECOND_US
"""Distance of the cursor from the present: an insert arrives a little after its position."""

REREAD_US = SECOND_US
"""Time between two scans that start before the cursor, for the rows of such producers."""

CHECKED_MAX = 50
"""Maximum number of cached claims that a scan reads again."""

AGE_US_MAX = 15 * SECOND_US
"""Maximum age of a cache; half a lease if that is less."""

PAGE_MIN, PAGE_MAX, PAGE_GROWTH = 8, 2000, 4
"""Pages of a scan grow from the first size to the second, by the third."""

FIRST_PAGE_MAX = 512
LANES_MAX = 10_000
ROWS_MAX = 30_000


class RowVersion(NamedTuple):
    """The cached part of a row: its due time and its token."""

    at_us: int
    token: Token


class Page(NamedTuple):
    """The next page to read: `limit` rows of the lane after a key, in the order of keys.

    is_first: The first page of its scan, mostly due rows. Later pages mostly hold rows that are
    not due, and need not be read whole.
    """

    after: Key
    limit: int
    is_first: bool = False


def key_of(job: Job) -> Key:
    """Return the key of a job's row in its lane."""
    return (job.pos_us, job.id, job.hop)


class _LaneCache:
    """The cache of one lane; `rows` has every live row at or before the cursor."""

    def __init__(self, read_us: int, cursor: Key, rows: dict[Key, RowVersion]) -> None:
        self.read_us = read_us
        self.reread_us = read_us
        self.checked_us = read_us
        self.checked = START
        self.cursor = cursor
        self.rows = rows
        self.is_outdated = False

    def next_claims(self, now_us: int, until_us: int) -> list[Key]:
        """Return the next cached rows that are claimed, round-robin (rule R9)."""
        keys = sorted(key for key, seen in self.rows.items() if now_us < seen.at_us <= until_us)
        later = [key for key in keys if key > self.checked]
        chosen = (later + keys)[: min(CHECKED_MAX, len(keys))]
        self.checked = chosen[-1] if chosen else START
        return chosen


class LaneScan:
    """One scan of a lane: known rows, the next page to read, due rows.

    Rows not read yet are behind the last row read, and so is their `at_us`. All rows due before
    that position are known, in order.

    Args:
      lane: The lane.
      now_us: The current time.
      most: Maximum number of jobs wanted, > 0.
      start: The cursor at which the scan starts.
      known: The known rows before it.
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
        """Changes by other threads during the scan."""
        self.cache: _LaneCache | None = None
        self.unconfirmed: Sequence[Key] = ()
        """Cached claims to read again before rows are chosen."""

    def next_page(self) -> Page | None:
        """Return the next page to read; None if the known rows are enough.

        They are if one row more than wanted is known: that row tells when the lane is due next.
        """
        if self.has_ended:
            return None
        if len(self.rows) > self.most:
            last = self.last[:2]
            sure = [key for key, (at_us, _) in self.rows.items() if (at_us, key[1]) <= last]
            if len(sure) > self.most:
                return None
        if self._limit == 0:
            first = min(max(self.most + 1, PAGE_MIN), FIRST_PAGE_MAX)
            return Page(self.last, first, is_first=True)
        return Page(self.last, min(PAGE_GROWTH * self._limit, PAGE_MAX), is_first=False)

    def take(self, page: Page, rows: Iterable[tuple[Key, RowVersion]]) -> None:
        """Add the rows of a page, in the order of keys; a short page is the last."""
        read = dict(rows)
        self.rows.update(read)
        self._limit = page.limit
        if len(read) < page.limit:
            self.has_ended = True
        else:
            self.last = max(read)

    def due(self, most: int) -> list[Key]:
        """Return the keys of the first due rows, in (at, id) order."""
        now_us, last = self.now_us, END[:2] if self.has_ended else self.last[:2]
        sure = [
            (at_us, key[1], key)
            for key, (at_us, _) in self.rows.items()
            if at_us <= now_us and (at_us, key[1]) <= last
        ]
        sure.sort()
        return [key for _, _, key in sure[:most]]

    def note(self, key: Key, seen: RowVersion | None) -> None:
        """Update a row from the store's answer (rule R4); None if it does not exist."""
        _note(self.rows, key, seen)

    def next_at_us(self) -> int | None:
        """Return the lowest `at_us` in the lane; None if it is empty."""
        return min((seen.at_us for seen in self.rows.values()), default=None)

    def left(self) -> Key:
        """Return the key before the first row that is still due: it must be read whole again."""
        past = [key for key in self.rows if key > self.start]
        due = min((key for key in past if self.rows[key].at_us <= self.now_us), default=None)
        if due is None:
            return END
        return max((key for key in past if key < due), default=self.start)


class CursorCache:
    """The caches of the lanes that a process claims from. Thread-safe.

    Args:
      is_on: If False, every scan starts at the lane's start.
    """

    def __init__(self, *, is_on: bool = True) -> None:
        self._is_on = is_on
        self._lock = threading.Lock()
        self._caches: OrderedDict[Lane, _LaneCache] = OrderedDict()
        self._scans: dict[Lane, list[LaneScan]] = {}
        self._newest: dict[tuple[str, int, int, str], Lane] = {}

    def open(self, lane: Lane, *, now_us: int, lease_us: int, most: int) -> LaneScan:
        """Start a scan; the caller passes it to `close` or `abandon`.

        The scan starts at the cursor. It starts at the lane's start if the cache is too old, or if
        a newer lane of the same kind was scanned since.
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
        """Cache the rows of a scan, up to the position where a late insert may still arrive."""
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
        """End a failed scan; the cache stays as it was."""
        with self._lock:
            self._end(scan)

    def learn_inserts(self, lane: Lane, inserts: Sequence[tuple[Key, RowVersion]]) -> None:
        """Add rows that this process inserted.

        An insert may be a repeat, so it does not replace a known row.
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
        """Update a row that this process changed; None if it deleted it."""
        self.learn_all(lane, [(key, seen)])

    def learn_all(self, lane: Lane, changes: Sequence[tuple[Key, RowVersion | None]]) -> None:
        """Update rows of a lane that this process changed, in order."""
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
            return  # replaced during the scan: its start is not known any more
        else:  # another scan may have read further
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
        """Have the next scan of the previous lane of this kind start at the lane's start."""
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
