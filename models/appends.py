"""The watermark of a stream's shard, where appends are committed long after they were made (T12).

An append runs in a transaction of its caller, which may stay open. It takes a lock that names the
lowest position it may use, then looks which positions are closing, inserts its row above them, and
commits or not; the lock ends after the commit. A reader announces up to where it closes, then
looks which locks there are, closes below the lowest of them, and reads up to there.

Guarantees: no row appears at or below the watermark, so each reader sees each row in order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

NO_LOCK = 99


class Append(NamedTuple):
    """A caller's transaction. lock: the lowest position it may use; row: the position it uses."""

    at: str = "begin"
    clock: int = 0
    lock: int = NO_LOCK
    row: int = 0


class Reader(NamedTuple):
    """A reader. until: up to where it closes; lowest: the lowest lock that it has seen."""

    at: str = "rest"
    until: int = 0
    lowest: int = NO_LOCK


class State(NamedTuple):
    """The announced position, the watermark, and the processes."""

    closing: int
    closed: int
    appends: tuple[Append, ...]
    readers: tuple[Reader, ...]
    wrong: str = ""


@dataclass(frozen=True)
class Appends:
    """Rules, of which a mutant leaves out one; and the number of processes."""

    locks_first: bool = True  # rule F8
    looks: bool = True  # rule F8
    keeps_the_lock: bool = True  # rule F8
    announces_first: bool = True  # rule F9
    looks_at_locks: bool = True  # rule F9
    closes_its_own: bool = True  # rule F9
    appends: int = 2
    readers: int = 2
    clock_max: int = 3

    def start(self) -> State:
        """Return an empty shard."""
        return State(0, 0, (Append(),) * self.appends, (Reader(),) * self.readers)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let each process continue."""
        for number, append in enumerate(state.appends):
            for words, new in self._append(state, append):
                appends = tuple(sorted(put(state.appends, number, new)))
                there = state._replace(appends=appends)
                if new.at == "visible" and append.at != "visible" and new.row <= state.closed:
                    there = there._replace(wrong="a row appears below the watermark")
                yield f"a transaction {words}", there
        for number, reader in enumerate(state.readers):
            for words, there, after in self._read(state, reader):
                readers = tuple(sorted(put(there.readers, number, after)))
                yield f"a reader {words}", there._replace(readers=readers)

    def fault(self, state: State) -> str:
        """Return what went wrong."""
        return state.wrong

    def _append(self, state: State, append: Append) -> Iterator[tuple[str, Append]]:
        match append.at:
            case "begin":
                for clock in range(1, self.clock_max + 1):
                    lock = max(clock, state.closing + 1)
                    begun = append._replace(at="lock", clock=clock, lock=lock)
                    yield f"begins at {clock}, will lock {lock}", begun
            case "lock":
                if self.locks_first:
                    yield "takes the lock", append._replace(at="look")
                else:
                    yield from self._look(state, append, "late lock")
            case "look":
                yield from self._look(state, append, "insert")
            case "late lock":
                yield "takes the lock", append._replace(at="insert")
            case "insert":
                after = append if self.keeps_the_lock else append._replace(lock=NO_LOCK)
                yield "has inserted its row", after._replace(at="commit")
            case "commit":
                yield "is rolled back", Append("end")
                yield "is committed", append._replace(at="visible")
            case "visible":
                yield "releases its lock", Append("end")

    def _look(self, state: State, append: Append, after: str) -> Iterator[tuple[str, Append]]:
        closing = state.closing if self.looks else append.lock - 1
        row = max(append.clock, closing + 1)
        yield f"looks, and will insert at {row}", append._replace(at=after, row=row)

    def _read(self, state: State, reader: Reader) -> Iterator[tuple[str, State, Reader]]:
        match reader.at:
            case "rest":
                for until in range(state.closed + 1, self.clock_max + 1):
                    there = state
                    if self.announces_first:
                        there = state._replace(closing=max(state.closing, until))
                    yield f"announces {until}", there, Reader("announced", until)
            case "announced":
                lowest = NO_LOCK
                if self.looks_at_locks:
                    lowest = min(_locks_of(state), default=NO_LOCK)
                yield f"sees the locks from {lowest}", state, Reader("looked", reader.until, lowest)
            case "looked":
                until = reader.until if self.closes_its_own else state.closing
                closed = max(state.closed, min(until, reader.lowest - 1))
                closing = max(state.closing, closed)
                there = state._replace(closed=closed, closing=closing)
                yield f"closes up to {closed}, and reads", there, Reader()


def _locks_of(state: State) -> list[int]:
    """Return the locks that are held."""
    held = {"look", "insert", "commit", "visible"}
    return [append.lock for append in state.appends if append.at in held]


MODELS = {
    "two transactions, two readers": Appends(),
    "three transactions, one reader": Appends(appends=3, readers=1, clock_max=2),
}
MUTANTS = {
    "a look before the lock": Appends(locks_first=False),
    "no look": Appends(looks=False),
    "a lock that ends before the commit": Appends(keeps_the_lock=False),
    "no announcement": Appends(announces_first=False),
    "no look at the locks": Appends(looks_at_locks=False),
    "closed up to what others announced": Appends(closes_its_own=False),
}
