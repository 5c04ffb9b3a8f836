"""The lane list and its two marks.

Stores without transactions run these algorithms over their own primitives: how a write is
acknowledged (rules E2 to E4), and how empty lanes are unlisted (rules S1 to S5). They need no
bound on clocks or pauses, only that every read sees the writes that returned before it.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

from dueline.core.errors import StoreUnavailable
from dueline.core.lane import Lane, Marks, Pointer, bucket_of, closing_bucket

NOTHING_CLOSED = Marks(swept=-1, closed=-1)

ROUNDS_MAX = 5
"""Maximum number of times that a lane is listed before the result of a write is unknown."""

LISTED_MAX = 10_000
"""Maximum number of cached pointers of a shard."""

Answer = TypeVar("Answer")


class LaneHead(NamedTuple):
    """`at_us` of the first rows of a lane. is_all: The lane has no other rows."""

    ats_us: Sequence[int]
    is_all: bool


class Shard(NamedTuple):
    """A shard of a queue."""

    queue: str
    number: int


class LaneIndexStorage(Protocol):
    """Primitive operations on lane lists; each is complete when it returns."""

    def closed(self, shards: Sequence[Shard]) -> Sequence[int]:
        """Return the `closed` mark of each shard; -1 for none."""
        ...

    def marks(self, shard: Shard) -> Marks:
        """Return both marks, at least as new as any write that has returned."""
        ...

    def raise_marks(self, shard: Shard, *, old: Marks, new: Marks) -> bool:
        """Replace the marks if they still are `old`; return whether they were."""
        ...

    def put(self, pointers: Collection[Pointer]) -> None:
        """Add pointers; a pointer that was ever removed is not added."""
        ...

    def remove(self, pointers: Collection[Pointer]) -> None:
        """Remove pointers for ever (rule S5)."""
        ...

    def pointers(self, shard: Shard, *, above: int, until: int) -> Iterable[Pointer]:
        """Return the pointers with `above < listing <= until`."""
        ...

    def heads(self, lanes: Sequence[Lane]) -> Sequence[LaneHead | None]:
        """Return the first rows of lanes; None for each if one lane at a time costs the same."""
        ...

    def ats_us(self, lane: Lane) -> Iterable[int]:
        """Yield `at_us` of every row of a lane, from its start to its end."""
        ...


class _ShardCache:
    """A process's cache of a shard: `closed`, which only grows, and pointers put above it."""

    def __init__(self, closed: int) -> None:
        self._lock = threading.Lock()
        self.closed = closed
        self.listed: set[Pointer] = set()

    def update(self, closed: int) -> None:
        with self._lock:
            if closed > self.closed:
                self.closed = closed
                self.listed = {pointer for pointer in self.listed if pointer.listing > closed}

    def note(self, pointer: Pointer) -> None:
        with self._lock:
            if len(self.listed) >= LISTED_MAX:
                self.listed.clear()
            self.listed.add(pointer)


class LaneIndex:
    """Lists lanes and unlists empty ones. Thread-safe.

    Caches the pointers that it has put: a pointer whose bucket is still above `closed` at the next
    check still exists (rule E2).
    """

    def __init__(self, storage: LaneIndexStorage) -> None:
        self._storage = storage
        self._shards: dict[Shard, _ShardCache] = {}

    def acknowledge(
        self, listings: Mapping[Lane, int], write: Callable[[], Answer]
    ) -> tuple[Answer, frozenset[Lane]]:
        """List lanes, write rows into them, then check the list (rules E2, E3).

        If the bucket of a lane was closed meanwhile, the lane is listed under the first open
        bucket and checked again (rule E4). Rows are written only once.

        Args:
          listings: For each lane the bucket in which its rows are due.
          write: Writes the rows.

        Returns:
          The result of `write`, and the lanes that could not be listed or checked in ROUNDS_MAX
          rounds: their rows exist, but workers may not find them.

        Raises:
          StoreUnavailable: Nothing was written.
        """
        self._read_missing({_shard_of(lane) for lane in listings})
        waiting = {
            lane: max(listing, self._shards[_shard_of(lane)].closed + 1)
            for lane, listing in listings.items()
        }
        self._list(waiting)
        answer = write()
        with suppress(StoreUnavailable):  # the rows are written: their result is unknown
            for _ in range(ROUNDS_MAX):
                self._check({_shard_of(lane) for lane in waiting})
                waiting = {
                    lane: self._shards[_shard_of(lane)].closed + 1
                    for lane, listing in waiting.items()
                    if listing <= self._shards[_shard_of(lane)].closed
                }
                if not waiting:
                    break
                self._list(waiting)
        return answer, frozenset(waiting)

    def sweep(self, shard: Shard, *, now_us: int, width_us: int) -> Marks:
        """Unlist empty lanes at or below `closed`, then raise both marks, in this order."""
        marks = self._storage.marks(shard)  # before any lane is read: rule S1
        closed = marks.closed
        self._update(shard, closed)
        kept = closed + 1
        gone: list[Pointer] = []
        pointers = sorted(self._storage.pointers(shard, above=marks.swept, until=closed))
        heads = self._storage.heads([pointer.lane for pointer in pointers])
        for pointer, head in zip(pointers, heads, strict=True):
            is_needed = None if head is None else _needed_by(head, now_us)
            if is_needed is None:
                is_needed = self._is_needed(pointer.lane, now_us=now_us, width_us=width_us)
            if is_needed:
                kept = min(kept, pointer.listing)
            else:
                gone.append(pointer)
        self._storage.remove(gone)
        raised = Marks(kept - 1, closing_bucket(now_us, width_us))
        return self._raise(shard, marks, raised)

    def _is_needed(self, lane: Lane, *, now_us: int, width_us: int) -> bool:
        """Return whether a lane keeps its pointer; list a lane of future rows later instead.

        The lane is read again after it is listed. The first read misses a row that moves to a
        position already read, and the process that moved the row may have died (rule S3).
        """
        listed_us: int | None = None
        for _ in range(ROUNDS_MAX):
            head_us: int | None = None
            for at_us in self._storage.ats_us(lane):  # rules S2, R5
                if at_us <= now_us:
                    return True
                head_us = at_us if head_us is None else min(head_us, at_us)
            if head_us is None or (listed_us is not None and listed_us <= head_us):
                return False
            _, unknown = self.acknowledge({lane: bucket_of(head_us, width_us)}, _nothing)
            if unknown:
                return True
            listed_us = head_us
        return True

    def _raise(self, shard: Shard, present: Marks, raised: Marks) -> Marks:
        """Raise the marks to at least `raised` (rule S4); give up after ROUNDS_MAX conflicts."""
        for _ in range(ROUNDS_MAX):
            new = Marks(*map(max, present, raised))
            if new == present or self._storage.raise_marks(shard, old=present, new=new):
                present = new
                break
            present = self._storage.marks(shard)
        self._update(shard, present.closed)
        return present

    def _read_missing(self, shards: Iterable[Shard]) -> None:
        """Read the marks of shards that are not cached, so that no closed bucket is used."""
        self._check([shard for shard in shards if shard not in self._shards])

    def _check(self, shards: Collection[Shard]) -> None:
        checked = list(shards)
        if checked:
            for shard, closed in zip(checked, self._storage.closed(checked), strict=True):
                self._update(shard, closed)

    def _update(self, shard: Shard, closed: int) -> None:
        self._shards.setdefault(shard, _ShardCache(closed)).update(closed)

    def _list(self, listings: Mapping[Lane, int]) -> None:
        new = [
            pointer
            for lane, listing in listings.items()
            if (pointer := Pointer(listing, lane)) not in self._shards[_shard_of(lane)].listed
        ]
        if new:
            self._storage.put(new)
            for pointer in new:
                self._shards[_shard_of(pointer.lane)].note(pointer)


def _needed_by(head: LaneHead, now_us: int) -> bool | None:
    """Return whether a lane is needed, or None if its first rows do not decide that."""
    if any(at_us <= now_us for at_us in head.ats_us):
        return True
    return False if head.is_all and not head.ats_us else None


def _shard_of(lane: Lane) -> Shard:
    return Shard(lane.queue, lane.shard)


def _nothing() -> None:
    """Write nothing: the rows exist."""
