"""A row moves forward while cleanup reads its lane (H4).

The lane holds a row of the far future, and before it a later one that may be deleted. An operator
lists the lane, moves the row to the present (in its place, or by a hop to the lane's start), and
checks. Cleanup reads the lane row by row, and lists it later if all rows are in the future.

Guarantees: after the operator's call returns, claimers find the lane; if a process dies, they find
it at the row's old time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

FAR, FARTHER = 6, 9
NOW_MAX = 3


class Row(NamedTuple):
    """Position of a row, and the time from which it may be claimed."""

    pos: int
    at: int


class Reading(NamedTuple):
    """A read of a lane, row by row. closed: read before; ats: times of the rows read so far.

    listing: the later bucket of the lane, 0 before it is listed.
    """

    at: str = "rest"
    closed: int = 0
    todo: tuple[int, ...] = ()
    after: int = -1
    ats: frozenset[int] = frozenset()
    listing: int = 0


class State(NamedTuple):
    """The time, the lane list, the rows and the processes."""

    now: int
    closed: int
    listed: frozenset[int]
    row: Row
    other: Row | None
    mover: str
    listing: int
    sweep: Reading


@dataclass(frozen=True)
class Forward:
    """Rules, of which a mutant leaves out one; and how the row moves."""

    hops: bool = True
    looks: bool = True  # rule P6
    lists_above_closed: bool = True  # rule E2
    reads_to_the_end: bool = True  # rule S2
    reads_again: bool = True  # rule S3
    lists_later: bool = True  # rule S3

    def start(self) -> State:
        """Return a listed lane with rows in the far future."""
        rows = Row(2, FAR), Row(1, FARTHER)
        return State(1, 0, frozenset({1}), *rows, "list", 0, Reading())

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let time pass, or a process continue."""
        if state.now < NOW_MAX:
            yield "time passes", state._replace(now=state.now + 1)
        if state.other:
            yield "the other row is deleted", state._replace(other=None)
        yield from self._move(state)
        yield from self._sweep(state)

    def fault(self, state: State) -> str:
        """Check what claimers read."""
        until = max(state.now if state.mover == "end" else FAR, state.closed + 1)
        if not any(pointer <= until for pointer in state.listed):
            return "claimers do not find the lane"
        return ""

    def _move(self, state: State) -> Iterator[tuple[str, State]]:
        match state.mover:
            case "list":
                listing = max(state.now, state.closed + 1) if self.lists_above_closed else state.now
                listed = state.listed | {listing}
                yield (
                    f"the mover lists the lane under {listing}",
                    state._replace(listed=listed, listing=listing, mover="move"),
                )
            case "move":
                after = "look" if self.looks else "end"
                row = Row(0 if self.hops else 2, state.now)
                yield "the row is moved to now", state._replace(row=row, mover=after)
            case "look" if state.closed < state.listing:
                yield "the mover checks: open", state._replace(mover="end", listing=0)
            case "look":
                again = state.closed + 1
                yield (
                    "the mover checks: closed, lists it again",
                    state._replace(listed=state.listed | {again}, listing=again),
                )

    def _sweep(self, state: State) -> Iterator[tuple[str, State]]:
        sweep = state.sweep
        match sweep.at:
            case "rest":
                todo = tuple(sorted(p for p in state.listed if p <= state.closed))
                begun = Reading("read", state.closed, todo)
                yield "cleanup reads the watermark and the list", state._replace(sweep=begun)
            case _ if not sweep.todo:
                closed = max(state.closed, state.now - 1)
                yield "cleanup raises closed", state._replace(closed=closed, sweep=Reading())
            case "read":
                yield self._read(state)
            case "judge":
                yield self._judge(state)
            case "look" if state.closed < sweep.listing:
                again = sweep._replace(at="read", after=-1, ats=frozenset())
                there = state._replace(sweep=again)
                yield "cleanup checks: open", there if self.reads_again else self._next(state)
            case "look":
                listing = state.closed + 1
                there = state._replace(listed=state.listed | {listing})
                yield (
                    "cleanup checks: closed, lists it again",
                    there._replace(sweep=sweep._replace(listing=listing)),
                )

    def _read(self, state: State) -> tuple[str, State]:
        sweep = state.sweep
        row = _row_after(state, sweep.after)
        if row is None:
            return "cleanup reads the lane's end", state._replace(sweep=sweep._replace(at="judge"))
        if row.at <= state.now:
            return "cleanup reads a due row", self._next(state, keep=True)
        after = "read" if self.reads_to_the_end else "judge"
        read = sweep._replace(at=after, after=row.pos, ats=sweep.ats | {row.at})
        return "cleanup reads a future row", state._replace(sweep=read)

    def _judge(self, state: State) -> tuple[str, State]:
        """Unlist the lane; if it has rows, list it later and reread it first."""
        sweep = state.sweep
        if not sweep.ats or not self.lists_later:
            return "cleanup unlists the lane", self._next(state)
        if sweep.listing and min(sweep.ats) >= sweep.listing:
            return "cleanup unlists the lane, listed later", self._next(state)
        listing = max(min(sweep.ats), sweep.closed + 1)
        there = state._replace(listed=state.listed | {listing})
        return (
            f"cleanup lists the lane under {listing}",
            there._replace(sweep=sweep._replace(at="look", listing=listing)),
        )

    def _next(self, state: State, *, keep: bool = False) -> State:
        """Continue with the next pointer."""
        sweep = state.sweep
        listed = state.listed if keep else state.listed - {sweep.todo[0]}
        return state._replace(listed=listed, sweep=Reading("read", sweep.closed, sweep.todo[1:]))


def _row_after(state: State, pos: int) -> Row | None:
    """Return the first row after a position."""
    rows = [row for row in (state.row, state.other) if row and row.pos > pos]
    return min(rows, default=None)


MODELS = {"by a hop": Forward(), "in its place": Forward(hops=False)}
MUTANTS = {
    "no check": Forward(looks=False),
    "listed under a closed bucket": Forward(lists_above_closed=False, looks=False),
    "cleanup reads one row": Forward(hops=False, reads_to_the_end=False),
    "a lane listed later is not reread": Forward(reads_again=False),
    "a future lane is unlisted": Forward(lists_later=False),
}
