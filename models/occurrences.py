"""One occurrence of a schedule whose definition changes around its time.

An operator declares the schedule with other arguments, or removes and declares it again. Any
process then cancels the jobs of former definitions and stores the job of the present one. A worker
claims a job, maybe before it is due, runs it and deletes its row.

Guarantees: the occurrence runs at most once, and it runs if its schedule is not removed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put


class Record(NamedTuple):
    """The schedule: its present definition, and the former ones whose jobs are to be cancelled.

    is_stored: the present definition has stored its job. is_taken: a former one's job stands for
    the occurrence. leaves: the schedule is removed.
    """

    version: int
    definition: int
    is_stored: bool = False
    is_taken: bool = False
    recalled: frozenset[int] = frozenset()
    leaves: bool = False

    def is_open(self) -> bool:
        """Return whether the occurrence is not handled."""
        return not (self.is_stored or self.is_taken or self.recalled or self.leaves)


class Process(NamedTuple):
    """A process that advances the schedule: what it read, and the jobs that it cancelled."""

    at: str = "read"
    record: Record | None = None
    cancelled: frozenset[int] = frozenset()


class State(NamedTuple):
    """The record, the row of each definition's job, and the processes.

    rows: "" for none so far, then waiting, claimed, cancelled or gone. changes: how many are left.
    """

    record: Record | None
    rows: tuple[str, ...]
    processes: tuple[Process, ...]
    changes: int
    number: int = 1
    runs: int = 0


@dataclass(frozen=True)
class Occurrences:
    """Rules; a mutant leaves out one."""

    transactional: bool = False
    counts_what_a_worker_has: bool = True  # rule Z7
    counts_what_is_gone: bool = True  # rule Z7
    keeps_cancelled_rows: bool = True  # rule Z7
    keeps_removed_schedules: bool = True  # rule Z7
    keeps_what_is_taken: bool = True  # rule Z7
    changes_what_it_read: bool = True  # rules Z1 and Z2
    recalls: bool = True  # rule Z3

    changes = 2

    def start(self) -> State:
        """Return a state whose job is stored."""
        rows = ("waiting", *("" for _ in range(self.changes)))
        processes = (Process(), Process())
        return State(Record(0, 0, is_stored=True), rows, processes, self.changes)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let the operator, the worker or a process continue."""
        yield from self._change(state)
        for number, row in enumerate(state.rows):
            if row == "waiting":
                rows = put(state.rows, number, "claimed")
                yield f"a worker claims job {number}", state._replace(rows=rows)
            if row == "claimed":
                rows = put(state.rows, number, "gone")
                yield f"job {number} runs", state._replace(rows=rows, runs=state.runs + 1)
        for place, process in enumerate(state.processes):
            for words, there, after in self._advance(state, process):
                processes = put(there.processes, place, after)
                yield f"process {place + 1} {words}", there._replace(processes=processes)

    def fault(self, state: State) -> str:
        """Check how often the occurrence has run, or still can."""
        if state.runs > 1:
            return "the occurrence runs twice"
        record = state.record
        is_over = record is not None and (record.is_stored or record.is_taken)
        is_over = is_over and not (record and (record.leaves or record.recalled))
        lives = "waiting" in state.rows or "claimed" in state.rows
        return "the occurrence is lost" if is_over and not (state.runs or lives) else ""

    def _change(self, state: State) -> Iterator[tuple[str, State]]:
        """Write another definition, or the removal, over the record that is there."""
        old = state.record
        if old is not None and not old.leaves:
            recalled = self._recalled(old)
            leaving = old._replace(
                version=state.number, is_stored=False, recalled=recalled, leaves=True
            )
            words = "the operator removes the schedule"
            yield words, state._replace(record=leaving, number=state.number + 1)
        if state.changes:
            new = Record(state.number, 1 + self.changes - state.changes)
            if old is not None:
                is_taken = old.is_taken and self.keeps_what_is_taken
                new = new._replace(is_taken=is_taken, recalled=self._recalled(old))
            yield (
                "the operator declares other arguments",
                state._replace(record=new, number=state.number + 1, changes=state.changes - 1),
            )

    def _recalled(self, old: Record) -> frozenset[int]:
        """Return whose jobs a change cancels."""
        if not self.recalls:
            return frozenset()
        return old.recalled | ({old.definition} if old.is_stored else set())

    def _advance(self, state: State, process: Process) -> Iterator[tuple[str, State, Process]]:
        record = process.record
        match process.at:
            case "read" if state.record is not None:
                yield "reads the schedule", state, Process("work", state.record)
            case "work" if record and record.recalled and self.transactional:
                yield from self._recall_at_once(state, record)
            case "work" if record and record.recalled:
                yield from self._cancel(state, process, record)
            case "work" if record and record.leaves:
                is_needed = self.keeps_removed_schedules and record.is_taken
                if not is_needed and self._holds(state, record):
                    yield "deletes the schedule", state._replace(record=None), Process()
                else:
                    yield "leaves the schedule", state, Process()
            case "work" if record and record.is_open():
                stored = self._write(state, record, record._replace(is_stored=True))
                if stored is not None:
                    rows = put(stored.rows, record.definition, "waiting")
                    stored = stored._replace(rows=rows)
                yield "stores the job", stored or state, Process()
            case "work":
                yield "has nothing to do", state, Process()
            case "drop":
                rows = tuple(
                    "gone" if number in process.cancelled else row
                    for number, row in enumerate(state.rows)
                )
                yield "deletes the rows", state._replace(rows=rows), Process()

    def _cancel(
        self, state: State, process: Process, record: Record
    ) -> Iterator[tuple[str, State, Process]]:
        """Decide the end of one job after the other, then write the schedule."""
        for number in record.recalled:
            if state.rows[number] == "waiting":
                row = "cancelled" if self.keeps_cancelled_rows else "gone"
                after = process._replace(cancelled=process.cancelled | {number})
                there = state._replace(rows=put(state.rows, number, row))
                yield f"cancels job {number}", there, after
                return
        cancelled = {number for number in record.recalled if state.rows[number] == "cancelled"}
        written = self._recall(state, record, process.cancelled | cancelled)
        dropped = frozenset(cancelled) if written else frozenset[int]()
        yield "writes what it cancelled", written or state, Process("drop", None, dropped)

    def _recall_at_once(self, state: State, record: Record) -> Iterator[tuple[str, State, Process]]:
        """Cancel jobs and write the schedule in one transaction."""
        waiting = frozenset(number for number in record.recalled if state.rows[number] == "waiting")
        there = self._recall(state, record, waiting)
        if there is not None:
            rows = tuple("gone" if n in waiting else row for n, row in enumerate(there.rows))
            there = there._replace(rows=rows)
        yield "cancels the jobs", there or state, Process()

    def _recall(self, state: State, record: Record, cancelled: frozenset[int]) -> State | None:
        """Write which jobs were not cancelled: the occurrence is handled by them."""
        kept = {state.rows[number] for number in record.recalled - cancelled}
        is_had = self.counts_what_a_worker_has and "claimed" in kept
        is_gone = self.counts_what_is_gone and "gone" in kept
        is_taken = record.is_taken or is_had or is_gone
        done = record._replace(recalled=frozenset(), is_taken=is_taken)
        return self._write(state, record, done)

    def _write(self, state: State, old: Record, new: Record) -> State | None:
        if not self._holds(state, old):
            return None
        return state._replace(record=new._replace(version=state.number), number=state.number + 1)

    def _holds(self, state: State, old: Record) -> bool:
        is_same = state.record is not None and state.record.version == old.version
        return is_same or not self.changes_what_it_read


MODELS = {
    "two processes, by steps": Occurrences(),
    "two processes, transactions": Occurrences(transactional=True),
}
MUTANTS = {
    "a job that a worker has is not there": Occurrences(counts_what_a_worker_has=False),
    "so in transactions": Occurrences(transactional=True, counts_what_a_worker_has=False),
    "a job that is gone was cancelled": Occurrences(counts_what_is_gone=False),
    "rows go before the schedule says so": Occurrences(keeps_cancelled_rows=False),
    "a removed schedule is deleted at once": Occurrences(keeps_removed_schedules=False),
    "a change forgets what is taken": Occurrences(keeps_what_is_taken=False),
    "a write over any version": Occurrences(changes_what_it_read=False),
    "former jobs stay": Occurrences(recalls=False),
}
