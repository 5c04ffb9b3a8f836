"""The claim cursor of a lane.

A claimer polls once in each unit of time. It reads the lane from its cursor (from the start if its
cache is empty or too old), and claims cached due rows on the condition that the row is unchanged.
Other processes change the one row meanwhile, and its insert and a hop back may arrive late.

Guarantees: no claim is accepted on an outdated cache; a due row is claimed within the maximum age
of a cache and one poll; a row that was read, or arrived in time, is claimed within one poll.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

NOW_MAX = 7
AGE_MAX = 2
GUARD = 1
LEASE = 2
INSERTS_UNTIL = 1
UNSENT = -2


class Row(NamedTuple):
    """Position of the row, and the time from which it may be claimed.

    since: time of its last change. expected: the next poll has to read it.
    """

    pos: int
    hop: int
    at: int
    since: int
    expected: bool


class Known(NamedTuple):
    """A cached row; whether its token and fence are current."""

    pos: int
    hop: int
    at: int
    token: bool = True
    fence: bool = True


class Memory(NamedTuple):
    """Cache of a lane: when it was read from its start, the cursor, the live rows."""

    read: int
    cursor: int
    known: tuple[Known, ...]


class State(NamedTuple):
    """The time, the row, pending writes, the claimer, and remaining actions of others.

    insert, hop_back: positions of pending writes, -1 for none.
    """

    now: int
    row: Row | None
    insert: int
    hop_back: int
    memory: Memory | None
    at: str
    acts: int
    restarts: int
    wrong: str = ""


@dataclass(frozen=True)
class ClaimersMemory:
    """Rules; a mutant leaves out one."""

    claims_by_token: bool = True  # rule R1
    claims_by_at: bool = True  # rule R1
    cursor_stays_behind: bool = True  # rule R2
    remembers_rows: bool = True  # rule R2
    reads_anew_in_time: bool = True  # rule R3
    age_counts_from_the_start: bool = True  # rule R3
    learns_from_refusals: bool = True  # rule R4
    reads_claims_again: bool = True  # rule R9

    def start(self) -> State:
        """Return an empty lane and a claimer without a cache."""
        return State(0, None, UNSENT, -1, None, "poll", 2, 1)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let the insert arrive, others act, or the claimer continue; time waits for its poll."""
        if state.insert == UNSENT and state.now <= INSERTS_UNTIL:
            for pos in (state.now, state.now + 2):
                yield f"an insert at {pos} is sent", state._replace(insert=pos)
        if state.insert >= 0:
            is_late = state.now - state.insert > GUARD
            row = Row(state.insert, 0, state.insert, state.now, not is_late)
            yield "the insert arrives", state._replace(row=row, insert=-1)
        if state.row:
            yield from self._others(state, state.row)
        if state.restarts and state.at != "poll":
            fresh = state._replace(memory=None, at="poll", restarts=state.restarts - 1)
            yield "another claimer takes over", fresh
        match state.at:
            case "poll":
                yield self._poll(state)
            case "claim":
                yield from self._claim(state)
            case "done" if state.now < NOW_MAX:
                yield f"it is {state.now + 1}", self._tick(state)

    def fault(self, state: State) -> str:
        """Return the fault that a step found."""
        return state.wrong

    def _others(self, state: State, row: Row) -> Iterator[tuple[str, State]]:
        now = state.now
        if state.hop_back >= 0:
            is_late = now - state.hop_back > GUARD
            hopped = Row(state.hop_back, row.hop + 1, state.hop_back, now, not is_late)
            yield "the hop back arrives", _changed(state, hopped)._replace(hop_back=-1)
        if not state.acts:
            return
        there = state._replace(acts=state.acts - 1)
        if row.at <= now:
            claimed = row._replace(at=now + LEASE, since=now, expected=False)
            yield "another claims it", _changed(there, claimed, fence=True)
        yield "it is deleted", _changed(there, None)
        if row.at != now and now >= row.pos:
            moved = row._replace(at=now, since=now, expected=_is_known(state, row))
            yield "it is moved to now, in its place", _changed(there, moved)
        yield "it is changed, at the same time", _changed(there, row._replace(expected=False))
        extended = row._replace(at=now + LEASE, since=now, expected=False)
        yield "its claim is extended", there._replace(row=extended)
        ahead = Row(now + 2, row.hop + 1, now + 2, now, expected=False)
        yield "it hops ahead", _changed(there, ahead)
        if row.pos > now and state.hop_back < 0:
            yield "a hop back is sent", there._replace(hop_back=now)

    def _tick(self, state: State) -> State:
        row, wrong = state.row, ""
        if row and row.at <= state.now:
            waited = state.now - max(row.at, row.since)
            if waited > AGE_MAX + 1:
                wrong = "a due row is not claimed within the age of a cache"
            elif row.expected and waited:
                wrong = "an expected row is not claimed"
        return state._replace(now=state.now + 1, at="poll", wrong=wrong)

    def _poll(self, state: State) -> tuple[str, State]:
        now, memory = state.now, state.memory
        is_old = memory is not None and now - memory.read > AGE_MAX
        cursor = now - GUARD if self.cursor_stays_behind else now + 1
        if memory is None or (is_old and self.reads_anew_in_time):
            rows = _read(state, 0)
            there = _seen(state, rows)
            return "it reads the lane from its start", there._replace(
                at="claim", memory=Memory(now, cursor, rows)
            )
        rows = _read(state, memory.cursor)
        behind = tuple(row for row in memory.known if row.pos < memory.cursor)
        known = behind + rows if self.remembers_rows else rows
        if self.reads_claims_again:
            known = tuple(kept for row in known for kept in _read_again(state, row))
        read = memory.read if self.age_counts_from_the_start else now
        there = _seen(state, rows)
        return f"it reads from {memory.cursor}", there._replace(
            at="claim", memory=Memory(read, max(memory.cursor, cursor), known)
        )

    def _claim(self, state: State) -> Iterator[tuple[str, State]]:
        now, memory = state.now, state.memory
        assert memory
        due = [known for known in memory.known if known.at <= now]
        if not due:
            yield "nothing more is due", state._replace(at="done")
            return
        chosen = min(due, key=lambda known: (known.at, known.hop))
        others = tuple(known for known in memory.known if known != chosen)
        row = state.row
        is_there = row is not None and (row.pos, row.hop) == (chosen.pos, chosen.hop)
        if row and is_there and self._holds(row, chosen):
            wrong = "" if chosen.token and row.at == chosen.at else "a claim on an outdated row"
            taken = row._replace(at=now + LEASE, since=now, expected=False)
            there = _changed(state, taken, fence=True)._replace(wrong=wrong)
            mine = Known(taken.pos, taken.hop, taken.at)
            yield "it claims the row", there._replace(memory=memory._replace(known=(*others, mine)))
        elif not self.learns_from_refusals:
            yield "its claim is rejected", state._replace(at="done")
        else:
            present = (Known(chosen.pos, chosen.hop, row.at),) if row and is_there else ()
            learned = memory._replace(known=others + present)
            yield "its claim is rejected with the current row", state._replace(memory=learned)

    def _holds(self, row: Row, known: Known) -> bool:
        same = known.token if self.claims_by_token else known.fence
        return same and (row.at == known.at or not self.claims_by_at)


def _read(state: State, cursor: int) -> tuple[Known, ...]:
    """Read from a position up to the present."""
    row = state.row
    if row is None or not cursor <= row.pos <= state.now:
        return ()
    return (Known(row.pos, row.hop, row.at),)


def _is_known(state: State, row: Row) -> bool:
    """Return whether the next poll reads a row at any position."""
    memory = state.memory
    return memory is None or any(
        (row.pos, row.hop) == (known.pos, known.hop) for known in memory.known
    )


def _read_again(state: State, known: Known) -> tuple[Known, ...]:
    """Reread one cached row, unless it is due; return nothing if it was deleted."""
    row = state.row
    if known.at <= state.now:
        return (known,)
    if row is None or (row.pos, row.hop) != (known.pos, known.hop):
        return ()
    return (Known(row.pos, row.hop, row.at),)


def _seen(state: State, rows: tuple[Known, ...]) -> State:
    if not rows or state.row is None:
        return state
    return state._replace(row=state.row._replace(expected=True))


def _changed(state: State, row: Row | None, *, fence: bool = False) -> State:
    """Give the row a new token that no cache has; a claim also increments the fence."""
    memory = state.memory
    if memory:
        known = tuple(
            known._replace(token=False, fence=known.fence and not fence) for known in memory.known
        )
        memory = memory._replace(known=known)
    return state._replace(row=row, memory=memory)


MODELS = {"one row, one claimer": ClaimersMemory()}
MUTANTS = {
    "a claim by the fence": ClaimersMemory(claims_by_token=False),
    "a claim by the token alone": ClaimersMemory(claims_by_at=False),
    "the cursor passes late inserts": ClaimersMemory(cursor_stays_behind=False),
    "rows behind the cursor are forgotten": ClaimersMemory(remembers_rows=False),
    "the lane is never reread": ClaimersMemory(reads_anew_in_time=False),
    "each read renews the cache": ClaimersMemory(age_counts_from_the_start=False),
    "claims are never reread": ClaimersMemory(reads_claims_again=False),
    "a rejection updates nothing": ClaimersMemory(learns_from_refusals=False),
}
