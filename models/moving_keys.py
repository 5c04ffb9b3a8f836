"""Jobs of one order key while their store moves (rule X11).

The entries of the key are in the new store, each with a mark. A worker of the old store ends the
first job, or gives it back. A mover inserts a row in the new store, deletes it in the old one, and
reads there which rows are left, to remove marks; one read may miss a row that a worker gives back.
A call in the new store appends a job. A worker of the new store reads the entries and then the
rows, and starts the first job that has not ended.

Guarantees: one job of the key runs at a time, in the order of the entries, and none waits for ever.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

NO_MARK = False
WAITS, RUNS, MOVES = "waits", "runs", "moves"


class State(NamedTuple):
    """The jobs of the key, in order.

    old, new: the row of each job in both stores; "" for none. marks: of the entries; the last one
    is of the call in the new store. ended: jobs.
    """

    old: tuple[str, ...]
    new: tuple[str, ...]
    marks: tuple[bool, ...]
    ended: frozenset[int] = frozenset()
    retries: int = 1
    fault: str = ""


@dataclass(frozen=True)
class MovingKeys:
    """Rules; a mutant leaves out one. jobs: in the old store."""

    jobs: int = 2
    entries_are_marked: bool = True
    marks_wait_for_rows: bool = True
    looks_twice: bool = True  # rule J8
    inserts_first: bool = True  # rule X4
    removes_marks: bool = True

    def start(self) -> State:
        """Return a key whose first job runs in the old store."""
        old = (RUNS, *[WAITS] * (self.jobs - 1), "")
        return State(old, ("",) * len(old), (self.entries_are_marked,) * self.jobs + (False,))

    def fault(self, state: State) -> str:
        """Find a job that passes another one, or waits though nothing is left to happen."""
        if state.fault:
            return state.fault
        is_quiet = not any(state.old) and RUNS not in state.new and any(state.new)
        return "a job waits for ever" if is_quiet and not any(self.steps(state)) else ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a worker of either store, the mover or a caller take a step."""
        yield from self._work(state)
        yield from self._move(state)
        last = self.jobs
        if not state.new[last] and last not in state.ended:
            yield "a job is called", state._replace(new=put(state.new, last, WAITS))
        if (job := self._first(state)) >= 0:
            earlier = set(range(job)) - state.ended
            fault = f"{job} passes {min(earlier)}" if earlier else ""
            there = state._replace(new=put(state.new, job, RUNS), fault=fault)
            yield f"{job} starts in the new store", there
        for job, row in enumerate(state.new):
            if row == RUNS:
                ended = state._replace(new=put(state.new, job, ""), ended=state.ended | {job})
                yield f"{job} ends in the new store", ended

    def _first(self, state: State) -> int:
        """Return the job that may start in the new store; -1 for none."""
        for job, row in enumerate(state.new):
            if row:
                return job if row == WAITS else -1
            if state.marks[job]:
                return -1
        return -1

    def _work(self, state: State) -> Iterator[tuple[str, State]]:
        for job, row in enumerate(state.old):
            if row == RUNS:
                ended = state._replace(old=put(state.old, job, ""), ended=state.ended | {job})
                yield f"{job} ends in the old store", ended
                if state.retries:
                    there = state._replace(old=put(state.old, job, MOVES), retries=0)
                    yield f"{job} is given back", there
            if row == MOVES:
                yield f"the row of {job} has moved", state._replace(old=put(state.old, job, WAITS))

    def _move(self, state: State) -> Iterator[tuple[str, State]]:
        for job, row in enumerate(state.old):
            is_inserted = bool(state.new[job]) or job in state.ended
            if row == WAITS and not is_inserted:
                yield f"{job} is inserted", state._replace(new=put(state.new, job, WAITS))
            if row == WAITS and (is_inserted or not self.inserts_first):
                yield f"{job} is deleted", state._replace(old=put(state.old, job, ""))
        for job, is_marked in enumerate(state.marks):
            if not (is_marked and self.removes_marks):
                continue
            row = state.old[job]
            if not row or not self.marks_wait_for_rows or (row == MOVES and not self.looks_twice):
                yield (
                    f"the mark of {job} goes",
                    state._replace(marks=put(state.marks, job, NO_MARK)),
                )


MODELS = {
    "two jobs, and one in the new store": MovingKeys(),
    "three jobs, and one in the new store": MovingKeys(jobs=3),
}
MUTANTS = {
    "entries have no marks": MovingKeys(entries_are_marked=False),
    "marks go while rows are in the old store": MovingKeys(marks_wait_for_rows=False),
    "rows are looked for once": MovingKeys(looks_twice=False),
    "rows are deleted before they are inserted": MovingKeys(inserts_first=False),
    "marks stay": MovingKeys(removes_marks=False),
}
