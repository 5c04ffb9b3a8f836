"""Read a shard up to its watermark."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Final

from dueline.core.clock import Clock, StoreTime
from dueline.core.store import Row, Store
from dueline.core.watermark import SEALED_US
from dueline.log.checkpoint import Place

GUARD_US: Final = 250_000
"""How far the watermark stays behind the present on stores without transactions."""

MARK_EVERY_US: Final = 100_000
"""How often one reader raises a watermark there: it is a conditional write."""

IDS_KNOWN_MAX: Final = 100_000
"""Number of row ids that are remembered, where a row may be stored twice."""


PAGE: Final = 2000
"""How many rows of a shard are read at once."""

_position = attrgetter("at_us", "id")


class ShardReader:
    """Reads one shard continuously, each row once; in steps, without a thread.

    place: the position of the last row read. The reader raises the watermark only where there are
    rows above it, and reads only below it, so that no row can appear behind the reader.
    """

    def __init__(
        self,
        store: Store,
        stream: str,
        shard: int,
        *,
        after: Place | None,
        time: StoreTime,
        clock: Clock,
    ) -> None:
        self.place = after
        self._store = store
        self._stream = stream
        self._shard = shard
        self._time = time
        self._clock = clock
        self._guard_us = 0 if store.transactional else GUARD_US
        self._mark = -1
        self._has_read_all = True
        self._raised_us: int | None = None
        self._young: tuple[Place, int] | None = None
        self._known: dict[bytes, None] = {}

    @property
    def has_ended(self) -> bool:
        """Whether the shard is sealed and was read to its end."""
        return self._has_read_all and self._mark >= SEALED_US

    @property
    def has_more(self) -> bool:
        """Whether there may be more rows that are closed already."""
        return not self._has_read_all

    def seal(self) -> None:
        """Seal the shard: it takes no new rows."""
        if self._mark < SEALED_US:
            self._mark = self._store.close_until(self._stream, self._shard, at_us=SEALED_US)
            self._has_read_all = False

    def read(self, limit: int) -> list[Row]:
        """Read up to `limit` rows; none where no more rows are closed yet."""
        if self._has_read_all:
            self._raise_mark()
        if self._has_read_all:
            return []
        rows = self._next_rows(limit, min(self._mark, SEALED_US))
        self._has_read_all = len(rows) < limit
        return self._new(rows)

    def read_until(self, until_us: int) -> list[Row]:
        """Read a page of the part up to `until_us`, which must be closed."""
        return self._new(self._next_rows(PAGE, until_us))

    def _next_rows(self, limit: int, until_us: int) -> Sequence[Row]:
        page = self._store.tail(
            self._stream, self._shard, after=self.place, limit=limit, until_us=until_us
        )
        self.place = page.after
        return page.rows

    def wanted_us(self) -> int | None:
        """Return up to where the shard can be closed; None if there is no row past the position."""
        page = self._store.tail(
            self._stream, self._shard, after=self.place, limit=1, until_us=SEALED_US
        )
        return self._closable_us(page.rows[0]) if page.rows else None

    def close(self, at_us: int) -> int:
        """Raise the watermark, if it is lower, and return it."""
        now_us = self._clock.monotonic_us()
        has_just = self._raised_us is not None and now_us - self._raised_us < MARK_EVERY_US
        if self._mark < at_us and not (has_just and self._guard_us):
            self._mark = self._store.close_until(self._stream, self._shard, at_us=at_us)
            self._raised_us = now_us
            self._has_read_all = False
        return self._mark

    def _raise_mark(self) -> None:
        """Raise the watermark if there are rows past the position that can be closed."""
        if self._mark < SEALED_US and (at_us := self.wanted_us()) is not None:
            self.close(at_us)

    def _closable_us(self, first: Row) -> int | None:
        """Return up to where rows may be closed, so that few appends arrive too late.

        A row may be closed once the guard time has passed since its timestamp, or since it was
        first seen: a producer whose clock is ahead, or a clock that is set back, delays no more.
        """
        until_us = self._time.latest_us() - self._guard_us
        if not self._guard_us or first.at_us <= until_us:
            return max(until_us, first.at_us)
        place, now_us = (first.at_us, first.id), self._clock.monotonic_us()
        if self._young is None or self._young[0] != place:
            self._young = (place, now_us)
        return first.at_us if now_us - self._young[1] >= self._guard_us else None

    def _new(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows that were not read before, under another timestamp."""
        if not self._guard_us:
            return list(rows)
        new = []
        for row in rows:
            if row.id not in self._known:
                self._known[row.id] = None
                new.append(row)
        if len(self._known) > IDS_KNOWN_MAX:
            self._known = dict.fromkeys(list(self._known)[IDS_KNOWN_MAX // 2 :])
        return new


def merged(readers: Sequence[ShardReader]) -> Iterator[Row]:
    """Read shards up to one position, the present if possible, in order.

    Rows that are stored later are behind that position in each shard, so a read that continues
    after the last row misses none.
    """
    if len(readers) == 1:
        [reader] = readers
        return chain.from_iterable(iter(lambda: reader.read(PAGE), []))
    wanted = [at_us for reader in readers if (at_us := reader.wanted_us()) is not None]
    if not wanted:
        return iter(())
    until_us = min(reader.close(max(wanted)) for reader in readers)
    return chain.from_iterable(_merged_pages(readers, min(until_us, SEALED_US)))


def _merged_pages(readers: Sequence[ShardReader], until_us: int) -> Iterator[list[Row]]:
    """Read pages of all shards in order.

    A page of each is sorted at once, up to where the first of them ends: row by row takes
    twice as long.
    """
    pages = {reader: reader.read_until(until_us) for reader in readers}
    while pages := {reader: page for reader, page in pages.items() if page}:
        until = min(_position(page[-1]) for page in pages.values())
        ready = []
        for reader, page in pages.items():
            count = bisect_right(page, until, key=_position)
            ready.append(page[:count])
            pages[reader] = page[count:] or reader.read_until(until_us)
        yield sorted(chain.from_iterable(ready), key=_position)
