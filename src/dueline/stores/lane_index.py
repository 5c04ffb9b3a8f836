"""The lane list and its two marks.

What every store without transactions runs, one step at a time, over a few primitives of its
own: how a write is acknowledged (rules E2 to E4), and how empty lanes are unlisted (rules S1 to
S5). Both are right without any bound on clocks or pauses; what they need is that a write that has
returned is seen by every later read.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreUnavailable
from dueline.core.lane import Lane, Marks, Pointer, bucket_of

NOTHING_CLOSED = Marks(swept=-1, closed=-1)

ROUNDS_MAX = 5
"""How often a lane is listed again before its write is called unknown."""

GUARD_US = 2 * SECOND_US
"""How far `closed` stays behind the present, so that rule E4 is rare; nothing rests on it."""

LISTED_MAX = 10_000
"""How many pointers of a shard are remembered as listed."""

Answer = TypeVar("Answer")


class LaneHead(NamedTuple):
    """The first rows of a lane. is_all: there are no others."""

    ats_us: Sequence[int]
    is_all: bool


class Shard(NamedTuple):
    """Whose list it is."""

    queue: str
    number: int


class LaneIndexStorage(Protocol):
    """Where lane lists lie, in steps that stand alone; each has happened when it returns."""

    def closed(self, shards: Sequence[Shard]) -> Sequence[int]:
        """Read the closed mark of each shard; -1 where it has none."""
        ...

    def marks(self, shard: Shard) -> Marks:
        """Read both marks, no older than any write of them that has returned."""
        ...

    def raise_marks(self, shard: Shard, *, old: Marks, new: Marks) -> bool:
        """Write the marks if they still are `old`."""
        ...

    def put(self, pointers: Collection[Pointer]) -> None:
        """Add pointers; one that was removed before stays away."""
        ...

    def remove(self, pointers: Collection[Pointer]) -> None:
        """Remove pointers, for ever (rule S5)."""
        ...

    def pointers(self, shard: Shard, *, above: int, until: int) -> Iterable[Pointer]:
        """Read the pointers with `above < listing <= until`."""
        ...

    def heads(self, lanes: Sequence[Lane]) -> Sequence[LaneHead | None]:
        """Read the first rows of lanes, as far as that costs less than one lane after the other."""
        ...

    def ats_us(self, lane: Lane) -> Iterable[int]:
        """Read `at_us` of every row of a lane, from its start to its end."""
        ...


class _Seen:
    """What one process knows of a shard's list: a `closed`, and pointers put above it.

    Its threads change it under the lock; `closed` only grows.
    """

    def __init__(self, closed: int) -> None:
        self._lock = threading.Lock()
        self.closed = closed
        self.listed: set[Pointer] = set()

    def look(self, closed: int) -> None:
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
    """The two algorithms over a board; threads may share it.

    It remembers which pointers it has put: one whose listing bucket is still above `closed` at
    the look that follows is still there (rule E2).
    """

    def __init__(self, board: LaneIndexStorage) -> None:
        self._board = board
        self._shards: dict[Shard, _Seen] = {}

    def acknowledge(
        self, listings: Mapping[Lane, int], write: Callable[[], Answer]
    ) -> tuple[Answer, frozenset[Lane]]:
        """List lanes, write rows into them, then look (rules E2, E3).

        A lane whose listing bucket was closed meanwhile is listed again under the first one
        that is not, and looked at again (rule E4); never a second row.

        Args: listings: for each lane the bucket that its rows are due in.

        Returns: what `write` returned; the lanes that could not be listed in five rounds, or not
          looked at: what was written into them is there, and maybe nobody looks.

        Raises: StoreUnavailable: nothing was written.
        """
        self._read_unseen({_shard_of(lane) for lane in listings})
        waiting = {
            lane: max(listing, self._shards[_shard_of(lane)].closed + 1)
            for lane, listing in listings.items()
        }
        self._list(waiting)
        answer = write()
        with suppress(StoreUnavailable):  # after the write, that is no worse than unknown
            for _ in range(ROUNDS_MAX):
                self._look({_shard_of(lane) for lane in waiting})
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
        """Unlist what is empty at or below `closed`, then raise both marks: in this order."""
        marks = self._board.marks(shard)  # before any lane is looked at: rule S1
        closed = marks.closed
        self._seen(shard, closed)
        kept = closed + 1
        gone: list[Pointer] = []
        pointers = sorted(self._board.pointers(shard, above=marks.swept, until=closed))
        heads = self._board.heads([pointer.lane for pointer in pointers])
        for pointer, head in zip(pointers, heads, strict=True):
            is_needed = None if head is None else _told_by(head, now_us)
            if is_needed is None:
                is_needed = self._is_needed(pointer.lane, now_us=now_us, width_us=width_us)
            if is_needed:
                kept = min(kept, pointer.listing)
            else:
                gone.append(pointer)
        self._board.remove(gone)
        raised = Marks(kept - 1, bucket_of(now_us - GUARD_US, width_us) - 1)
        return self._raise(shard, marks, raised)

    def _is_needed(self, lane: Lane, *, now_us: int, width_us: int) -> bool:
        """Tell whether a lane stays listed where it is; list it later where all is future.

        It is read again after that: a row that was moved to before the place where the first
        reading had come to was not seen by it, and whoever moved it may have died (rule S3).
        """
        listed_us: int | None = None
        for _ in range(ROUNDS_MAX):
            head_us: int | None = None
            for at_us in self._board.ats_us(lane):  # rules S2, R5
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
        """Raise the marks to at least `raised` (rule S4); give up where others always do."""
        for _ in range(ROUNDS_MAX):
            new = Marks(*map(max, present, raised))
            if new == present or self._board.raise_marks(shard, old=present, new=new):
                present = new
                break
            present = self._board.marks(shard)
        self._seen(shard, present.closed)
        return present

    def _read_unseen(self, shards: Iterable[Shard]) -> None:
        """Look first where nothing was seen yet, so that no closed bucket is listed under."""
        self._look([shard for shard in shards if shard not in self._shards])

    def _look(self, shards: Collection[Shard]) -> None:
        looked = list(shards)
        if looked:
            for shard, closed in zip(looked, self._board.closed(looked), strict=True):
                self._seen(shard, closed)

    def _seen(self, shard: Shard, closed: int) -> None:
        self._shards.setdefault(shard, _Seen(closed)).look(closed)

    def _list(self, listings: Mapping[Lane, int]) -> None:
        pointers = [Pointer(listing, lane) for lane, listing in listings.items()]
        new = [one for one in pointers if one not in self._shards[_shard_of(one.lane)].listed]
        if new:
            self._board.put(new)
            for pointer in new:
                self._shards[_shard_of(pointer.lane)].note(pointer)


def _told_by(head: LaneHead, now_us: int) -> bool | None:
    """Tell whether a lane is needed, if its first rows do: one is due, or there is none at all."""
    if any(at_us <= now_us for at_us in head.ats_us):
        return True
    return False if head.is_all and not head.ats_us else None


def _shard_of(lane: Lane) -> Shard:
    return Shard(lane.queue, lane.shard)


def _nothing() -> None:
    """Write nothing: the rows are there."""
