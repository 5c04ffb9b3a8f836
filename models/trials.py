"""Events that kill their process, and processes that are killed for other reasons (R4).

One shard has two events. Processes handle it one after the other, because a lease excludes others
(rules L1 and L2). One of the events, or none, kills the process that handles it. A process may
also be killed at any step for another reason, a few times, or leave.

Guarantees: the deadly event is dead-lettered after a bounded number of deaths, and no other is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

ROWS = 2
PARK_AFTER = 2
KILLS_MAX = 1
LEAVES_MAX = 2
DEATHS_MAX = 2 + PARK_AFTER
"""Maximum number of processes that one event kills: unknown, in a batch, and alone."""


class Trial(NamedTuple):
    """Record next to the checkpoint: rows `at` to `until`, and deaths of `at` alone."""

    at: int
    until: int
    deaths: int
    is_open: bool


class State(NamedTuple):
    """State of the shard; `at` is idle, hold (a process has the shard), or run (its handler).

    place: rows before it are handled or dead-lettered. has_died: the previous process died.
    last: the last row of the current batch.
    """

    deadly: int
    at: str = "idle"
    place: int = 0
    trial: Trial | None = None
    has_died: bool = False
    is_noted: bool = False
    last: int = 0
    aside: frozenset[int] = frozenset()
    deaths: int = 0
    kills: int = 0
    leaves: int = 0


@dataclass(frozen=True)
class Trials:
    """Rules; a mutant leaves out one."""

    writes_first: bool = True  # rule F7
    counts_alone_only: bool = True  # rule F7
    removes_ended_attempts: bool = True  # rule F7
    removes_its_own_only: bool = True  # rule F7
    passes_suspicion_on: bool = True  # rule F7
    deadly: int = 0

    def start(self) -> State:
        """Return a shard without a holder."""
        return State(self.deadly)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a process take the shard, deliver, handle, leave, or be killed."""
        match state.at:
            case "idle" if state.place < ROWS:
                yield "a process takes the shard", state._replace(at="hold", is_noted=False)
            case "hold" if state.place < ROWS:
                yield from self._hand_out(state)
            case "run":
                yield from self._handle(state)
        if state.at == "hold" and state.leaves < LEAVES_MAX:
            left = self._left(state)._replace(leaves=state.leaves + 1)
            yield "the process leaves", left
        if state.at != "idle" and state.kills < KILLS_MAX:
            yield "the process is killed", _dead(state)._replace(kills=state.kills + 1)

    def fault(self, state: State) -> str:
        """Check the dead-lettered events, and how many processes the deadly event killed."""
        if state.aside - {state.deadly}:
            return "a harmless event is dead-lettered"
        if state.deaths > DEATHS_MAX + state.kills:
            return "an event kills too many processes"
        return ""

    def _hand_out(self, state: State) -> Iterator[tuple[str, State]]:
        trial, first = state.trial, state.place
        is_alone = trial is not None and first <= trial.until
        last = first if is_alone else ROWS - 1
        known = 0 if trial is None or trial.at != first else trial.deaths
        if not state.is_noted and known >= PARK_AFTER:
            aside = state._replace(aside=state.aside | {first}, has_died=False)
            yield "the event is dead-lettered", self._passed(aside, first)
            return
        if state.is_noted or not (state.has_died or trial):
            yield "events are delivered", state._replace(at="run", last=last)
            return
        counts = first == last or not self.counts_alone_only
        until = last if trial is None else max(last, trial.until)
        noted = Trial(first, until, known + 1 if counts else 0, is_open=True)
        there = state._replace(is_noted=True, trial=noted if self.writes_first else trial)
        yield "the attempt is recorded", there._replace(at="run", last=last)

    def _handle(self, state: State) -> Iterator[tuple[str, State]]:
        if state.place <= state.deadly <= state.last:
            yield "the handler dies", _dead(state)._replace(deaths=state.deaths + 1)
            return
        yield "the batch is handled", self._passed(state, state.last)._replace(has_died=False)
        yield "the handler raises", self._raised(state)

    def _raised(self, state: State) -> State:
        """Remove the attempt; a repeated one is recorded again."""
        return self._over(state)._replace(at="hold", is_noted=False)

    def _left(self, state: State) -> State:
        has_died = state.has_died and self.passes_suspicion_on
        return self._over(state)._replace(at="idle", has_died=has_died)

    def _over(self, state: State) -> State:
        trial = state.trial
        is_own = state.is_noted or not self.removes_its_own_only
        if trial is None or not trial.is_open or not (is_own and self.removes_ended_attempts):
            return state
        trial = Trial(trial.at, trial.until, max(0, trial.deaths - 1), is_open=False)
        return state._replace(trial=trial)

    def _passed(self, state: State, last: int) -> State:
        trial = state.trial
        if trial is not None:
            trial = Trial(last + 1, trial.until, 0, is_open=False) if last < trial.until else None
        return state._replace(at="hold", place=last + 1, trial=trial, is_noted=False)


def _dead(state: State) -> State:
    return state._replace(at="idle", has_died=True)


NONE = ROWS
"""No event is deadly."""

MODELS = {
    "the first event kills": Trials(),
    "the last event kills": Trials(deadly=1),
    "no event kills": Trials(deadly=NONE),
}
MUTANTS = {
    "not recorded": Trials(writes_first=False),
    "a batch counts": Trials(counts_alone_only=False, deadly=1),
    "a death is removed": Trials(removes_its_own_only=False),
    "a member that leaves forgets": Trials(passes_suspicion_on=False),
    "an ended attempt counts": Trials(removes_ended_attempts=False, deadly=NONE),
}
