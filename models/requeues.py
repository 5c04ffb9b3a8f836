"""A job with a unique key that moves to another queue (rule O4), on a store without transactions.

Two movers take the job from the queue a to b; callers of both queues want the key, and a worker
claims and ends the job where it is. Each write is single and conditional on what was read; a record
names its holder, and carries its insert. Processes may stop anywhere.

Guarantees: no two live jobs of a queue hold the key; the job is in one queue, and does not exist
again after its end; a queue that it has left does not refuse the key.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put


class Record(NamedTuple):
    """The record of the key in a queue: its holder, empty for none. is_carried: for a move."""

    owner: str = ""
    is_carried: bool = False


class Mover(NamedTuple):
    """A mover: its next step, and the token and the record that it read."""

    at: str = "read"
    token: int = 0
    expect: Record = Record()


class Caller(NamedTuple):
    """A caller of a queue that wants the key: its next step, and the record that it read."""

    queue: str
    job: str
    at: str = "read"
    expect: Record = Record()


class State(NamedTuple):
    """Rows of the job, by queue; its token; the records of both queues; the processes.

    lives: live rows of other jobs, by their queues. is_over: the job has ended.
    """

    rows: frozenset[str] = frozenset("a")
    token: int = 0
    a: Record = Record("J")
    b: Record = Record()
    movers: tuple[Mover, ...] = (Mover(), Mover())
    callers: tuple[Caller, ...] = (Caller("a", "K"), Caller("b", "L"))
    lives: frozenset[str] = frozenset()
    is_over: bool = False
    is_refused: bool = False


@dataclass(frozen=True)
class Requeues:
    """Rules; a mutant leaves out one."""

    takes_first: bool = True
    reads_the_holder: bool = True
    taken_holds: bool = True
    left_holds_nothing: bool = True
    inserts_nothing: bool = True
    names_the_token: bool = True
    releases_if_moved: bool = True

    def start(self) -> State:
        """Return the job in the queue a, with its key."""
        return State()

    def fault(self, state: State) -> str:
        """Find a key of two jobs, a job in two queues or after its end, or a false refusal."""
        if len(state.rows) > 1:
            return "the job is in two queues"
        if state.rows and state.is_over:
            return "the job exists again after its end"
        if not state.rows and not state.is_over:
            return "the job is lost"
        if state.rows & state.lives:
            return "two jobs of a queue hold the key"
        return "a queue that the job has left refuses the key" if state.is_refused else ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let the worker claim or end the job, or a process continue."""
        for queue in state.rows:
            if state.token < 2:
                yield "a worker changes the job", state._replace(token=state.token + 1)
            record: Record = getattr(state, queue)
            left = {queue: Record()} if record.owner == "J" else {}
            ended = state._replace(rows=frozenset(), is_over=True)
            yield f"the job ends in {queue}", ended._replace(**left)  # type: ignore[arg-type]
        for number, mover in enumerate(state.movers):
            for words, after, there in self._move(state, mover):
                movers = put(state.movers, number, after)
                yield f"mover {number + 1} {words}", there._replace(movers=movers)
        for number, caller in enumerate(state.callers):
            for words, own, there in self._call(state, caller):
                callers = put(state.callers, number, own)
                yield f"the caller of {caller.queue} {words}", there._replace(callers=callers)

    def _holds(self, state: State, queue: str) -> bool:
        """Return whether the holder that a record names holds the key, by its row."""
        record: Record = getattr(state, queue)
        if record.owner != "J":
            return bool(record.owner) and queue in state.lives
        if record.is_carried and not self.taken_holds:
            return queue in state.rows
        if not record.is_carried and self.left_holds_nothing:
            return queue in state.rows
        return bool(state.rows)

    def _move(self, state: State, mover: Mover) -> Iterator[tuple[str, Mover, State]]:
        """Read the row and the record, take the key, move the row, give the old key up."""
        if mover.at == "read" and "a" in state.rows:
            is_taken = state.b.owner not in ("", "J") and self._holds(state, "b")
            if not is_taken or not self.reads_the_holder:
                first = "take" if self.takes_first else "move"
                yield "reads both", Mover(first, state.token, state.b), state
        elif mover.at == "take":
            is_held = state.b == mover.expect
            there = state._replace(b=Record("J", is_carried=True)) if is_held else state
            after = mover._replace(at="move" if self.takes_first else "free")
            yield "takes the key", after if is_held else Mover("done"), there
        elif mover.at == "move":
            is_moved = "a" in state.rows and state.token == mover.token
            if not self.names_the_token:
                is_moved = True
            there = state
            if is_moved:
                there = state._replace(rows=state.rows - {"a"} | {"b"}, token=state.token + 1)
            elif not self.releases_if_moved and state.b.owner == "J":
                there = state._replace(b=Record())
            after = Mover("free" if self.takes_first else "take", 0, mover.expect)
            yield "moves the job", after if is_moved else Mover("done"), there
        elif mover.at == "free":
            there = state._replace(a=Record()) if state.a.owner == "J" else state
            yield "gives the old key up", Mover("done"), there

    def _call(self, state: State, caller: Caller) -> Iterator[tuple[str, Caller, State]]:
        """Read the record and its holder; take the key with the insert, if it is free."""
        queue = caller.queue
        record: Record = getattr(state, queue)
        if caller.at == "read":
            is_rowless = record.is_carried and not state.rows
            if is_rowless and not self.inserts_nothing:  # as if its caller had stopped
                yield "inserts the row", caller, state._replace(rows=frozenset(queue))
            elif not self._holds(state, queue):
                yield "finds the key free", caller._replace(at="take", expect=record), state
            elif record.owner == "J" and queue not in state.rows and not record.is_carried:
                yield "is refused", caller._replace(at="done"), state._replace(is_refused=True)
        elif caller.at == "take":
            there = state
            if record == caller.expect:
                there = state._replace(lives=state.lives | {queue})
                there = there._replace(**{queue: Record(caller.job)})  # type: ignore[arg-type]
            yield "takes the key", caller._replace(at="done"), there


MODELS = {"two movers": Requeues()}
MUTANTS = {
    "the row moves before the key": Requeues(takes_first=False),
    "the holder is not read": Requeues(reads_the_holder=False),
    "a taken key holds nothing": Requeues(taken_holds=False),
    "a key that was left is held": Requeues(left_holds_nothing=False),
    "a taken key inserts the row": Requeues(inserts_nothing=False),
    "the move names no token": Requeues(names_the_token=False),
    "a move that failed gives the key back": Requeues(releases_if_moved=False),
}
