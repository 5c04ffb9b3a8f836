"""The log of a durable function: what a function is given is recorded first, and is given again.

A function calls two steps. The name of the second depends on the result of the first. Two workers
claim the function in turn, replay what is recorded, and run the rest. The side effect of each
run of a step has another result. A worker may stall anywhere and go on after its lease has run
out; a record may have no response, and then arrives at any later time.

Guarantees: one result for each position; each replay is given the same; an interrupted attempt
records nothing more; a stalled worker doubles one side effect at most; code that differs from the
log is given nothing and ends nothing; a function that has begun does not begin again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

STEPS = 2
CLAIMS = 3


class Record(NamedTuple):
    """Result of a step. by: the fence of the run whose result it is. form: as it was decoded."""

    name: str
    by: int
    form: str = "decoded"


class Row(NamedTuple):
    """The job: due, held, stopped or ended. has_begun: what its options say."""

    at: str = "due"
    fence: int = 0
    is_out: bool = False
    has_begun: bool = False


class Worker(NamedTuple):
    """A worker. known: records that it read after its claim. has_met: the highest fence it met.

    seen: the fence of the log, and the records, as it read them before it opens the log.
    has_begun: what the row that it claimed says. has_recorded: it knows a record.
    """

    at: str = "idle"
    fence: int = 0
    place: int = 0
    first: int = 0
    known: int = 0
    has_met: int = 0
    seen: "tuple[int, tuple[Record | None, ...]] | None" = None
    has_begun: bool = False
    has_recorded: bool = False


class Write(NamedTuple):
    """A write without a response: a record, or a value that lies apart."""

    what: str
    place: int
    record: Record


Log = tuple[Record | None, ...]


class State(NamedTuple):
    """The row, the log, workers, and what has happened.

    opened: the fence that writes of the log must name. apart: large values, by position and key.
    ran: runs of steps, by position and fence. given: what the function was first given.
    """

    row: Row = Row()
    log: Log = (None,) * STEPS
    opened: int = 0
    apart: frozenset[tuple[int, int, int]] = frozenset()
    workers: tuple[Worker, ...] = (Worker(), Worker())
    sent: frozenset[Write] = frozenset()
    ran: frozenset[tuple[int, int]] = frozenset()
    given: Log = (None,) * STEPS
    unknowns: int = 2
    losses: int = 0
    wrong: str = ""


@dataclass(frozen=True)
class DurableLog:
    """Rules; a mutant leaves out one.

    store: "plain" has conditional writes, "opened" has logs that a claim opens, and
    "transactions" writes a record and the claim as one group. other: the code of the second
    worker, if it differs. has_clock: workers know when their leases run out. is_large: values lie
    apart.
    """

    store: str = "opened"
    other: str = ""
    has_clock: bool = False
    is_large: bool = False
    losses: int = 0
    records_once: bool = True  # rule D1
    knows_only_responses: bool = True  # rules D1, D10, U2
    gives_what_was_recorded: bool = True  # rule D2
    records_inputs: bool = True  # rule D9
    keys_by_writer: bool = True  # rule D2
    waits_for_values: bool = True  # rule D2
    compares_at_replay: bool = True  # rule D7
    compares_at_writes: bool = True  # rule D7
    compares_the_end: bool = True  # rule D7
    stays_interrupted: bool = True  # rule D10
    stops_at_higher_fences: bool = True  # rule D11
    opens_the_log: bool = True  # rules D11, L2
    opens_what_it_read: bool = True  # rule D11
    checks_its_lease: bool = True  # rules D11, H2
    needs_its_log: bool = True  # rule D14
    notes_after_records: bool = True  # rule D14

    def start(self) -> State:
        """Return a function that was never claimed."""
        return State(losses=self.losses)

    def fault(self, state: State) -> str:
        """Look for doubled side effects, holes and lost positions."""
        if state.wrong:
            return state.wrong
        if state.log[1] and not state.log[0]:
            return "an interrupted attempt records something"
        for _, fence in state.ran:
            doubled = sum(
                by == fence and any(at == place and later > fence for at, later in state.ran)
                for place, by in state.ran
            )
            if doubled > 1:
                return "a stall doubles two side effects"
        return ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a write arrive, a lease run out, the log be lost, or a worker go on."""
        for write in state.sent:
            there = state._replace(sent=state.sent - {write})
            yield f"a late {write.what} arrives", self._written(there, write)
        row = state.row
        if row.at == "held" and not row.is_out and row.fence < CLAIMS:
            yield "the lease runs out", state._replace(row=row._replace(is_out=True))
        is_quiet = not state.sent and all(worker.at in ("idle", "over") for worker in state.workers)
        if state.losses and row.at == "due" and row.has_begun and is_quiet:
            lost = state._replace(log=(None,) * STEPS, losses=0)
            yield "the log is lost", lost
        for number, worker in enumerate(state.workers):
            for words, there, after in self._act(state, worker, number):
                workers = put(there.workers, number, after)
                yield f"worker {number + 1} {words}", there._replace(workers=workers)

    def _act(
        self, state: State, worker: Worker, number: int
    ) -> Iterator[tuple[str, State, Worker]]:
        row = state.row
        match worker.at:
            case "idle" if row.fence < CLAIMS and (row.at == "due" or row.is_out):
                held = row._replace(at="held", fence=row.fence + 1, is_out=False)
                worker = Worker("read", held.fence, has_begun=row.has_begun)
                yield "claims", state._replace(row=held), worker
            case "open":
                yield self._open(state, worker)
            case "read":
                yield self._read(state, worker)
            case "call" if worker.place < worker.known or self._is_at_its_end(worker, number):
                yield self._replay(state, worker, number)
            case "call":
                is_over = self.has_clock and (row.fence > worker.fence or row.is_out)
                goes_on = not (is_over and self.checks_its_lease)
                at = "run" if goes_on else "suspend"
                yield "checks its lease", state, worker._replace(at=at)
            case "run":
                yield self._run(state, worker)
            case "value" | "record":
                yield from self._record(state, worker, number)
            case "suspend":
                yield "releases the job", *self._release(state, worker, "due")
            case "stop":
                yield "stops the function", *self._release(state, worker, "stopped")
            case "end" if self._holds(state, worker):
                yield "ends the job", self._ended(state, worker), Worker("over")
            case "end":
                yield "ends it in vain", state, Worker("over")

    def _open(self, state: State, worker: Worker) -> tuple[str, State, Worker]:
        """Open the log as it was read: each record and each claim gives it another version."""
        if state.opened > worker.fence:
            return "finds a higher fence", state, worker._replace(at="suspend")
        if self.opens_what_it_read and worker.seen != (state.opened, state.log):
            return "finds another version", state, worker._replace(at="read", seen=None)
        opened = state._replace(opened=worker.fence)
        if worker.known < sum(record is not None for record in state.log):
            opened = opened._replace(wrong="a claim does not know a record of its log")
        return "opens the log", opened, worker._replace(at="call", seen=None)

    def _read(self, state: State, worker: Worker) -> tuple[str, State, Worker]:
        known = sum(record is not None for record in state.log)
        if worker.has_begun and not known and self.needs_its_log:
            if state.losses == self.losses:
                state = state._replace(wrong="a function that has recorded nothing is stopped")
            return "finds no log", state, worker._replace(at="stop")
        if self.store == "opened" and self.opens_the_log:
            seen = state.opened, state.log
            return "reads the log", state, worker._replace(at="open", known=known, seen=seen)
        return "reads the log", state, worker._replace(at="call", known=known)

    def _name(self, worker: Worker, number: int) -> str:
        """Return the name of the next call: the second depends on the result of the first."""
        if worker.place == 0:
            return "first"
        if number == 1 and self.other:
            return self.other
        chosen_by = worker.first if self.records_inputs else worker.fence
        return f"second after {chosen_by}"

    def _is_at_its_end(self, worker: Worker, number: int) -> bool:
        ends_early = number == 1 and self.other == "nothing" and worker.place == 1
        return worker.place == STEPS or ends_early

    def _replay(self, state: State, worker: Worker, number: int) -> tuple[str, State, Worker]:
        if self._is_at_its_end(worker, number):
            has_more = worker.place < worker.known
            at = "stop" if has_more and self.compares_the_end else "end"
            return "returns", state, worker._replace(at=at)
        record = state.log[worker.place]
        assert record
        if record.name != self._name(worker, number) and self.compares_at_replay:
            return self._differs(state, worker)
        return "replays a record", *self._give(state, worker, number, record)

    def _differs(self, state: State, worker: Worker) -> tuple[str, State, Worker]:
        if not self.other:
            state = state._replace(wrong="a replay takes another path")
        return "finds another call", state, worker._replace(at="stop")

    def _run(self, state: State, worker: Worker) -> tuple[str, State, Worker]:
        place, fence = worker.place, worker.fence
        if worker.has_met > fence:
            state = state._replace(wrong="a stale worker goes on behind a higher fence")
        if place == 0 and worker.has_begun:
            state = state._replace(wrong="a function that has begun begins again")
        there = state._replace(ran=state.ran | {(place, fence)})
        return "runs the step", there, worker._replace(at="value" if self.is_large else "record")

    def _record(
        self, state: State, worker: Worker, number: int
    ) -> Iterator[tuple[str, State, Worker]]:
        record = Record(self._name(worker, number), worker.fence)
        write = Write(worker.at, worker.place, record)
        following = worker._replace(at="record")
        over = worker._replace(at="suspend")
        if worker.at == "value":
            yield "writes its value", self._written(state, write), following
        else:
            yield self._recorded(state, worker, number, write)
        if state.unknowns:
            there = state._replace(sent=state.sent | {write}, unknowns=state.unknowns - 1)
            if worker.at == "value" and not self.waits_for_values:
                over = following
            yield f"writes its {write.what}, without a response", there, over
            if worker.at == "record" and not self.knows_only_responses:
                yield "counts it as written", *self._give(there, worker, number, record)
        if worker.at == "record" and not self.stays_interrupted:
            # The function catches the interruption, and calls its second step.
            first = worker._replace(place=1, known=0, first=worker.fence, at="call")
            if worker.place == 0:
                yield "is interrupted, and goes on", state, first

    def _recorded(
        self, state: State, worker: Worker, number: int, write: Write
    ) -> tuple[str, State, Worker]:
        """Write a record, and take what it says."""
        over = worker._replace(at="suspend")
        if not self._accepts(state, worker.fence):
            return "is refused", state, over
        there = self._written(state, write)
        record = there.log[worker.place]
        assert record
        worker = worker._replace(has_met=max(worker.has_met, record.by))
        if record.by > worker.fence and self.stops_at_higher_fences:
            return "finds a higher fence", state, over
        if record.name != write.record.name and self.compares_at_writes:
            return self._differs(state, worker)
        if record == write.record and not self.gives_what_was_recorded:
            record = record._replace(form="as returned")
        return "records its result", *self._give(there, worker, number, record)

    def _give(
        self, state: State, worker: Worker, number: int, record: Record
    ) -> tuple[State, Worker]:
        """Give the function a result."""
        place = worker.place
        if record.name != self._name(worker, number):
            state = state._replace(wrong="the result of another call is given")
        if self.is_large:
            key = record.by if self.keys_by_writer else 0
            values = [by for at, name, by in state.apart if (at, name) == (place, key)]
            if not values:
                state = state._replace(wrong="a record names a value that is not there")
            record = record._replace(by=values[0] if values else 0)
        before = state.given[place]
        if before and before != record:
            state = state._replace(wrong="a replay is given another result")
        given = put(state.given, place, record)
        first = record.by if place == 0 else worker.first
        after = worker._replace(at="call", place=place + 1, first=first, has_recorded=True)
        return state._replace(given=given), after

    def _accepts(self, state: State, fence: int) -> bool:
        match self.store:
            case "opened":
                return state.opened == fence or not self.opens_the_log
            case "transactions":
                return state.row.fence == fence or not self.opens_the_log
        return True

    def _written(self, state: State, write: Write) -> State:
        """Write a record unless there is one, or a value."""
        place, record = write.place, write.record
        if write.what == "value":
            key = record.by if self.keys_by_writer else 0
            others = {value for value in state.apart if value[:2] != (place, key)}
            return state._replace(apart=frozenset(others) | {(place, key, record.by)})
        is_free = state.log[place] is None or not self.records_once
        if is_free and self._accepts(state, record.by):
            return state._replace(log=put(state.log, place, record))
        return state

    def _holds(self, state: State, worker: Worker) -> bool:
        return state.row.at == "held" and state.row.fence == worker.fence

    def _release(self, state: State, worker: Worker, at: str) -> tuple[State, Worker]:
        if not self._holds(state, worker):
            return state, Worker()
        has_begun = state.row.has_begun or worker.has_recorded or not self.notes_after_records
        row = Row(at, worker.fence, has_begun=has_begun)
        return state._replace(row=row), Worker("over" if at == "stopped" else "idle")

    def _ended(self, state: State, worker: Worker) -> State:
        ended = state._replace(row=state.row._replace(at="ended"))
        if worker.place < STEPS and state.log[worker.place]:
            return ended._replace(wrong="code that differs ends the job")
        return ended


MODELS = {
    "claims open the log": DurableLog(),
    "leases are checked": DurableLog("plain", has_clock=True),
    "a group with the claim": DurableLog("transactions"),
    "values lie apart": DurableLog(is_large=True),
    "another second call": DurableLog(other="other"),
    "no second call": DurableLog(other="nothing"),
    "the log is lost": DurableLog(losses=1),
}
MUTANTS = {
    "a result replaces another": DurableLog("plain", has_clock=True, records_once=False),
    "an unknown record counts": DurableLog("plain", has_clock=True, knows_only_responses=False),
    "given as it was returned": DurableLog(gives_what_was_recorded=False),
    "an input is not recorded": DurableLog(records_inputs=False),
    "values are kept by position": DurableLog(is_large=True, keys_by_writer=False),
    "a value is not waited for": DurableLog(is_large=True, waits_for_values=False),
    "names are not compared": DurableLog(other="other", compares_at_replay=False),
    "names of found records are not compared": DurableLog(
        "plain", other="other", has_clock=True, compares_at_writes=False
    ),
    "the end is not compared": DurableLog(other="nothing", compares_the_end=False),
    "an interrupted attempt goes on": DurableLog(stays_interrupted=False),
    "a higher fence stops nobody": DurableLog(
        "plain", has_clock=True, stops_at_higher_fences=False, checks_its_lease=False
    ),
    "records stop a stale worker": DurableLog("plain"),
    "the log is not opened": DurableLog(opens_the_log=False),
    "the log is opened whatever is in it": DurableLog(opens_what_it_read=False),
    "leases are not checked": DurableLog("plain", has_clock=True, checks_its_lease=False),
    "a lost log is a new one": DurableLog(losses=1, needs_its_log=False),
    "begun before it has recorded": DurableLog(notes_after_records=False),
}
