"""How a durable function ends: its end is a record, and compensations follow from it.

A function calls a step with a compensation, then another step, and returns. It may be cancelled,
may expire, and its own code may raise an error without attempts left. Two workers claim it in
turn; a worker may stall anywhere, and one write may have no response: then it arrives at any
later time. A claim opens the log (`durable_log.py`).

Guarantees: compensations run if and only if the job failed or was cancelled, whoever goes on;
then the job never ends done; each compensation is recorded before the job ends.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

CLAIMS = 3
STEPS = 2


class Row(NamedTuple):
    """The job: due, held, or how it ended."""

    at: str = "due"
    fence: int = 0
    is_out: bool = False


class Worker(NamedTuple):
    """A worker. place: its next call. ends: how it ends the function. has_undo: it can undo."""

    at: str = "idle"
    fence: int = 0
    place: int = 0
    ends: str = ""
    has_undo: bool = False


class Write(NamedTuple):
    """A write without a response: a record, or the outcome of the row."""

    what: str
    place: int
    says: str
    fence: int


class State(NamedTuple):
    """The row, the log, and processes.

    end, undone: the records of the end and of the compensation. undos: whether it was begun.
    is_asked: a cancellation was requested; the request is deleted once the function was given it.
    is_given: it was. is_late: the job has expired.
    """

    row: Row = Row()
    log: tuple[str, ...] = ("",) * STEPS
    end: str = ""
    undone: str = ""
    opened: int = 0
    workers: tuple[Worker, ...] = (Worker(), Worker())
    sent: frozenset[Write] = frozenset()
    undos: bool = False
    is_asked: bool = False
    is_given: bool = False
    is_late: bool = False
    errors: int = 1
    unknowns: int = 1
    wrong: str = ""


@dataclass(frozen=True)
class DurableEnds:
    """Rules; a mutant leaves out one.

    records_success: success is recorded, too, if something is registered to be undone.
    """

    records_success: bool = False
    records_the_end: bool = True  # rule D5
    heeds_the_end: bool = True  # rule D5
    waits_for_the_end: bool = True  # rules D5, D10
    undoes_what_is_recorded: bool = True  # rule D5
    undoes_before_it_ends: bool = True  # rule D5
    shields_compensations: bool = True  # rule D5
    waits_for_compensations: bool = True  # rules D5, D10
    opens_the_log: bool = True  # rule D11
    ends_under_its_claim: bool = True  # rules D5, P2
    records_cancellations: bool = True  # rules D5, D9

    def start(self) -> State:
        """Return a function that was never claimed."""
        return State()

    def fault(self, state: State) -> str:
        """Compare how the job ended with what was undone."""
        if state.wrong:
            return state.wrong
        if state.undos and state.row.at == "done":
            return "a job that was compensated ends done"
        if state.undos and self.records_the_end and state.end in ("", "done"):
            return "a compensation runs without a failed end"
        if state.is_given and state.row.at == "done":
            return "a cancellation is forgotten"
        has_failed = state.row.at in ("failed", "cancelled")
        if has_failed and state.log[0] == "ok" and not state.undone:
            return "a job fails and is not compensated"
        if has_failed and state.end not in ("", state.row.at):
            return "the outcome is not the recorded end"
        return ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a write arrive, time pass, a client cancel, or a worker go on."""
        for write in state.sent:
            there = state._replace(sent=state.sent - {write})
            yield f"a late {write.what} arrives", self._apply(there, write)
        row = state.row
        if row.at == "held" and not row.is_out and row.fence < CLAIMS:
            yield "the lease runs out", state._replace(row=row._replace(is_out=True))
        if not (state.is_asked or state.is_given) and row.at in ("due", "held"):
            yield "a cancellation is requested", state._replace(is_asked=True)
        if not state.is_late and row.at in ("due", "held"):
            yield "it expires", state._replace(is_late=True)
        for number, worker in enumerate(state.workers):
            for words, there, after in self._act(state, worker):
                workers = put(there.workers, number, after)
                yield f"worker {number + 1} {words}", there._replace(workers=workers)

    def _act(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        row = state.row
        match worker.at:
            case "idle" if row.fence < CLAIMS and (row.at == "due" or row.is_out):
                held = Row("held", row.fence + 1)
                opened = held.fence if self.opens_the_log else 0
                yield (
                    "claims it and opens the log",
                    state._replace(row=held, opened=opened),
                    self._claimed(state, held.fence),
                )
            case "call":
                yield from self._call(state, worker)
            case "cancel" | "step" | "end" | "undone" | "outcome":
                yield from self._write(state, worker)
            case "undo" if state.is_asked and not self.shields_compensations:
                yield "is cancelled", state, worker._replace(at="outcome", ends="cancelled")
            case "undo":
                yield "compensates", state._replace(undos=True), worker._replace(at="undone")

    def _claimed(self, state: State, fence: int) -> Worker:
        """Go on from the end, if there is one, or replay the function."""
        if state.end and self.heeds_the_end:
            # Otherwise its own code may raise before the first step, and has registered nothing.
            has_undo = state.log[0] == "ok" and self.undoes_what_is_recorded
            return self._after_end(state, Worker("end", fence, STEPS, state.end, has_undo))
        return Worker("call", fence)

    def _call(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        if worker.place == STEPS:
            yield "returns", state, self._ends(state, worker, "done")
            return
        says = state.log[worker.place]
        if says == "cancel":
            yield "replays the cancellation", *self._cancelled(state, worker)
            return
        if says:
            yield "replays a step", state, self._next(worker)
            return
        if state.is_asked:
            if self.records_cancellations:
                yield "finds the request", state, worker._replace(at="cancel")
            else:
                yield "cancels the function", *self._cancelled(state, worker)
        elif state.is_late:
            yield "has expired", state, self._ends(state, worker, "failed")
        yield "runs a step", state, worker._replace(at="step")
        if state.errors:
            there = state._replace(errors=0)
            yield "raises its last error", there, self._ends(state, worker, "failed")

    def _next(self, worker: Worker) -> Worker:
        return worker._replace(at="call", place=worker.place + 1, has_undo=True)

    def _cancelled(self, state: State, worker: Worker) -> tuple[State, Worker]:
        after = self._ends(state, worker, "cancelled")
        return state._replace(is_asked=False, is_given=True), after

    def _ends(self, state: State, worker: Worker, ends: str) -> Worker:
        """Record the end if something is registered to be undone; then follow from it."""
        worker = worker._replace(ends=ends, place=STEPS)
        is_recorded = self.records_success if ends == "done" else self.records_the_end
        if worker.has_undo and is_recorded:
            return worker._replace(at="end")
        return self._after_end(state, worker)

    def _after_end(self, state: State, worker: Worker) -> Worker:
        is_undone = not worker.has_undo or worker.ends == "done" or state.undone
        if is_undone or not self.undoes_before_it_ends:
            return worker._replace(at="outcome")
        return worker._replace(at="undo")

    def _write(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        says = {"cancel": "cancel", "step": "ok", "undone": "undone"}.get(worker.at, worker.ends)
        write = Write(worker.at, worker.place, says, worker.fence)
        over = Worker()
        is_open = self._is_open(state, worker.fence)
        there = self._apply(state, write)
        if worker.at == "outcome":
            yield f"ends the job: {says}", there, over
        elif not is_open:
            yield "is refused", state, over
        elif worker.at == "end":
            # It may find an end that is recorded already, and follows from that one.
            ends = there.end if self.heeds_the_end else worker.ends
            after = self._after_end(there, worker._replace(ends=ends))
            yield f"records the end: {says}", there, after
        elif worker.at == "undone":
            yield "records the compensation", there, worker._replace(at="outcome")
        elif there.log[worker.place] == "cancel":
            yield "records the cancellation", *self._cancelled(there, worker)
        else:
            yield "records a step", there, self._next(worker)
        if state.unknowns:
            unsure = state._replace(sent=state.sent | {write}, unknowns=0)
            yield f"sends its {worker.at}, without a response", unsure, over
            if worker.at == "end" and not self.waits_for_the_end:
                yield "counts it as recorded", unsure, self._after_end(unsure, worker)
            if worker.at == "undone" and not self.waits_for_compensations:
                yield "counts it as recorded", unsure, worker._replace(at="outcome")

    def _is_open(self, state: State, fence: int) -> bool:
        return state.opened == fence or not self.opens_the_log

    def _apply(self, state: State, write: Write) -> State:
        """Write, if what the write expects still holds."""
        row = state.row
        if write.what == "outcome":
            is_mine = row.fence == write.fence or not self.ends_under_its_claim
            is_running = row.at == "held"
            return (
                state._replace(row=Row(write.says, row.fence)) if is_mine and is_running else state
            )
        if not self._is_open(state, write.fence):
            return state
        match write.what:
            case "end":
                return state._replace(end=state.end or write.says)
            case "undone":
                return state._replace(undone="undone")
        says = state.log[write.place] or write.says
        return state._replace(log=put(state.log, write.place, says))


MODELS = {
    "a failure and a cancellation": DurableEnds(),
    "success is recorded": DurableEnds(records_success=True),
}
MUTANTS = {
    "no end is recorded": DurableEnds(records_the_end=False),
    "a recorded end is not heeded": DurableEnds(heeds_the_end=False),
    "an unknown end counts": DurableEnds(waits_for_the_end=False),
    "what a replay does not reach": DurableEnds(undoes_what_is_recorded=False),
    "the job ends before it is undone": DurableEnds(undoes_before_it_ends=False),
    "a compensation is cancelled": DurableEnds(shields_compensations=False),
    "an unknown compensation counts": DurableEnds(waits_for_compensations=False),
    "the log is not opened": DurableEnds(opens_the_log=False),
    "an outcome of any claim": DurableEnds(ends_under_its_claim=False),
    "a cancellation is not recorded": DurableEnds(records_cancellations=False),
}
