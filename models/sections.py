"""A section of a handler that must not repeat.

Two workers run a job whose handler has a section; each may stop anywhere. A worker marks the
section, confirms its claim, runs the body, and records the end. A claim may end while its worker
goes on. The body may raise, or be interrupted; the attempt may fail after it. An operator retries
the job once if it is uncertain.

Guarantees: the section begins once, and once more for each retry by the operator and each body that
raised. No handler runs while an earlier section has not ended.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

CLAIMS_MAX = 4
SHARED = 0
"""The key of the mark, in the mutant where claims share it."""


class Worker(NamedTuple):
    """A worker: its next step, the fence of its claim, and whether the claim before had no end."""

    at: str = "idle"
    fence: int = 0
    is_suspect: bool = False


class State(NamedTuple):
    """The row, the marks, the processes, and what has happened.

    fence: of the last claim. is_leased: its lease lasts. is_held: it has neither an outcome nor a
    release. outcome: empty while the job may run. marks: by key, whether they are open. inside:
    claims whose bodies began and have not ended. begun: how often a body began. allowed: how often
    it may begin. retried: the last claim before the retry by the operator.
    """

    fence: int = 0
    is_leased: bool = False
    is_held: bool = False
    outcome: str = ""
    marks: frozenset[tuple[int, bool]] = frozenset()
    workers: tuple[Worker, ...] = (Worker(), Worker())
    operator: str = "rest"
    inside: frozenset[int] = frozenset()
    begun: int = 0
    allowed: int = 1
    retried: int = 0
    wrong: str = ""


@dataclass(frozen=True)
class Sections:
    """Rules, of which a mutant leaves out one."""

    marks_first: bool = True  # rule P14
    confirms_the_claim: bool = True  # rule P14
    confirms_after_the_mark: bool = True  # rule P14
    asks_after_a_death: bool = True  # rule P14
    asks_before_it_begins: bool = True  # rule P15
    keeps_ended_marks: bool = True  # rule P15
    marks_by_claim: bool = True  # rule P14
    leaves_the_mark_at_interrupts: bool = True  # rule P14
    withdraws_first: bool = True  # rule P15

    def start(self) -> State:
        """Return a job that waits."""
        return State()

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let the lease end, or a process continue."""
        if state.is_leased:
            yield "the lease ends", state._replace(is_leased=False)
        for number, worker in enumerate(state.workers):
            for words, there, after in self._work(state, worker):
                workers = put(there.workers, number, after)
                yield f"worker {number + 1} {words}", there._replace(workers=workers)
        yield from self._operate(state)

    def fault(self, state: State) -> str:
        """Count the bodies that began."""
        if state.begun > state.allowed:
            return "the section begins twice"
        return state.wrong

    def _work(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        match worker.at:
            case "idle":
                yield from self._claim(state)
            case "triage":
                yield self._triage(state, worker)
            case "run":
                yield self._ask(state, worker)
            case "mark":
                marked = self._with_mark(state, worker, is_open=True)
                after = "confirm" if self.confirms_after_the_mark else "body"
                yield "marks the section", marked, worker._replace(at=after)
            case "confirm":
                yield self._confirm(state, worker)
            case "body" if self.marks_first:
                yield "begins the body", _begun(state, worker), worker._replace(at="inside")
            case "body":
                marked = self._with_mark(_begun(state, worker), worker, is_open=True)
                yield (
                    "begins the body before its mark",
                    _begun(state, worker),
                    worker._replace(at="late"),
                )
                yield "begins the body", marked, worker._replace(at="inside")
            case "late":
                marked = self._with_mark(state, worker, is_open=True)
                yield "marks the section late", marked, worker._replace(at="inside")
            case "inside":
                yield from self._end_body(state, worker)
            case "after":
                yield "ends the job", _ended(state, worker, "done"), Worker()
                yield "fails after the section", _released(state, worker), Worker()

    def _claim(self, state: State) -> Iterator[tuple[str, State, Worker]]:
        if state.outcome or state.is_leased or state.fence == CLAIMS_MAX:
            return
        fence = state.fence + 1
        there = state._replace(fence=fence, is_leased=True, is_held=True)
        yield "claims the job", there, Worker("triage", fence, state.is_held)

    def _triage(self, state: State, worker: Worker) -> tuple[str, State, Worker]:
        is_open = any(is_open and key < worker.fence for key, is_open in state.marks)
        if self.asks_after_a_death and worker.is_suspect and is_open:
            return "finds an open section", _ended(state, worker, "uncertain"), Worker()
        if worker.fence == state.fence and any(
            state.retried < fence < worker.fence for fence in state.inside
        ):
            state = state._replace(wrong="a handler runs while a section has not ended")
        return "calls the handler", state, worker._replace(at="run")

    def _ask(self, state: State, worker: Worker) -> tuple[str, State, Worker]:
        """Read whether a section began under another claim."""
        if self.asks_before_it_begins and any(key != worker.fence for key, _ in state.marks):
            return "refuses to begin again", _ended(state, worker, "uncertain"), Worker()
        if not self.confirms_the_claim:
            return (
                "begins",
                self._with_mark(state, worker, is_open=True),
                worker._replace(at="body"),
            )
        after = "mark" if self.confirms_after_the_mark and self.marks_first else "confirm"
        return "finds no other section", state, worker._replace(at=after)

    def _confirm(self, state: State, worker: Worker) -> tuple[str, State, Worker]:
        if state.fence != worker.fence or state.outcome:
            there = self._without_mark(state, worker)
            return "has lost its claim", there, Worker()
        is_marked = self.confirms_after_the_mark or not self.marks_first
        return "confirms its claim", state, worker._replace(at="body" if is_marked else "mark")

    def _end_body(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        there = state._replace(inside=state.inside - {worker.fence})
        over = self._without_mark(there, worker)
        if self.keeps_ended_marks and self._has_mark(state, worker):
            over = self._with_mark(there, worker, is_open=False)
        yield "ends the section", over, worker._replace(at="after")
        raised = self._without_mark(there, worker)._replace(allowed=state.allowed + 1)
        yield "raises in the body", _released(raised, worker), Worker()
        if self.leaves_the_mark_at_interrupts:
            yield "is interrupted", _ended(state, worker, "uncertain"), Worker()
        else:
            interrupted = self._without_mark(state, worker)
            yield "is interrupted", _released(interrupted, worker), Worker()

    def _operate(self, state: State) -> Iterator[tuple[str, State]]:
        """Delete the marks, then retry the job; once."""
        deleted = state._replace(marks=frozenset())
        moved = state._replace(
            outcome="", is_leased=False, is_held=False,
            allowed=state.allowed + 1, retried=state.fence,
        )  # fmt: skip
        match state.operator:
            case "rest" if state.outcome == "uncertain":
                if self.withdraws_first:
                    yield "the operator deletes the marks", deleted._replace(operator="move")
                else:
                    yield "the operator retries the job", moved._replace(operator="delete")
            case "move":
                yield "the operator retries the job", moved._replace(operator="end")
            case "delete":
                yield "the operator deletes the marks", deleted._replace(operator="end")

    def _key(self, worker: Worker) -> int:
        return worker.fence if self.marks_by_claim else SHARED

    def _has_mark(self, state: State, worker: Worker) -> bool:
        return any(key == self._key(worker) for key, _ in state.marks)

    def _without_mark(self, state: State, worker: Worker) -> State:
        marks = frozenset(mark for mark in state.marks if mark[0] != self._key(worker))
        return state._replace(marks=marks)

    def _with_mark(self, state: State, worker: Worker, *, is_open: bool) -> State:
        marks = self._without_mark(state, worker).marks | {(self._key(worker), is_open)}
        return state._replace(marks=marks)


def _begun(state: State, worker: Worker) -> State:
    return state._replace(begun=state.begun + 1, inside=state.inside | {worker.fence})


def _ended(state: State, worker: Worker, outcome: str) -> State:
    """Store an outcome, if the row still has the claim."""
    if state.fence != worker.fence or state.outcome:
        return state
    return state._replace(outcome=outcome, is_leased=False, is_held=False)


def _released(state: State, worker: Worker) -> State:
    """Make the job due again, if the row still has the claim."""
    if state.fence != worker.fence or state.outcome:
        return state
    return state._replace(is_leased=False, is_held=False)


MODELS = {"one section": Sections()}
MUTANTS = {
    "the body begins before its mark": Sections(marks_first=False),
    "a lost claim begins": Sections(confirms_the_claim=False),
    "the claim is confirmed before the mark": Sections(confirms_after_the_mark=False),
    "a death in a section is not asked for": Sections(asks_after_a_death=False),
    "a section begins after one that ended": Sections(asks_before_it_begins=False),
    "the end of a section is forgotten": Sections(keeps_ended_marks=False),
    "claims share a mark": Sections(marks_by_claim=False),
    "an interrupt ends a section": Sections(leaves_the_mark_at_interrupts=False),
    "marks are deleted after a retry": Sections(withdraws_first=False),
}
