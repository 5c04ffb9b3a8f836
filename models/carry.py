"""Moving a row to another lane.

An operator turns a waiting row into a stub that holds the complete insert of its target, inserts
the target, and deletes the stub; it may die anywhere. Two workers claim in both lanes, and
complete the move of a stub that they read. Another operator cancels a row that it read. Any write
may have no response: then it arrives at any later time, or never.

Guarantees: the job is one runnable row, or a stub that becomes one; it is never lost, and ends
once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

NOW_MAX = 1
LEASE = 1
SOURCE, TARGET = 0, 1
PLACES = ("source", "target")


class Cells(NamedTuple):
    """Cells that an insert writes."""

    fence: int
    at: int
    token: int


class Row(NamedTuple):
    """A row; stub: the cells of its target."""

    cells: Cells
    stub: Cells | None = None


class Write(NamedTuple):
    """A conditional write, or the plain insert of the target.

    seen: the expected cells; a claim compares all of them, not only the token.
    """

    what: str
    place: int
    seen: Cells
    new: Cells | None = None


class Actor(NamedTuple):
    """A process: its next step, a place, a row that was read, and its remaining claims."""

    at: str = "idle"
    place: int = 0
    row: Row | None = None
    claims: int = 0


class State(NamedTuple):
    """The time, rows, processes and pending writes; gone: keys with a tombstone."""

    now: int
    rows: tuple[Row | None, ...]
    gone: tuple[bool, ...]
    inserted: Cells | None
    carrier: Actor
    canceller: Actor
    workers: tuple[Actor, ...]
    sent: frozenset[Write]
    unknowns: int
    token: int
    ended: int = 0
    wrong: str = ""


@dataclass(frozen=True)
class Carry:
    """Rules; a mutant leaves out one."""

    leaves_a_stub: bool = True  # rule K1
    inserts_before_the_stub_goes: bool = True  # rule K3
    waits_for_the_insert: bool = True  # rule K3
    fixes_the_insert_once: bool = True  # rule K2
    stubs_are_never_run: bool = True  # rule K4
    stubs_are_never_cancelled: bool = True  # rule K4
    claims_by_token: bool = True  # rule P1
    carries_by_token: bool = True  # rule P6

    def start(self) -> State:
        """Return a state with one due row."""
        rows = (Row(Cells(0, 0, 1)), None)
        workers = (Actor(claims=1), Actor(claims=1))
        return State(0, rows, (False, False), None, Actor(), Actor(), workers, frozenset(), 1, 10)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let time pass, a write arrive, or a process continue."""
        if state.now < NOW_MAX:
            yield "time passes", state._replace(now=state.now + 1)
        for write in state.sent:
            held, there = self._apply(state._replace(sent=state.sent - {write}), write)
            if held:
                yield f"a late {write.what} arrives", there
        for words, there, after in self._carry(state, state.carrier):
            yield f"the mover {words}", there._replace(carrier=after)
        for words, there, after in self._cancel(state, state.canceller):
            yield f"the canceller {words}", there._replace(canceller=after)
        for number, worker in enumerate(state.workers):
            for words, there, after in self._work(state, worker):
                workers = put(there.workers, number, after)
                yield f"worker {number + 1} {words}", there._replace(workers=workers)

    def fault(self, state: State) -> str:
        """Count runnable rows and ends."""
        if state.wrong:
            return state.wrong
        source, target = state.rows
        is_stub = source is not None and source.stub is not None
        will_be = is_stub and not state.gone[TARGET] and target is None
        runnable = (source is not None and not is_stub) + (target is not None)
        if runnable > 1:
            return "a job has two runnable rows"
        if state.ended > 1:
            return "a job has ended twice"
        if state.ended and (runnable or will_be):
            return "a job can run after its end"
        if not state.ended and not runnable and not is_stub:
            return "a job is lost"
        return ""

    def _carry(self, state: State, one: Actor) -> Iterator[tuple[str, State, Actor]]:
        source = state.rows[SOURCE]
        match one.at:
            case "idle" if source and not source.stub and source.cells.token == 1:
                first = "stub" if self.leaves_a_stub else "insert"
                yield "reads the row", state, one._replace(at=first, row=source)
            case "stub":
                assert one.row
                cells = one.row.cells
                target = cells._replace(token=3)
                write = Write("stub", SOURCE, cells, target)
                held, there = self._apply(state, write)
                stub = Row(cells._replace(token=2), target)
                after = one._replace(at="insert", row=stub)
                if not self.inserts_before_the_stub_goes:
                    after = after._replace(at="drop")
                yield "makes it a stub", there, after if held else Actor("end")
                if state.unknowns:
                    yield "makes it a stub, without a response", _send(state, write), Actor("end")
            case "insert" | "drop":
                yield from self._complete(state, one, Actor("end"))

    def _complete(
        self, state: State, one: Actor, last: Actor
    ) -> Iterator[tuple[str, State, Actor]]:
        """Insert the target, and then delete the stub."""
        assert one.row
        if one.at == "drop":
            drop = Write("drop", SOURCE, one.row.cells)
            after = last
            if not self.inserts_before_the_stub_goes:
                after = one._replace(at="insert")
            yield "deletes the stub", self._apply(state, drop)[1], after
            return
        target = one.row.stub or one.row.cells._replace(token=3)
        if not self.fixes_the_insert_once:
            target = target._replace(token=target.token + one.row.cells.token)
        insert = Write("insert", TARGET, target)
        after = one._replace(at="drop") if self.inserts_before_the_stub_goes else last
        yield "inserts the target", self._apply(state, insert)[1], after
        if state.unknowns:
            unsure = last if self.waits_for_the_insert else after
            yield "inserts the target, without a response", _send(state, insert), unsure

    def _cancel(self, state: State, one: Actor) -> Iterator[tuple[str, State, Actor]]:
        if one.at == "idle":
            for place, row in enumerate(state.rows):
                if row and not (row.stub and self.stubs_are_never_cancelled):
                    yield f"reads the {PLACES[place]}", state, Actor("send", place, row)
        elif one.at == "send":
            assert one.row
            write = Write("end", one.place, one.row.cells)
            yield "cancels", self._apply(state, write)[1], Actor("end")
            if state.unknowns:
                yield "cancels, without a response", _send(state, write), Actor("end")

    def _work(self, state: State, one: Actor) -> Iterator[tuple[str, State, Actor]]:
        idle = Actor(claims=one.claims)
        match one.at:
            case "idle" if one.claims:
                for place, row in enumerate(state.rows):
                    if row and row.cells.at <= state.now:
                        read = Actor("claim", place, row, one.claims - 1)
                        yield f"reads the {PLACES[place]}", state, read
            case "claim":
                assert one.row
                token = state.token
                cells = Cells(one.row.cells.fence + 1, state.now + LEASE, token)
                write = Write("claim", one.place, one.row.cells, cells)
                held, there = self._apply(state._replace(token=token + 1), write)
                mine = one._replace(row=one.row._replace(cells=cells))
                if not held:
                    yield "is rejected", state, idle
                elif one.row.stub and self.stubs_are_never_run:
                    yield "claims the stub", there, mine._replace(at="insert")
                else:
                    yield "claims it and runs it", _ran(there, one.place), mine._replace(at="run")
                if state.unknowns:
                    sent = _send(state._replace(token=token + 1), write)
                    yield "claims it, without a response", sent, idle
            case "run":
                assert one.row
                end = Write("end", one.place, one.row.cells)
                yield "ends it", self._apply(state, end)[1], idle
                if state.unknowns:
                    yield "ends it, without a response", _send(state, end), idle
            case "insert" | "drop":
                yield from self._complete(state, one, idle)

    def _apply(self, state: State, write: Write) -> tuple[bool, State]:
        """Apply a write if its condition holds; a key is inserted once."""
        row = state.rows[write.place]
        if write.what == "insert":
            is_other = state.inserted not in (None, write.seen)
            wrong = "an insert is repeated with other cells" if is_other else state.wrong
            there = state._replace(inserted=write.seen, wrong=wrong)
            if row or state.gone[TARGET]:
                return True, there
            return True, there._replace(rows=put(state.rows, TARGET, Row(write.seen)))
        if row is None or not self._holds(row, write):
            return False, state
        if write.what in ("drop", "end"):
            there = state._replace(
                rows=put(state.rows, write.place, None),
                gone=put(state.gone, write.place, item=True),
                ended=state.ended + (write.what == "end"),
            )
            return True, there
        new = row
        if write.what == "stub":
            new = Row(row.cells._replace(token=2), write.new)
            if row.cells != write.seen:
                state = state._replace(wrong="a claimed row is moved")
        elif write.new:
            new = row._replace(cells=write.new)
        return True, state._replace(rows=put(state.rows, write.place, new))

    def _holds(self, row: Row, write: Write) -> bool:
        if write.what == "claim":
            same = row.cells.token == write.seen.token
            if not self.claims_by_token:
                same = row.cells.fence == write.seen.fence
            return same and row.cells.at == write.seen.at
        if write.what == "stub" and not self.carries_by_token:
            return row.stub is None
        return row.cells.token == write.seen.token


def _ran(state: State, place: int) -> State:
    """Record a fault if a handler starts on a stub."""
    row = state.rows[place]
    is_stub = row is not None and row.stub is not None
    return state._replace(wrong="a handler starts on a stub" if is_stub else state.wrong)


def _send(state: State, write: Write) -> State:
    return state._replace(sent=state.sent | {write}, unknowns=state.unknowns - 1)


MODELS = {"a mover, a canceller, two workers": Carry()}
MUTANTS = {
    "copied and then deleted": Carry(leaves_a_stub=False),
    "the stub is deleted before the insert": Carry(inserts_before_the_stub_goes=False),
    "the stub is deleted after an unknown insert": Carry(waits_for_the_insert=False),
    "each completion inserts other cells": Carry(fixes_the_insert_once=False),
    "a stub runs": Carry(stubs_are_never_run=False),
    "a stub is cancelled": Carry(stubs_are_never_cancelled=False),
    "a claim by the fence": Carry(claims_by_token=False),
    "a move with any token": Carry(carries_by_token=False),
}
