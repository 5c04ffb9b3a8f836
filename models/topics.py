"""Events of a topic, and the jobs of a task that subscribes, without transactions (F10, F11).

Two processes publish one event each. Two workers hold the shard, one after the other: a former
holder may go on at any time. Each opens the checkpoint, decides which rows it inserts for the next
events, inserts them, and moves the checkpoint. Between these steps the queue may get another
number of shards, so that new rows are in another lane, and jobs run and are deleted.

Guarantees: each event that is published by a process that knows the subscriber is one job, once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from models.explore import put

EVENTS = 2
HOLDERS = 2

Plan = tuple[int, int]
"""Up to which event rows are inserted, and in which lane."""

Key = tuple[int, int]
"""An event, and the lane of its job."""


class Holder(NamedTuple):
    """A worker. at: its next step. epoch: of its lease. place, plan: as it read or wrote them."""

    at: str = "idle"
    epoch: int = 0
    place: int = 0
    plan: Plan | None = None
    version: int = 0


class State(NamedTuple):
    """The stream, the checkpoint, and the rows of jobs.

    begin: the first event that the subscriber reads; None: it is not registered. knows: publishers
    that have registered it. rows: keys that exist. gone: keys that were deleted. runs: of each.
    """

    events: int = 0
    begin: int | None = None
    knows: int = 0
    epoch: int = 0
    version: int = 0
    place: int = 0
    plan: Plan | None = None
    holders: tuple[Holder, ...] = (Holder(),) * HOLDERS
    lane: int = 0
    rows: frozenset[Key] = frozenset()
    gone: frozenset[Key] = frozenset()
    wrong: str = ""


@dataclass(frozen=True)
class Topics:
    """Rules, of which a mutant leaves out one."""

    registers_first: bool = True  # rule F10
    decides_first: bool = True  # rule F11
    keeps_the_plan: bool = True  # rule F11
    inserts_before_it_moves: bool = True  # rule F11
    writes_under_its_version: bool = True  # rules F11, L2
    remembers_deleted: bool = True  # rule B1

    def start(self) -> State:
        """Return an empty stream, which nobody reads."""
        return State()

    def fault(self, state: State) -> str:
        """Find an event with two jobs, and one that was passed without a job."""
        if state.wrong:
            return state.wrong
        keys = state.rows | state.gone
        for event in range(state.events):
            jobs = [key for key in keys if key[0] == event]
            if len(jobs) > 1:
                return "an event has two jobs"
            is_read = state.begin is not None and (event < state.begin or event < state.place)
            if is_read and not jobs:
                return "an event is passed without a job"
        return ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Publish, take the shard, go on, change the queue, run a job."""
        if state.events < EVENTS:
            yield from self._publish(state)
        if not state.lane:
            yield "the queue gets more shards", state._replace(lane=1)
        for key in state.rows:
            rows, gone = state.rows - {key}, state.gone | {key}
            yield "a job runs and is deleted", state._replace(rows=rows, gone=gone)
        for number, holder in enumerate(state.holders):
            for words, there in self._go_on(state, number, holder):
                yield f"worker {number} {words}", there

    def _publish(self, state: State) -> Iterator[tuple[str, State]]:
        begin = state.events if state.begin is None else state.begin
        if self.registers_first and state.knows <= state.events:
            there = state._replace(begin=begin, knows=state.events + 1)
            yield "a publisher registers the subscriber", there
            return
        yield "an event is published", state._replace(events=state.events + 1)

    def _go_on(self, state: State, number: int, holder: Holder) -> Iterator[tuple[str, State]]:
        def to(here: Holder, **changes: Any) -> State:  # noqa: ANN401  (as `_replace` takes them)
            return state._replace(holders=put(state.holders, number, here), **changes)

        is_held = self.writes_under_its_version is False or holder.version == state.version
        match holder.at:
            case "idle" if holder.epoch == 0 and state.epoch == number:
                begin = state.events if state.begin is None else state.begin
                taken = Holder("open", state.epoch + 1)
                yield "takes the shard", to(taken, epoch=state.epoch + 1, begin=begin)
            case "open" if holder.epoch >= state.epoch:
                version = state.version + 1
                place = max(state.place, state.begin or 0)
                plan = state.plan if self.keeps_the_plan else None
                opened = Holder("read", holder.epoch, place, plan, version)
                yield "opens the checkpoint", to(opened, version=version)
            case "read" if holder.place < state.events:
                plan = holder.plan or (state.events, state.lane)
                if not self.decides_first:
                    yield "reads events", to(holder._replace(at="insert", plan=plan))
                elif is_held:
                    version = state.version + 1
                    decided = holder._replace(at="insert", plan=plan, version=version)
                    yield "decides", to(decided, plan=plan, version=version)
                else:
                    yield "is refused", to(holder._replace(at="over"))
            case "insert" if not self.inserts_before_it_moves and holder.plan:
                yield from self._close(state, number, holder, is_held=is_held)
            case "insert" if holder.plan:
                until, lane = holder.plan
                keys = frozenset((event, lane) for event in range(holder.place, until))
                again = keys & state.gone
                wrong = "a job runs twice" if again and not self.remembers_deleted else ""
                there = to(holder._replace(at="close"), rows=state.rows | keys - state.gone)
                yield "inserts jobs", there._replace(wrong=wrong)
            case "close":
                yield from self._close(state, number, holder, is_held=is_held)

    def _close(
        self, state: State, number: int, holder: Holder, *, is_held: bool
    ) -> Iterator[tuple[str, State]]:
        if not is_held or holder.plan is None:
            holders = put(state.holders, number, holder._replace(at="over"))
            yield "is refused", state._replace(holders=holders)
            return
        version, place = state.version + 1, holder.plan[0]
        closed = holder._replace(at="read", place=place, plan=None, version=version)
        holders = put(state.holders, number, closed)
        moved = state._replace(holders=holders, version=version, place=place, plan=None)
        yield "moves the checkpoint", moved


MODELS = {"two workers": Topics()}
MUTANTS = {
    "published before it is registered": Topics(registers_first=False),
    "inserted before it is decided": Topics(decides_first=False),
    "decided anew": Topics(keeps_the_plan=False),
    "moved before it is inserted": Topics(inserts_before_it_moves=False),
    "written under any version": Topics(writes_under_its_version=False),
    "deleted keys are inserted again": Topics(remembers_deleted=False),
}
