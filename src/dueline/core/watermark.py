"""The watermark of a stream's shard, and rows that arrive late.

Stores without transactions run these algorithms over their own primitives: how an append is
acknowledged (rule F1), and how the watermark is raised (rule F2). A producer inserts a row and
then reads the watermark. If the watermark is not below the row, the producer appends the row again
just above it. A reader raises the watermark and then reads. This needs no bound on clocks or
pauses: a producer that read a watermark below its row inserted the row before the watermark
passed, so the reader sees it.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from dueline.core.errors import StoreUnavailable
from dueline.core.store import Row

NOTHING_CLOSED: Final = -1
ROUNDS_MAX: Final = 5
"""Maximum number of times that a row is appended before its result is unknown."""

SEALED_US: Final = 253_402_300_799_999_999
"""End of the year 9999: a watermark there closes a shard for ever (rule F5)."""

MARK_MAX: Final = 2**62
"""Maximum watermark. A greater one is damage: the result of every append is unknown."""

MARK_DAMAGED: Final = MARK_MAX + 1
"""Value that stands for a watermark whose column is null."""

SHARDS_KNOWN_MAX: Final = 10_000


class StreamShard(NamedTuple):
    """A shard of a stream."""

    stream: str
    shard: int


class StreamStorage(Protocol):
    """Primitive operations on rows and watermarks; each is complete when it returns."""

    def marks_of(self, shards: Sequence[StreamShard]) -> Sequence[int]:
        """Return the watermark of each shard, NOTHING_CLOSED for none."""
        ...

    def mark_of(self, shard: StreamShard) -> int:
        """Return a watermark, at least as new as any write that has returned."""
        ...

    def raise_mark(self, shard: StreamShard, *, old: int, new: int) -> bool:
        """Replace a watermark if it still is `old`; return whether it was."""
        ...

    def put_rows(self, rows: Sequence[Row]) -> Sequence[bool]:
        """Insert rows that do not exist; return for each whether it is certainly stored."""
        ...


class StreamWatermarks:
    """Appends rows and raises watermarks. Thread-safe.

    Caches the watermarks that it has read, so that a late row is rarely written twice.
    """

    def __init__(self, shards: StreamStorage) -> None:
        self._storage = shards
        self._seen: dict[StreamShard, int] = {}

    def append(self, rows: Sequence[Row]) -> list[int | None]:
        """Insert rows, read the watermarks, and append late rows again.

        Raises:
          StoreUnavailable: Nothing was written.
        """
        places: list[int | None] = [None] * len(rows)
        waiting = {number: _above(row, self._seen) for number, row in enumerate(rows)}
        for again in range(ROUNDS_MAX):
            sure = self._insert(waiting, is_first=not again)
            written = {number: row for number, row in waiting.items() if number in sure}
            marks = self._look(written.values())
            if marks is None:
                break
            waiting = {}
            for number, row in written.items():
                if marks.get(_shard_of(row), NOTHING_CLOSED) > MARK_MAX:
                    continue
                moved = _above(row, marks)
                if moved is row:
                    places[number] = row.at_us
                else:
                    waiting[number] = moved
            if not waiting:
                break
        return places

    def close_until(self, shard: StreamShard, at_us: int) -> int:
        """Raise a watermark to at least `at_us`; give up after ROUNDS_MAX conflicts."""
        for _ in range(ROUNDS_MAX):
            present = self._storage.mark_of(shard)
            self._note(shard, present)
            if at_us <= present or self._storage.raise_mark(shard, old=present, new=at_us):
                self._note(shard, at_us)
                return max(at_us, present)
        return present

    def _insert(self, rows: dict[int, Row], *, is_first: bool) -> set[int]:
        try:
            sure = self._storage.put_rows(list(rows.values()))
        except StoreUnavailable:
            if is_first:
                raise
            return set()  # earlier rows may or may not be stored
        return {number for number, is_sure in zip(rows, sure, strict=True) if is_sure}

    def _look(self, rows: Iterable[Row]) -> Mapping[StreamShard, int] | None:
        """Return the watermarks of the rows' shards; None if they could not be read."""
        shards = sorted({_shard_of(row) for row in rows})
        if not shards:
            return {}
        with suppress(StoreUnavailable):  # the rows are written: their result is unknown
            marks = dict(zip(shards, self._storage.marks_of(shards), strict=True))
            for shard, mark in marks.items():
                self._note(shard, mark)
            return marks
        return None

    def _note(self, shard: StreamShard, mark: int) -> None:
        if len(self._seen) > SHARDS_KNOWN_MAX:
            self._seen.clear()
        if self._seen.get(shard, NOTHING_CLOSED) < mark <= MARK_MAX:
            self._seen[shard] = mark


def _above(row: Row, marks: Mapping[StreamShard, int]) -> Row:
    """Return the row, moved above its shard's watermark if needed."""
    mark = marks.get(_shard_of(row), NOTHING_CLOSED)
    return row if row.at_us > mark else row._replace(at_us=mark + 1)


def _shard_of(row: Row) -> StreamShard:
    return StreamShard(row.stream, row.shard)
