"""A row is moved forward while a sweep pages its lane.

The lane holds a row of the far future, and before it one of a farther future that may go. An
operator lists the lane, moves the row to the present (in its place, or by a hop to the lane's
start), and looks. The sweep reads the lane row by row, and lists it later where all rows are of
the future.

Promised: once the operator was told, claimers find the lane; and whatever dies, they find it at
the row's old time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

FAR, FARTHER = 6, 9
NOW_MAX = 3


class Row(NamedTuple):
    """Where it lies, and when it may be touched."""

    pos: int
    at: int


class Reading(NamedTuple):
    """Of a lane, row by row. closed: read before; ats: of the rows seen so far.

    listing: where the lane was listed later, 0 before.
    """

    at: str = "rest"
    closed: int = 0
    todo: tuple[int, ...] = ()
    after: int = -1
    ats: frozenset[int] = frozenset()
    listing: int = 0


class State(NamedTuple):
    """The time, the list, the rows; who is where."""

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
    """The rules, each of which can be left out; and how the row is moved."""

    hops: bool = True
    looks: bool = True  # rule P6
    lists_above_closed: bool = True  # rule E2
    reads_to_the_end: bool = True  # rule S2
    reads_again: bool = True  # rule S3
    lists_later: bool = True  # rule S3

    def start(self) -> State:
        """Begin with a listed lane whose rows are of the far future."""
        rows = Row(2, FAR), Row(1, FARTHER)
        return State(1, 0, frozenset({1}), *rows, "list", 0, Reading())

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let time pass, or an actor do its next step."""
        if state.now < NOW_MAX:
            yield "time passes", state._replace(now=state.now + 1)
        if state.other:
            yield "the other row goes", state._replace(other=None)
        yield from self._move(state)
        yield from self._sweep(state)

    def fault(self, state: State) -> str:
        """Look at what claimers see."""
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
                yield "the mover looks: open", state._replace(mover="end", listing=0)
            case "look":
                again = state.closed + 1
                yield (
                    "the mover looks: closed, lists it again",
                    state._replace(listed=state.listed | {again}, listing=again),
                )

    def _sweep(self, state: State) -> Iterator[tuple[str, State]]:
        one = state.sweep
        match one.at:
            case "rest":
                todo = tuple(sorted(p for p in state.listed if p <= state.closed))
                begun = Reading("read", state.closed, todo)
                yield "the sweep reads the mark and the list", state._replace(sweep=begun)
            case _ if not one.todo:
                closed = max(state.closed, state.now - 1)
                yield "the sweep raises closed", state._replace(closed=closed, sweep=Reading())
            case "read":
                yield self._read(state)
            case "judge":
                yield self._judge(state)
            case "look" if state.closed < one.listing:
                again = one._replace(at="read", after=-1, ats=frozenset())
                there = state._replace(sweep=again)
                yield "the sweep looks: open", there if self.reads_again else self._next(state)
            case "look":
                listing = state.closed + 1
                there = state._replace(listed=state.listed | {listing})
                yield (
                    "the sweep looks: closed, lists it again",
                    there._replace(sweep=one._replace(listing=listing)),
                )

    def _read(self, state: State) -> tuple[str, State]:
        one = state.sweep
        row = _row_after(state, one.after)
        if row is None:
            return "the sweep reads the lane's end", state._replace(sweep=one._replace(at="judge"))
        if row.at <= state.now:
            return "the sweep reads a due row", self._next(state, keep=True)
        after = "read" if self.reads_to_the_end else "judge"
        read = one._replace(at=after, after=row.pos, ats=one.ats | {row.at})
        return "the sweep reads a row of the future", state._replace(sweep=read)

    def _judge(self, state: State) -> tuple[str, State]:
        """Unlist the lane where it is; where it holds rows, list it later and read it again."""
        one = state.sweep
        if not one.ats or not self.lists_later:
            return "the sweep unlists the lane", self._next(state)
        if one.listing and min(one.ats) >= one.listing:
            return "the sweep unlists the lane, listed later", self._next(state)
        listing = max(min(one.ats), one.closed + 1)
        there = state._replace(listed=state.listed | {listing})
        return (
            f"the sweep lists the lane under {listing}",
            there._replace(sweep=one._replace(at="look", listing=listing)),
        )

    def _next(self, state: State, *, keep: bool = False) -> State:
        """Go on with the next pointer."""
        one = state.sweep
        listed = state.listed if keep else state.listed - {one.todo[0]}
        return state._replace(listed=listed, sweep=Reading("read", one.closed, one.todo[1:]))


def _row_after(state: State, pos: int) -> Row | None:
    """Read one row, the first past a place; whatever is read at once is read as it was."""
    rows = [row for row in (state.row, state.other) if row and row.pos > pos]
    return min(rows, default=None)


MODELS = {"by a hop": Forward(), "in its place": Forward(hops=False)}
MUTANTS = {
    "no look": Forward(looks=False),
    "listed under a closed bucket": Forward(lists_above_closed=False, looks=False),
    "a sweep that reads one row": Forward(hops=False, reads_to_the_end=False),
    "a lane listed later is not read again": Forward(reads_again=False),
    "a future lane is unlisted": Forward(lists_later=False),
}
