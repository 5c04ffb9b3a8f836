"""Stores whose streams are broken on purpose."""

from dueline.core.store import Row, RowPage
from dueline.stores.memory.store import MemoryStore


class AppendOverwrites(MemoryStore):
    """Writes a row of a stream over one that is there."""

    def _append(self, row: Row) -> int:
        place = super()._append(row)
        self._streams[row.stream, row.shard][place, row.id] = row._replace(at_us=place)
        return place


class AppendsBelowTheMark(MemoryStore):
    """Lets a row lie where it wants to."""

    def _append(self, row: Row) -> int:
        table = self._streams.setdefault((row.stream, row.shard), {})
        return table.setdefault((row.at_us, row.id), row).at_us


class ClosesBack(MemoryStore):
    """Lets a mark go back."""

    def close_until(self, stream: str, shard: int, *, at_us: int) -> int:
        self._closed[stream, shard] = at_us
        return at_us


class TailGoesPast(MemoryStore):
    """Reads what is not closed yet."""

    def tail(
        self,
        stream: str,
        shard: int,
        *,
        after: tuple[int, bytes] | None,
        limit: int,
        until_us: int | None = None,  # noqa: ARG002  what it leaves out
        skip: int = 0,
    ) -> RowPage:
        return super().tail(stream, shard, after=after, limit=limit, skip=skip)


class ExpiresTheOpen(MemoryStore):
    """Lets go of rows that are not closed."""

    def expire(self, stream: str, shard: int, *, before_us: int) -> None:
        table = self._streams.get((stream, shard), {})
        for place in [place for place in table if place[0] < before_us]:
            del table[place]


class TailStartsAnew(MemoryStore):
    """Loses a reader's place when there is nothing to read."""

    def tail(
        self,
        stream: str,
        shard: int,
        *,
        after: tuple[int, bytes] | None,
        limit: int,
        until_us: int | None = None,
        skip: int = 0,
    ) -> RowPage:
        page = super().tail(stream, shard, after=after, limit=limit, until_us=until_us, skip=skip)
        return page if page.rows else page._replace(after=None)
