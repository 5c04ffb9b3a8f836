"""Generations of a durable function: `restart_with`, and retries and resets by an operator.

A function calls two steps, and then restarts or ends. It may fail, with a compensation or
without. An operator resets it to a position, or asks that its next claim goes on after its records.
Two workers claim it in turn; a worker may stall anywhere and write into the log of an older
generation at any later time.

Guarantees: what an older generation records late is never read; each replay is given the same; a
restart begins one generation, with its arguments; no generation is stopped for lack of a log that
it does not need; a job that was compensated never ends done.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

CLAIMS = 4
STEPS = 2
NONE = 0
GENERATIONS = 3


class Row(NamedTuple):
    """The job: due, held, dead or done.

    generation, base: the log that it has, and the positions that it reads from the one before.
    since: the fence at which the generation began. has_begun: what its options say.
    """

    at: str = "due"
    fence: int = 0
    is_out: bool = False
    generation: int = 0
    base: int = 0
    since: int = 0
    has_begun: bool = False


class Worker(NamedTuple):
    """A worker, and the row that it claimed. place: its next call."""

    at: str = "idle"
    row: Row = Row()
    place: int = 0


class Operator(NamedTuple):
    """An operator, with the row and the number of records that it read."""

    at: str = "read"
    row: Row | None = None
    records: int = 0


Log = tuple[int, ...]
"""The fences of the runs whose results are recorded, by position."""


class State(NamedTuple):
    """The row, a log for each generation, and processes.

    opened: the fence of each log. arguments: generations whose arguments are recorded. retried: the
    generation after which a claim goes on.
    given: what the function of each generation was first given. restarts: by which fences.
    """

    row: Row = Row()
    logs: tuple[Log, ...] = ((NONE,) * STEPS,) * GENERATIONS
    opened: tuple[int, ...] = (0,) * GENERATIONS
    arguments: frozenset[int] = frozenset({0})
    workers: tuple[Worker, ...] = (Worker(), Worker())
    operator: Operator = Operator()
    retried: int = -1
    given: tuple[Log, ...] = ((NONE,) * STEPS,) * GENERATIONS
    is_undone: bool = False
    failures: int = 1
    wrong: str = ""


@dataclass(frozen=True)
class DurableGenerations:
    """Rules; a mutant leaves out one. restarts: the function ends by a restart, once."""

    restarts: bool = False
    reads_up_to_the_base: bool = True  # rule D8
    opens_the_old_log: bool = True  # rules D11, D13
    retries_what_it_read: bool = True  # rules D13, P2
    refuses_after_compensations: bool = True  # rules D5, D13
    records_arguments_first: bool = True  # rule D13
    restarts_under_its_claim: bool = True  # rules D13, P2
    clears_what_has_begun: bool = True  # rules D13, D14

    def start(self) -> State:
        """Return a function that was never claimed."""
        return State(operator=Operator("over" if self.restarts else "read"))

    def fault(self, state: State) -> str:
        """Return the fault that a step found."""
        if state.is_undone and state.row.at == "done":
            return "a job that was compensated ends done"
        return state.wrong

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let the lease run out, the operator retry, or a worker go on."""
        row = state.row
        if row.at == "held" and not row.is_out and row.fence < CLAIMS:
            yield "the lease runs out", state._replace(row=row._replace(is_out=True))
        for words, there, operator in self._retry(state, state.operator):
            yield f"the operator {words}", there._replace(operator=operator)
        for number, worker in enumerate(state.workers):
            for words, there, after in self._act(state, worker):
                workers = put(there.workers, number, after)
                yield f"worker {number + 1} {words}", there._replace(workers=workers)

    def _retry(self, state: State, operator: Operator) -> Iterator[tuple[str, State, Operator]]:
        """Begin a generation that keeps the records up to a position."""
        row = state.row
        if operator.at == "read" and row.fence and (row.at in ("due", "dead") or row.is_out):
            records = sum(by != NONE for by in state.logs[row.generation])
            there = state
            if self.opens_the_old_log:
                there = state._replace(opened=put(state.opened, row.generation, row.fence + 1))
            is_refused = state.is_undone and self.refuses_after_compensations
            after = Operator("over") if is_refused else Operator("retry", row, records)
            yield f"opens the log and reads {records} records", there, after
            if row.at == "dead" and not is_refused:
                there = state._replace(retried=row.generation)
                yield "asks that it goes on", there, Operator("run", row)
        if operator.at == "run" and (operator.row == row or not self.retries_what_it_read):
            yield "runs it", state._replace(row=row._replace(at="due")), Operator("over")
        if operator.at != "retry":
            return
        if operator.row != row and self.retries_what_it_read:
            yield "finds another row", state, Operator("over")
        else:
            for base in range(operator.records + 1):
                there = self._retried(state, base)
                yield f"retries it from position {base + 1}", there, Operator("over")

    def _retried(self, state: State, base: int) -> State:
        row = state.row
        generation = row.generation + 1
        kept = Row("due", row.fence, generation=generation, base=base, since=row.fence)
        kept = kept._replace(has_begun=base > 0)
        return state._replace(row=kept, arguments=state.arguments | {generation})

    def _act(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        row = state.row
        match worker.at:
            case "idle" if row.fence < CLAIMS and (row.at == "due" or row.is_out):
                yield self._claim(state)
            case "call" if state.retried == worker.row.generation and not state.is_undone:
                yield self._go_on(state, worker)
            case "call" if worker.place == STEPS and self._may_restart(worker):
                yield "calls restart_with", state, worker._replace(at=self._first_of_restart())
            case "call" if worker.place == STEPS:
                done = self._moved(state, worker, worker.row._replace(at="done"))
                yield "ends the job", done, Worker()
            case "call":
                yield from self._call(state, worker)
            case "record":
                yield self._record(state, worker)
            case "arguments" | "restart":
                yield self._restart(state, worker)

    def _claim(self, state: State) -> tuple[str, State, Worker]:
        row = state.row
        held = row._replace(at="held", fence=row.fence + 1, is_out=False)
        opened = put(state.opened, row.generation, held.fence)
        there = state._replace(row=held, opened=opened)
        if row.generation not in state.arguments:
            there = there._replace(wrong="a generation has no arguments")
        has_log = any(state.logs[row.generation]) or row.base
        if row.has_begun and not has_log:
            there = there._replace(wrong="a function that has recorded nothing is stopped")
        return "claims it and opens the log", there, Worker("call", held)

    def _go_on(self, state: State, worker: Worker) -> tuple[str, State, Worker]:
        """Begin the next generation, with the records that the claim has read (rule D13)."""
        row = worker.row
        if state.opened[row.generation] != row.fence and self.restarts_under_its_claim:
            return "is refused", state, Worker()
        base = sum(by != NONE for by in state.logs[row.generation])
        begun = Row("due", row.fence, generation=row.generation + 1, base=base, since=row.fence)
        begun = begun._replace(has_begun=base > 0)
        there = state._replace(arguments=state.arguments | {begun.generation})
        return "goes on after its records", self._moved(there, worker, begun), Worker()

    def _may_restart(self, worker: Worker) -> bool:
        return self.restarts and worker.row.generation == 0

    def _read(self, state: State, row: Row, place: int) -> int:
        """Read one position, of its own log or of the one before."""
        is_kept = place < row.base or not self.reads_up_to_the_base
        if row.generation and is_kept and not self.restarts:
            old = state.logs[row.generation - 1][place]
            if old != NONE:
                return old
        return state.logs[row.generation][place]

    def _call(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        by = self._read(state, worker.row, worker.place)
        if by != NONE:
            yield "replays a step", *self._give(state, worker, by)
            return
        yield "runs a step", state, worker._replace(at="record")
        if state.failures:
            there = state._replace(failures=0)
            dead = worker.row._replace(at="dead", has_begun=worker.place > 0)
            yield "fails", self._moved(there, worker, dead), Worker()
            if worker.place and state.opened[worker.row.generation] == worker.row.fence:
                undone = there._replace(is_undone=True)
                words = "fails, and compensates"
                yield words, self._moved(undone, worker, dead), Worker()

    def _record(self, state: State, worker: Worker) -> tuple[str, State, Worker]:
        number, place = worker.row.generation, worker.place
        if state.opened[number] != worker.row.fence or state.logs[number][place]:
            return "is refused", state, Worker()
        log = put(state.logs[number], place, worker.row.fence)
        there = state._replace(logs=put(state.logs, number, log))
        return "records a step", *self._give(there, worker, worker.row.fence)

    def _give(self, state: State, worker: Worker, by: int) -> tuple[State, Worker]:
        row, place = worker.row, worker.place
        given = state.given[row.generation]
        if place >= row.base and by <= row.since:
            state = state._replace(wrong="a late record of an older generation is read")
        if given[place] not in (NONE, by) and row.fence == state.row.fence:
            state = state._replace(wrong="a replay is given another result")
        given = put(given, place, by)
        there = state._replace(given=put(state.given, row.generation, given))
        return there, worker._replace(at="call", place=place + 1)

    def _restart(self, state: State, worker: Worker) -> tuple[str, State, Worker]:
        """Record the arguments, then begin the generation."""
        row, is_first = worker.row, worker.at == self._first_of_restart()
        other = "restart" if worker.at == "arguments" else "arguments"
        after = worker._replace(at=other) if is_first else Worker()
        if worker.at == "restart":
            begun = Row("due", row.fence, generation=row.generation + 1, since=row.fence)
            begun = begun._replace(has_begun=not self.clears_what_has_begun)
            return "begins the generation", self._moved(state, worker, begun), after
        if state.opened[row.generation] != row.fence:
            return "is refused", state, Worker()
        there = state._replace(arguments=state.arguments | {row.generation + 1})
        return "records the arguments", there, after

    def _first_of_restart(self) -> str:
        return "arguments" if self.records_arguments_first else "restart"

    def _moved(self, state: State, worker: Worker, row: Row) -> State:
        """Write the row, under the token of the claim."""
        now = state.row
        is_mine = now.at == "held" and now.fence == worker.row.fence
        if is_mine:
            return state._replace(row=row)
        if row.generation != worker.row.generation and not self.restarts_under_its_claim:
            return state._replace(
                row=row._replace(fence=now.fence, generation=now.generation + 1),
                wrong="one restart begins two generations" if now.generation else "",
            )
        return state


MODELS = {
    "an operator retries it": DurableGenerations(),
    "it restarts": DurableGenerations(restarts=True),
}
MUTANTS = {
    "the old log is read as far as it goes": DurableGenerations(reads_up_to_the_base=False),
    "a retry leaves the old log open": DurableGenerations(opens_the_old_log=False),
    "a retry names no row": DurableGenerations(retries_what_it_read=False),
    "retried after compensations": DurableGenerations(refuses_after_compensations=False),
    "begun before its arguments": DurableGenerations(restarts=True, records_arguments_first=False),
    "a restart of any claim": DurableGenerations(restarts=True, restarts_under_its_claim=False),
    "a retried function goes on under any claim": DurableGenerations(
        restarts_under_its_claim=False
    ),
    "a restarted function has begun": DurableGenerations(
        restarts=True, clears_what_has_begun=False
    ),
}
