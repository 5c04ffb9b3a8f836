"""One write decides, and carries the rest (R13).

A *place* is a job's row or a record. Two processes decide about it by one conditional write each,
which also writes the consequences of the decision into the place's cell: a conditional write of
another record, an insert, and the wake-up of a parked row. They then write the consequences and
clear the cell, and may stop anywhere. A third process claims the row, or reads the record, and
completes what it finds. Any write may have no response: then it arrives at any later time, or
never. Meanwhile the inserted row runs and ends, the other record is changed or deleted, and the
parked row is claimed. A day after a decision its insert is late; the store later forgets deleted
keys.

Guarantees: one decision for a version; its consequences once, and before the cell is cleared;
nothing of a decision that was refused; no handler after it; nothing that has moved on is
overwritten; nothing acknowledged is lost; no cell waits forever.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

LATE, FORGOTTEN = 1, 2
"""Ages of a decision: a day, and the time after which the store forgets deleted keys."""


class Place(NamedTuple):
    """A row or a record; a record that does not exist has the first version.

    cell: the decision whose consequences it carries. done: the decision that a record notes as
    complete; a row is deleted instead.
    """

    version: str = "first"
    cell: str = ""
    done: str = ""

    def is_open(self) -> bool:
        """Return whether consequences may be missing."""
        return self.cell not in ("", self.done)


class Write(NamedTuple):
    """A write without a response; named: the version that it expects, by: who sent it."""

    what: str
    decision: str = ""
    named: str = ""
    by: int = 0


class Actor(NamedTuple):
    """A process.

    named: the version that its write expects. doing: the decision whose consequences it writes.
    number: of the next consequence. since: the age of the decision when it was read. is_unsure: a
    response was lost. has_given_up: it did not insert the row, because it was late.
    """

    at: str = "read"
    named: str = ""
    doing: str = ""
    number: int = 0
    since: int = 0
    is_unsure: bool = False
    has_given_up: bool = False


class State(NamedTuple):
    """The place, the targets of consequences, processes and pending writes.

    note: the version of another record. rows: inserted rows, each with what its cells depend on.
    ended: those that ran and were deleted. parked: the state of the row to wake.
    decisions: with the version that each named, until the record is deleted.
    applied: consequences that were written, or skipped since their target had moved on.
    """

    place: Place | None
    actors: tuple[Actor, ...]
    note: str = "other"
    rows: frozenset[tuple[str, int]] = frozenset()
    ended: frozenset[str] = frozenset()
    parked: str = "parked"
    decisions: tuple[tuple[str, str], ...] = ()
    applied: frozenset[tuple[str, str]] = frozenset()
    acknowledged: frozenset[str] = frozenset()
    sent: frozenset[Write] = frozenset()
    age: int = 0
    changes: int = 1
    unknowns: int = 1
    wrong: str = ""


NAMES = ("A", "B", "")
"""The decision that each process makes; the third one only completes."""


@dataclass(frozen=True)
class Carried:
    """Rules; a mutant leaves out one.

    consequences: of each decision, in order. is_record: the place is a record, whose insert is a
    new job; otherwise it is a row, and the insert continues its job.
    """

    consequences: tuple[str, ...] = ("note", "insert")
    is_record: bool = False
    decides_first: bool = True  # rules C1, P5
    names_the_version: bool = True  # rules C1, P2, B2
    replaces_the_version: bool = True  # rules C1, P2, K1
    knows_its_own: bool = True  # rule U5
    derives_consequences: bool = True  # rules C2, B2, B3, K2
    clears_last: bool = True  # rules C3, P5, K3
    waits_for_answers: bool = True  # rules C3, K3
    notes_the_version: bool = True  # rule C3
    completes_before_it_acts: bool = True  # rules C4, P5, K4
    proves_before_it_overwrites: bool = True  # rule C4
    inserts_once: bool = True  # rule B1
    inserts_in_time: bool = True  # rule C5
    reads_again: bool = True  # rule C5
    continues_jobs: bool = True  # rule C5
    keys_outlast_cells: bool = True  # rule C5
    skips_what_moved_on: bool = True  # rule C6
    names_versions: bool = True  # rule C6
    wakes_the_parked: bool = True  # rule C6
    acknowledges_last: bool = True  # rule C7
    shows_decisions: bool = True  # rule C8
    comes_due: bool = True  # rule C9
    is_read: bool = True  # rule C9

    def start(self) -> State:
        """Return a place that the first process has read; it may hold the claim of a row."""
        return State(Place(), (Actor("decide", "first"), Actor(), Actor()))

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a write arrive, time pass, others use the targets, or a process continue."""
        for write in state.sent:
            there = state._replace(sent=state.sent - {write})
            yield f"a late {write.what} arrives", self._apply(there, write)[1]
        yield from self._others(state)
        for number, actor in enumerate(state.actors):
            for words, there, after in self._act(state, actor, number):
                yield (
                    f"process {number + 1} {words}",
                    there._replace(actors=put(there.actors, number, after)),
                )

    def fault(self, state: State) -> str:
        """Compare the decisions with their consequences."""
        if state.wrong:
            return state.wrong
        names = [name for _, name in state.decisions]
        versions = [version for version, _ in state.decisions if version]
        if len(set(versions)) < len(versions):
            return "two decisions about one version"
        if any(name not in names for name, _ in state.applied):
            return "a consequence of a decision that was not made"
        if len({name for name, _ in state.rows}) < len(state.rows):
            return "a job has two rows"
        if any(name in state.ended for name, _ in state.rows):
            return "a job exists again after its end"
        for name in names:
            is_carried = state.place is not None and state.place.cell == name
            if is_carried and state.place and state.place.is_open():
                continue
            for what in self.consequences:
                may_lack = what == "insert" and self.is_record and state.age >= LATE
                if (name, what) in state.applied:
                    continue
                if name in state.acknowledged and what == "insert":
                    return "an acknowledged job is lost"
                if not may_lack:
                    return "the cell is cleared before its consequences"
        return self._waiting(state)

    def _waiting(self, state: State) -> str:
        """Find a cell that no process completes any more."""
        if state.place is None or not state.place.is_open():
            return ""
        has_completer = self.comes_due
        if self.is_record:  # the process that decided may have stopped
            has_completer = self.is_read or state.actors[1].at != "end"
        return "" if has_completer else "a cell waits forever"

    def _others(self, state: State) -> Iterator[tuple[str, State]]:
        """Let time pass, and others read the place or use what decisions have written."""
        place = state.place
        is_open = place is not None and place.is_open()
        if place and place.cell and not self.shows_decisions:
            yield "a list shows it undecided", state._replace(wrong="a list hides a decision")
        if state.decisions and state.age == 0:
            yield "a day passes", state._replace(age=LATE)
        is_kept = not self.is_record and is_open and self.keys_outlast_cells
        has_inserts = any(write.what == "insert" for write in state.sent)
        if state.age == LATE and not (has_inserts or is_kept):
            yield "deleted keys are forgotten", state._replace(age=FORGOTTEN)
        for row in state.rows:
            name = row[0]
            ended = state._replace(rows=state.rows - {row}, ended=state.ended | {name})
            yield f"the row of {name} ends", ended
        if self.is_record and place and self._may_release(state, place.version):
            before = tuple(("", name) for _, name in state.decisions)
            there = state._replace(place=Place(), decisions=before)
            yield "the job that ended releases the record", there
        if "note" in self.consequences and state.changes and state.note:
            there = state._replace(changes=state.changes - 1)
            if state.note != "changed":
                yield "the other record is changed", there._replace(note="changed")
            yield "the other record is deleted", there._replace(note="")
        if "wake" in self.consequences and state.parked in ("parked", "due"):
            yield "the parked row is claimed", state._replace(parked="claimed")

    def _may_release(self, state: State, version: str) -> bool:
        """Return whether the end of a job shows that all of its decision is stored."""
        is_stored = all((version, what) in state.applied for what in self.consequences)
        return version in state.ended and (is_stored or not self.proves_before_it_overwrites)

    def _act(self, state: State, actor: Actor, number: int) -> Iterator[tuple[str, State, Actor]]:
        place = state.place
        match actor.at:
            case "read" if place is None:
                yield "finds nothing", state, Actor("end")
            case "read" if number == 2:
                yield from self._find(state)
            case "read":
                assert place
                if place.is_open() and self.completes_before_it_acts:
                    # Of a row, that is left to the third process: there would be many orders.
                    after = self._completes(state, place.cell) if self.is_record else Actor("end")
                    yield "finds a cell", state, after
                else:
                    yield "reads it", state, Actor("decide", place.version)
            case "ask for the claim":
                if place and place.version == _claimed(actor.named):
                    yield "reads back: mine", *self._claim(state, place)
            case "decide":
                yield from self._decide(state, actor, number)
            case "ask":
                yield from self._ask(state, actor, number)
            case "write" | "write first":
                yield from self._write(state, actor, number)
            case "clear":
                clear = Write("clear", actor.doing)
                yield "clears the cell", *self._cleared(self._apply(state, clear)[1], actor, number)
                if state.unknowns:
                    unsure = self._cleared(_send(state, clear), actor, number)
                    yield "clears it, without a response", *unsure

    def _completes(self, state: State, name: str) -> Actor:
        """Return a process that has read a cell, or written one."""
        since = 0 if self.is_record else state.age
        return Actor("write" if self.clears_last else "clear", "", name, 0, since)

    def _find(self, state: State) -> Iterator[tuple[str, State, Actor]]:
        """Claim the row, or read the record."""
        place = state.place
        assert place
        if self.is_record:
            if place.is_open() and self.is_read:
                yield "reads a cell", state, self._completes(state, place.cell)
            return
        if place.cell and not self.comes_due:
            return
        claim = Write("claim", named=place.version)
        held, there = self._apply(state, claim)
        assert held
        assert there.place
        yield "claims it", *self._claim(there, there.place)
        if state.unknowns:
            yield (
                "claims it, without a response",
                _send(state, claim),
                Actor("ask for the claim", place.version),
            )

    def _claim(self, state: State, place: Place) -> tuple[State, Actor]:
        """Complete what the claimed row carries, or run its handler."""
        if place.cell and self.completes_before_it_acts:
            return state, self._completes(state, place.cell)
        if place.cell:
            state = state._replace(wrong="a handler starts after the decision")
        return state, Actor("end")  # it runs: what follows is as for the first process

    def _decide(
        self, state: State, actor: Actor, number: int
    ) -> Iterator[tuple[str, State, Actor]]:
        name = NAMES[number]
        if not self.decides_first and not actor.doing:
            yield "begins", state, actor._replace(at="write first", doing=name)
            return
        write = Write("decision", name, actor.named)
        held, there = self._apply(state, write)
        decided = self._completes(state, name)
        if not self.acknowledges_last:
            there = there._replace(acknowledged=there.acknowledged | {name})
        if held:
            yield "decides", there, decided
        elif actor.is_unsure and self.knows_its_own:
            yield from self._ask(state, actor, number)
        else:
            yield self._refused(state, name)
        if state.unknowns:
            yield (
                "decides, without a response",
                _send(state, write),
                actor._replace(at="ask", is_unsure=True),
            )

    def _ask(self, state: State, actor: Actor, number: int) -> Iterator[tuple[str, State, Actor]]:
        """Read back whether the decision was made; it is unknown if the place does not show it."""
        place, name = state.place, NAMES[number]
        if place and place.cell == name:
            decided = self._completes(state, name)
            yield "reads back its decision", state, decided
        elif place and place.version == actor.named:
            yield "reads back that it has none", state, actor._replace(at="decide")
        elif self.knows_its_own:
            yield "cannot know", state, Actor("end")
        else:
            yield self._refused(state, name)

    def _refused(self, state: State, name: str) -> tuple[str, State, Actor]:
        if any(name == made for _, made in state.decisions):
            state = state._replace(wrong="a decision that was made is reported as rejected")
        return "is rejected", state, Actor("end")

    def _write(self, state: State, actor: Actor, number: int) -> Iterator[tuple[str, State, Actor]]:
        """Write the next consequence."""
        what = self.consequences[actor.number]
        after = actor._replace(number=actor.number + 1)
        if after.number == len(self.consequences):
            after = self._has_written(after)
        if what == "insert" and state.age >= LATE and self.inserts_in_time:
            if self.is_record or not self.continues_jobs:
                yield "is too late to insert", state, after._replace(has_given_up=True)
                return
            if actor.since < state.age and self.reads_again:
                yield "reads the cell again", state, Actor()
                return
        by = 0 if self.derives_consequences else number
        write = Write(what, actor.doing, state.parked if what == "wake" else "", by)
        yield f"writes the {what}", self._apply(state, write)[1], after
        if state.unknowns:
            unsure = actor if self.waits_for_answers else after
            yield f"writes the {what}, without a response", _send(state, write), unsure

    def _has_written(self, actor: Actor) -> Actor:
        """Return a process after its last consequence."""
        if actor.at == "write first":
            return actor._replace(at="decide")
        return actor._replace(at="clear", number=0) if self.clears_last else Actor("end")

    def _cleared(self, state: State, actor: Actor, number: int) -> tuple[State, Actor]:
        """Report that the decision holds, or continue after that of another process."""
        if not self.clears_last:
            return state, actor._replace(at="write")
        if actor.doing != NAMES[number]:
            return state, Actor()
        if not actor.has_given_up:
            state = state._replace(acknowledged=state.acknowledged | {NAMES[number]})
        return state, Actor("end")

    def _apply(self, state: State, write: Write) -> tuple[bool, State]:
        """Apply a write if its condition holds; return whether it did."""
        place, name = state.place, write.decision
        done = state._replace(applied=state.applied | {(name, write.what)})
        match write.what:
            case "decision":
                if place is None or (self.names_the_version and place.version != write.named):
                    return False, state
                version = name if self.replaces_the_version else place.version
                made = (*state.decisions, (write.named, name))
                return True, state._replace(place=Place(version, name), decisions=made)
            case "claim":
                if place is None or place.version != write.named:
                    return False, state
                return True, state._replace(place=place._replace(version=_claimed(place.version)))
            case "clear" if not self.is_record:
                return True, state._replace(place=None)
            case "clear":
                if place is None:
                    return True, state
                noted = name if self.notes_the_version else place.cell
                return True, state._replace(place=place._replace(done=noted))
            case "note":
                return True, self._noted(state, done, name)
            case "insert":
                row = (name, write.by)
                is_known = name in state.ended and state.age < FORGOTTEN
                if is_known and self.inserts_once:
                    return True, done
                return True, done._replace(rows=state.rows | {row})
            case "wake":
                if state.parked == "claimed" and not self.wakes_the_parked:
                    return True, done._replace(wrong="a claimed row is moved")
                is_parked = state.parked == "parked" == write.named
                return True, done._replace(parked="due" if is_parked else state.parked)
        raise AssertionError(write)

    def _noted(self, state: State, done: State, name: str) -> State:
        """Write the other record, if it has the version that the decision names."""
        expected = ("other",) if self.names_versions else ("other", "")
        if state.note in expected or not self.skips_what_moved_on:
            if state.note == "changed":
                done = done._replace(wrong="a record that has moved on is overwritten")
            if state.note == "":
                done = done._replace(wrong="a deleted record exists again")
            return done._replace(note=name)
        return done


def _claimed(version: str) -> str:
    """Return the version that a claim writes."""
    return f"{version}, claimed"


def _send(state: State, write: Write) -> State:
    return state._replace(sent=state.sent | {write}, unknowns=state.unknowns - 1)


STUB = ("insert",)
RECORD = ("insert",)
BOTH = ("insert", "wake")
MODELS = {
    "a verdict decides": Carried(),
    "a move decides": Carried(STUB),
    "a record inserts a job": Carried(RECORD, is_record=True),
    "a record wakes a row": Carried(("wake",), is_record=True),
}
MUTANTS = {
    "consequences before the decision": Carried(decides_first=False),
    "a decision without a condition": Carried(RECORD, is_record=True, names_the_version=False),
    "a decision keeps the version": Carried(replaces_the_version=False),
    "a rejection is not verified": Carried(knows_its_own=False),
    "consequences under new ids": Carried(derives_consequences=False),
    "cleared before the consequences": Carried(clears_last=False),
    "cleared after an unknown insert": Carried(STUB, waits_for_answers=False),
    "a record notes no version": Carried(RECORD, is_record=True, notes_the_version=False),
    "a decided row runs": Carried(completes_before_it_acts=False),
    "a cell is overwritten": Carried(BOTH, is_record=True, proves_before_it_overwrites=False),
    "a deleted key is inserted again": Carried(inserts_once=False),
    "an insert is repeated for ever": Carried(RECORD, is_record=True, inserts_in_time=False),
    "a cell that was read long ago": Carried(STUB, reads_again=False),
    "a job that moves is given up": Carried(STUB, continues_jobs=False),
    "keys are forgotten before cells": Carried(STUB, keys_outlast_cells=False),
    "a record is overwritten": Carried(skips_what_moved_on=False),
    "a consequence expects nothing": Carried(names_versions=False),
    "a claimed row is woken": Carried(BOTH, is_record=True, wakes_the_parked=False),
    "acknowledged at the decision": Carried(RECORD, is_record=True, acknowledges_last=False),
    "a list hides a decision": Carried(shows_decisions=False),
    "a decided row is not due": Carried(STUB, comes_due=False),
    "nobody reads it": Carried(RECORD, is_record=True, is_read=False),
}
