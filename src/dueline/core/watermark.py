"""The mark of a stream's shard, late rows.

What every store without transactions runs, one step at a time, over a few primitives of its own:
how an append is acknowledged (rule F1), and how the mark is raised (rule F2). A producer inserts
and *then looks*: its row counts where the mark is still below it, and is appended again just above
the mark otherwise. A reader raises the mark and *then reads*. Right without any bound on clocks or
pauses: a producer whose look saw the mark below its row had written it before the mark passed, so
the read sees it.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from dueline.core.errors import StoreUnavailable
from dueline.core.store import Row

NOTHING_CLOSED: Final = -1
ROUNDS_MAX: Final = 5
"""How often a row is appended again before it is called unknown."""

SEALED_US: Final = 253_402_300_799_999_999
"""The last instant of the year 9999: a mark there closes a shard for good (rule F5)."""

MARK_MAX: Final = 2**62
"""Greater marks are damage: no row lies above them, so rows that are appended stay unknown."""

MARK_DAMAGED: Final = MARK_MAX + 1
"""What a mark without a value reads as."""

SHARDS_KNOWN_MAX: Final = 10_000


class StreamShard(NamedTuple):
    """A stream's shard."""

    stream: str
    shard: int


class MarkStorage(Protocol):
    """Where rows and marks lie, in steps that stand alone; each has happened when it returns."""

    def marks_of(self, shards: Sequence[StreamShard]) -> Sequence[int]:
        """Read the mark of each shard; NOTHING_CLOSED where it has none."""
        ...

    def mark_of(self, shard: StreamShard) -> int:
        """Read a mark, no older than any write of it that has returned."""
        ...

    def raise_mark(self, shard: StreamShard, *, old: int, new: int) -> bool:
        """Write a mark if it still is `old`."""
        ...

    def put_rows(self, rows: Sequence[Row]) -> Sequence[bool]:
        """Insert rows; one that is there stays as it is. Per row: whether that is sure."""
        ...


class Frontier:
    """The two algorithms over shards; threads may share it.

    It remembers the marks that it has seen, so that a late row is seldom written twice.
    """

    def __init__(self, shards: MarkStorage) -> None:
        self._marks = shards
        self._seen: dict[StreamShard, int] = {}

    def append(self, rows: Sequence[Row]) -> list[int | None]:
        """Insert rows, then look, and append those again that came too late.

        Raises: StoreUnavailable: nothing was written.
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
        """Raise a mark to at least `at_us`; give up where others raise it all the time."""
        for _ in range(ROUNDS_MAX):
            present = self._marks.mark_of(shard)
            self._note(shard, present)
            if at_us <= present or self._marks.raise_mark(shard, old=present, new=at_us):
                self._note(shard, at_us)
                return max(at_us, present)
        return present

    def _insert(self, rows: dict[int, Row], *, is_first: bool) -> set[int]:
        try:
            sure = self._marks.put_rows(list(rows.values()))
        except StoreUnavailable:
            if is_first:
                raise
            return set()  # what was written before may be there or not
        return {number for number, is_sure in zip(rows, sure, strict=True) if is_sure}

    def _look(self, rows: Iterable[Row]) -> Mapping[StreamShard, int] | None:
        """Read the marks of the shards of rows; None: they could not be read."""
        shards = sorted({_shard_of(row) for row in rows})
        if not shards:
            return {}
        with suppress(StoreUnavailable):  # after the write, that is no worse than unknown
            marks = dict(zip(shards, self._marks.marks_of(shards), strict=True))
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
    """Place a row above the mark of its shard."""
    mark = marks.get(_shard_of(row), NOTHING_CLOSED)
    return row if row.at_us > mark else row._replace(at_us=mark + 1)


def _shard_of(row: Row) -> StreamShard:
    return StreamShard(row.stream, row.shard)
