"""Calls of a durable function: a child job is stored once, and its end reaches the parent.

A function calls a child, records its next call, and waits for the end of the child. Two workers
claim the function in turn. The child ends, is deleted, and may be retried if it is dead. A worker
may stall for days, one write may have no response, and the store forgets deleted keys days after
they were deleted. A claim opens the log of the parent (`durable_log.py`).

Guarantees: the child is the recorded one, is stored once, also after its end, and is never given
up; no child exists without a record; its end is not lost; each replay is given the same end.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

CLAIMS = 3
DAYS = 2


class Child(NamedTuple):
    """The child's row: none yet, waiting, ended (decided), recorded, or gone. by: who made it."""

    at: str = "none"
    by: int = 0
    end: str = ""
    is_forgotten: bool = False


class Worker(NamedTuple):
    """A worker of the parent. is_old: it read the parent's partition more than a day ago."""

    at: str = "idle"
    fence: int = 0
    is_old: bool = False


class Write(NamedTuple):
    """A write without a response."""

    what: str
    fence: int = 0
    says: str = ""


class State(NamedTuple):
    """The parent's row and partition, the child, and processes.

    row: held, or free (parked or due). intent: the fence of the recorded call. next: whether
    the call after it is recorded. outcome: the child's end in the parent's partition. answer: what
    the parent recorded, given: what its function was first given.
    """

    row: str = "free"
    fence: int = 0
    is_out: bool = False
    opened: int = 0
    intent: int = 0
    is_late: bool = False
    next: bool = False
    outcome: str = ""
    answer: str = ""
    given: str = ""
    child: Child = Child()
    workers: tuple[Worker, ...] = (Worker(), Worker())
    sent: frozenset[Write] = frozenset()
    unknowns: int = 1
    retries: int = 1
    days: int = DAYS
    wrong: str = ""


@dataclass(frozen=True)
class DurableCalls:
    """Rules; a mutant leaves out one.

    has_transactions: a call and its child are one group, so no insert is repeated.
    """

    has_transactions: bool = False
    records_first: bool = True  # rules D4, C1
    inserts_what_is_recorded: bool = True  # rules D4, C2
    inserts_at_any_age: bool = True  # rules D4, C5
    heeds_ends: bool = True  # rule D4
    reads_again: bool = True  # rules D4, C5
    waits_for_the_insert: bool = True  # rules D4, C7
    records_the_end_first: bool = True  # rules D3, C3
    records_answers: bool = True  # rule D9

    def start(self) -> State:
        """Return a function that was never claimed."""
        return State()

    def fault(self, state: State) -> str:
        """Look for a child that is stored twice, never, or without a record."""
        child = state.child
        if state.wrong:
            return state.wrong
        if child.at != "none" and not state.intent:
            return "a child exists without a record"
        if child.at != "none" and child.by != state.intent:
            return "the child is not the recorded one"
        if child.at == "lost":
            return "the end of a child is lost"
        is_stored = child.at != "none" or any(worker.at == "insert" for worker in state.workers)
        if is_stored or not state.intent or any(write.what == "insert" for write in state.sent):
            return ""
        if state.next or (state.is_late and not self.inserts_at_any_age):
            return "a recorded call is never stored"
        return ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a write arrive, time pass, the child end, or a worker go on."""
        for write in state.sent:
            there = state._replace(sent=state.sent - {write})
            yield f"a late {write.what} arrives", self._apply(there, write)
            if write.what == "insert":
                yield "an insert is lost", there
        if state.row == "held" and not state.is_out and state.fence < CLAIMS:
            yield "the lease runs out", state._replace(is_out=True)
        if state.days and state.intent and not state.sent:
            yield "days pass", self._days_pass(state)
        for words, after in self._child_steps(state):
            yield words, after
        for number, worker in enumerate(state.workers):
            for words, there, then in self._act(state, worker):
                workers = put(there.workers, number, then)
                yield f"worker {number + 1} {words}", there._replace(workers=workers)

    def _days_pass(self, state: State) -> State:
        workers = tuple(worker._replace(is_old=worker.at == "insert") for worker in state.workers)
        child = state.child._replace(is_forgotten=state.child.at == "gone")
        return state._replace(workers=workers, child=child, is_late=True, days=state.days - 1)

    def _child_steps(self, state: State) -> Iterator[tuple[str, State]]:
        """End the child: the end is recorded in the parent's partition before the row goes."""
        child = state.child
        match child.at:
            case "waiting":
                for end in ("done", "dead"):
                    yield f"the child is {end}", state._replace(child=Child("ended", child.by, end))
            case "ended" if self.records_the_end_first:
                recorded = state._replace(outcome=child.end, child=child._replace(at="recorded"))
                yield "the child's end is recorded", recorded
                if state.unknowns:  # the process repeats it until it has a response
                    write = Write("end", says=child.end)
                    unsure = state._replace(sent=state.sent | {write}, unknowns=0)
                    yield "its end is sent, without a response", unsure
            case "ended":
                yield "the child's row goes", state._replace(child=child._replace(at="unrecorded"))
            case "unrecorded":
                gone = child._replace(at="gone")
                yield "the child's end is recorded", state._replace(outcome=child.end, child=gone)
                yield "its worker dies", state._replace(child=child._replace(at="lost"))
            case "recorded":
                yield "the child's row goes", state._replace(child=child._replace(at="gone"))
            case "gone" if child.end == "dead" and state.retries:
                again = child._replace(at="waiting")
                yield "the child is retried", state._replace(child=again, retries=0)

    def _act(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        match worker.at:
            case "idle" if state.fence < CLAIMS and (state.row == "free" or state.is_out):
                fence = state.fence + 1
                there = state._replace(row="held", fence=fence, is_out=False, opened=fence)
                first = "insert" if not (self.records_first or state.intent) else "look"
                yield "claims it and opens the log", there, Worker(first, fence)
            case "look":
                yield self._look(state, worker)
            case "insert" if worker.is_old and self.reads_again:
                yield "has read long ago", state, worker._replace(at="look", is_old=False)
            case "intent" | "insert" | "next" | "answer":
                yield from self._write(state, worker)
            case "park":
                is_mine = state.fence == worker.fence
                there = state._replace(row="free", is_out=False) if is_mine else state
                yield "parks it", there, Worker()

    def _look(self, state: State, worker: Worker) -> tuple[str, State, Worker]:
        """Replay what is recorded, and go on from there."""
        if state.answer:
            return "replays the end", *self._give(state, worker, state.answer)
        if not state.intent:
            return "has no record of the call", state, worker._replace(at="intent")
        if state.outcome and self.heeds_ends:
            at = "answer" if state.next else "next"
            return "finds the child's end", state, worker._replace(at=at)
        if state.next or self.has_transactions:
            at = "park" if state.next else "next"
            return "finds no end", state, worker._replace(at=at)
        if state.is_late and not self.inserts_at_any_age:
            return "finds an old record", state, worker._replace(at="park")
        return "finds the call", state, worker._replace(at="insert")

    def _write(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        by = worker.fence
        if worker.at == "insert" and self.inserts_what_is_recorded and state.intent:
            by = state.intent
        says = state.outcome if worker.at == "answer" else ""
        write = Write(worker.at, by, says)
        over = Worker()
        there = self._apply(state, write)
        if worker.at == "insert":
            yield "inserts the child", there, worker._replace(at="next")
        elif state.opened != worker.fence:
            yield "is refused", state, over
        elif worker.at == "intent":
            at = "next" if self.has_transactions else "insert"
            yield "records the call", there, worker._replace(at=at)
        elif worker.at == "next":
            yield "records its next call", there, worker._replace(at="look")
        else:
            yield f"records the end: {there.answer}", *self._give(there, worker, there.answer)
        if worker.at == "answer" and not self.records_answers:
            yield "gives the end", *self._give(state, worker, state.outcome)
        if state.unknowns:
            unsure = state._replace(sent=state.sent | {write}, unknowns=0)
            yield f"sends its {worker.at}, without a response", unsure, over
            if worker.at == "insert" and not self.waits_for_the_insert:
                yield "counts it as stored", unsure, worker._replace(at="next")

    def _give(self, state: State, worker: Worker, answer: str) -> tuple[State, Worker]:
        if state.given and state.given != answer:
            return state._replace(wrong="a replay is given another end"), worker
        return state._replace(given=answer), Worker()  # it goes on, for long

    def _apply(self, state: State, write: Write) -> State:
        """Write, if what the write expects still holds."""
        child = state.child
        match write.what:
            case "end":
                return state._replace(outcome=write.says)
            case "insert" if child.at == "none":
                return state._replace(child=Child("waiting", write.fence))
            case "insert" if child.is_forgotten:
                return state._replace(wrong="a child is stored again after its end")
            case "insert" if child.by != write.fence:
                return state._replace(wrong="the child is not the recorded one")
            case "insert":
                return state
        if state.opened != write.fence:
            return state
        match write.what:
            case "intent":
                there = state._replace(intent=state.intent or write.fence)
                if self.has_transactions and not state.intent:
                    there = there._replace(child=Child("waiting", write.fence))
                return there
            case "next":
                return state._replace(next=True)
            case "answer":
                return state._replace(answer=state.answer or write.says)
        raise AssertionError(write)


MODELS = {
    "an insert follows its record": DurableCalls(),
    "one group": DurableCalls(has_transactions=True),
}
MUTANTS = {
    "inserted before it is recorded": DurableCalls(records_first=False),
    "a replay inserts its own job": DurableCalls(inserts_what_is_recorded=False),
    "given up after a day": DurableCalls(inserts_at_any_age=False),
    "ends are not heeded": DurableCalls(heeds_ends=False),
    "a partition that was read long ago": DurableCalls(reads_again=False),
    "an unknown insert counts": DurableCalls(waits_for_the_insert=False),
    "the row goes before its end is recorded": DurableCalls(records_the_end_first=False),
    "an end is not recorded as the answer": DurableCalls(records_answers=False),
}
