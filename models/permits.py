"""Permits of a limit (F1).

Two workers share the record of a limit with one permit, which has the number that each holds. A
worker reads it, writes its own number if the other leaves room, claims as many jobs, ends them,
and writes a lower number. Its permits may expire at any time. The heartbeat then reacquires them
if they are free, and otherwise releases the jobs under them. A write may have no response: then
it arrives later, or never.

Guarantees: no more jobs run under valid claims than there are permits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

CAPACITY = 1
JOBS_MAX = 2
WRITES_MAX = 4


class Record(NamedTuple):
    """Number of permits of each worker, and whose have expired; version: the last write."""

    held: tuple[int, ...] = (0, 0)
    expired: frozenset[int] = frozenset()
    version: tuple[int, int] = (-1, 0)

    def others(self, number: int) -> int:
        """Return the number of permits of the other worker."""
        other = 1 - number
        return 0 if other in self.expired else self.held[other]


class Write(NamedTuple):
    """A conditional write of a worker's own number."""

    expect: tuple[int, int]
    number: int
    held: int
    version: tuple[int, int]


class Worker(NamedTuple):
    """A worker: its next step, the record that it read, its jobs, and whether claims are valid."""

    at: str = "idle"
    known: Record | None = None
    permits: int = 0
    running: int = 0
    lasts: bool = True
    writes: int = 0


class State(NamedTuple):
    """The record, the workers, a pending write, and how often permits may still expire."""

    record: Record
    workers: tuple[Worker, ...]
    sent: Write | None
    unknowns: int
    expiries: int


@dataclass(frozen=True)
class Permits:
    """Rules; a mutant leaves out one."""

    counts_others: bool = True  # rule N1
    writes_on_what_it_read: bool = True  # rule N1
    acquires_before_it_claims: bool = True  # rule N1
    never_guesses: bool = True  # rule N1
    claims_end_with_permits: bool = True  # rule N4
    reads_before_it_extends: bool = True  # rule N4

    def start(self) -> State:
        """Return a state without held permits."""
        return State(Record(), (Worker(), Worker()), None, 1, 2)

    def fault(self, state: State) -> str:
        """Count the jobs that run under valid claims."""
        running = sum(worker.running for worker in state.workers if worker.lasts)
        return f"{running} run at once" if running > CAPACITY else ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a write arrive, permits expire, or a worker continue."""
        if state.sent:
            yield "a late write arrives", self._apply(state._replace(sent=None), state.sent)[1]
        for number, worker in enumerate(state.workers):
            if state.expiries and state.record.held[number] and number not in state.record.expired:
                yield f"the permits of worker {number + 1} expire", self._expire(state, number)
            for words, there, after in self._work(state, worker, number):
                workers = put(there.workers, number, after)
                yield f"worker {number + 1} {words}", there._replace(workers=workers)

    def _expire(self, state: State, number: int) -> State:
        record = state.record._replace(expired=state.record.expired | {number})
        workers = state.workers
        if self.claims_end_with_permits:
            workers = put(workers, number, workers[number]._replace(lasts=False))
        return state._replace(record=record, workers=workers, expiries=state.expiries - 1)

    def _work(
        self, state: State, worker: Worker, number: int
    ) -> Iterator[tuple[str, State, Worker]]:
        match worker.at:
            case "idle":
                if worker.running:
                    yield "ends a job", state, worker._replace(running=worker.running - 1)
                if worker.permits > worker.running and worker.lasts and worker.running < JOBS_MAX:
                    claimed = worker._replace(running=worker.running + 1)
                    yield "claims a job for a permit that it holds", state, claimed
                elif not self.acquires_before_it_claims and worker.running < JOBS_MAX:
                    yield "claims a job", state, worker._replace(running=worker.running + 1)
                if worker.writes < WRITES_MAX:
                    yield "reads", state, worker._replace(at="seen", known=state.record)
            case "seen":
                yield from self._say(state, worker, number)

    def _say(
        self, state: State, worker: Worker, number: int
    ) -> Iterator[tuple[str, State, Worker]]:
        """Acquire one more permit, release unused ones, or extend them."""
        assert worker.known
        known = worker.known
        free = CAPACITY - (known.others(number) if self.counts_others else 0)
        if worker.running < free:
            yield from self._send(state, worker, number, worker.running + 1, "acquires a permit")
        if worker.permits > worker.running:
            yield from self._send(state, worker, number, worker.running, "releases permits")
        if number in known.expired:
            if worker.permits <= free or not self.reads_before_it_extends:
                yield from self._send(state, worker, number, worker.permits, "extends its permits")
            else:  # its permits are gone, and so are the claims under them
                lost = worker._replace(at="idle", known=None, permits=0, running=0, lasts=True)
                yield "has lost its jobs", state, lost
        yield "does nothing", state, worker._replace(at="idle", known=None)

    def _send(
        self, state: State, worker: Worker, number: int, held: int, words: str
    ) -> Iterator[tuple[str, State, Worker]]:
        assert worker.known
        writes = worker.writes + 1
        write = Write(worker.known.version, number, held, (number, writes))
        is_applied, there = self._apply(state, write)
        idle = worker._replace(at="idle", known=None, writes=writes)
        after = idle._replace(permits=held, lasts=True) if is_applied else idle
        yield words, there, after
        if state.unknowns and not state.sent:
            # It may hold the old or the new number, and claims nothing for the difference.
            permits = held if not self.never_guesses else max(worker.running, 0)
            unsure = idle._replace(permits=permits)
            yield f"{words}, without a response", state._replace(sent=write, unknowns=0), unsure

    def _apply(self, state: State, write: Write) -> tuple[bool, State]:
        record = state.record
        if self.writes_on_what_it_read and record.version != write.expect:
            return False, state
        return True, state._replace(
            record=Record(
                put(record.held, write.number, write.held),
                record.expired - {write.number},
                write.version,
            )
        )


MODELS = {"two workers": Permits()}
MUTANTS = {
    "permits of others do not count": Permits(counts_others=False),
    "an unconditional write": Permits(writes_on_what_it_read=False),
    "claims before permits": Permits(acquires_before_it_claims=False),
    "an unknown write counts as written": Permits(never_guesses=False),
    "claims outlast permits": Permits(claims_end_with_permits=False),
    "expired permits are extended unread": Permits(reads_before_it_extends=False),
}
