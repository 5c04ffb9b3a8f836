"""Permits of a limit: at most so many jobs run at once under claims that last.

Two workers share the record of a limit with one permit: how many each holds. A worker reads it,
writes its own number if the others leave room, claims as many jobs, ends them, and writes a
lower number. Its hold may lapse at any time, since it may stand still; the beat then takes it
again if it is still free, and otherwise lets go of what runs under it. A write may be left
without an answer: then it lands later, or never.

Promised: no more jobs run under claims that have not lapsed than there are permits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

CAPACITY = 1
JOBS_MAX = 2
WRITES_MAX = 4


class Record(NamedTuple):
    """How many permits each holds, and whose have lapsed; version: of which write it is."""

    held: tuple[int, ...] = (0, 0)
    lapsed: frozenset[int] = frozenset()
    version: tuple[int, int] = (-1, 0)

    def others(self, number: int) -> int:
        """Count the permits that the other worker holds."""
        other = 1 - number
        return 0 if other in self.lapsed else self.held[other]


class Write(NamedTuple):
    """A conditional write of a worker's own number."""

    expect: tuple[int, int]
    number: int
    held: int
    version: tuple[int, int]


class Worker(NamedTuple):
    """What it does; the record as it read it; its jobs, and whether their claims last."""

    at: str = "idle"
    known: Record | None = None
    told: int = 0
    running: int = 0
    lasts: bool = True
    writes: int = 0


class State(NamedTuple):
    """The record, the workers, a write on its way; how often a hold may lapse yet."""

    record: Record
    workers: tuple[Worker, ...]
    sent: Write | None
    unknowns: int
    lapses: int


@dataclass(frozen=True)
class Permits:
    """The rules, each of which can be left out."""

    counts_others: bool = True  # rule N1
    writes_on_what_it_read: bool = True  # rule N1
    takes_before_it_claims: bool = True  # rule N1
    never_guesses: bool = True  # rule N1
    claims_end_with_permits: bool = True  # rule N4
    looks_before_it_extends: bool = True  # rule N4

    def start(self) -> State:
        """Begin with nothing held."""
        return State(Record(), (Worker(), Worker()), None, 1, 2)

    def fault(self, state: State) -> str:
        """Count the jobs that run under claims that last."""
        running = sum(one.running for one in state.workers if one.lasts)
        return f"{running} run at once" if running > CAPACITY else ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a write land, a hold lapse, or a worker go on."""
        if state.sent:
            yield "a late write lands", self._apply(state._replace(sent=None), state.sent)[1]
        for number, worker in enumerate(state.workers):
            if state.lapses and state.record.held[number] and number not in state.record.lapsed:
                yield f"the hold of worker {number + 1} lapses", self._lapse(state, number)
            for words, there, after in self._work(state, worker, number):
                workers = put(there.workers, number, after)
                yield f"worker {number + 1} {words}", there._replace(workers=workers)

    def _lapse(self, state: State, number: int) -> State:
        record = state.record._replace(lapsed=state.record.lapsed | {number})
        workers = state.workers
        if self.claims_end_with_permits:
            workers = put(workers, number, workers[number]._replace(lasts=False))
        return state._replace(record=record, workers=workers, lapses=state.lapses - 1)

    def _work(self, state: State, one: Worker, number: int) -> Iterator[tuple[str, State, Worker]]:
        match one.at:
            case "idle":
                if one.running:
                    yield "ends a job", state, one._replace(running=one.running - 1)
                if one.told > one.running and one.lasts and one.running < JOBS_MAX:
                    claimed = one._replace(running=one.running + 1)
                    yield "claims a job for a permit that it holds", state, claimed
                elif not self.takes_before_it_claims and one.running < JOBS_MAX:
                    yield "claims a job", state, one._replace(running=one.running + 1)
                if one.writes < WRITES_MAX:
                    yield "reads", state, one._replace(at="seen", known=state.record)
            case "seen":
                yield from self._say(state, one, number)

    def _say(self, state: State, one: Worker, number: int) -> Iterator[tuple[str, State, Worker]]:
        """Take one permit more, give back what is not used, or let the hold last longer."""
        assert one.known
        known = one.known
        free = CAPACITY - (known.others(number) if self.counts_others else 0)
        if one.running < free:
            yield from self._send(state, one, number, one.running + 1, "takes a permit")
        if one.told > one.running:
            yield from self._send(state, one, number, one.running, "gives back")
        if number in known.lapsed:
            if one.told <= free or not self.looks_before_it_extends:
                yield from self._send(state, one, number, one.told, "holds on")
            else:  # its permits are gone, and so are the claims under them
                lost = one._replace(at="idle", known=None, told=0, running=0, lasts=True)
                yield "has lost its jobs", state, lost
        yield "does nothing", state, one._replace(at="idle", known=None)

    def _send(
        self, state: State, one: Worker, number: int, held: int, words: str
    ) -> Iterator[tuple[str, State, Worker]]:
        assert one.known
        writes = one.writes + 1
        write = Write(one.known.version, number, held, (number, writes))
        is_applied, there = self._apply(state, write)
        idle = one._replace(at="idle", known=None, writes=writes)
        after = idle._replace(told=held, lasts=True) if is_applied else idle
        yield words, there, after
        if state.unknowns and not state.sent:
            # Held may be as many as before, or as it wrote: it claims nothing for the difference.
            told = held if not self.never_guesses else max(one.running, 0)
            unsure = idle._replace(told=told)
            yield f"{words}, and hears nothing", state._replace(sent=write, unknowns=0), unsure

    def _apply(self, state: State, write: Write) -> tuple[bool, State]:
        record = state.record
        if self.writes_on_what_it_read and record.version != write.expect:
            return False, state
        return True, state._replace(
            record=Record(
                put(record.held, write.number, write.held),
                record.lapsed - {write.number},
                write.version,
            )
        )


MODELS = {"two workers": Permits()}
MUTANTS = {
    "permits of others do not count": Permits(counts_others=False),
    "an unconditional write": Permits(writes_on_what_it_read=False),
    "claims before permits": Permits(takes_before_it_claims=False),
    "what was not answered is taken for written": Permits(never_guesses=False),
    "claims outlast permits": Permits(claims_end_with_permits=False),
    "a lapsed hold is extended unseen": Permits(looks_before_it_extends=False),
}
