"""Jobs of a large cost at limits (F12, rule N9).

Two workers have small jobs without end, which take one permit of the first limit. One worker or
both also have a large job, which takes all permits of each limit. A large job that lacks permits
stands in line in its worker, and in the records of the limits. Its worker may stall until that has
expired, and then asks again as of its first request. It may run a more urgent job first.

Guarantees: no small job overtakes a large one that stands in line; if nothing runs, a large one
can run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

CAPACITY = 2


class State(NamedTuple):
    """What runs and waits.

    small, urgent: jobs that run, by worker. large: "", "waits", "runs" or "done", by worker. turns:
    workers with large jobs, in the order in which these asked first. places: workers whose large
    job stands in line in the worker. waits: those whose wait is recorded. is_fresh: permits were
    released a moment ago. overtakes: small jobs that started while a large one waited. stalls,
    rushes: how often a worker may still stall, or run an urgent job.
    """

    small: tuple[int, ...] = (0, 0)
    urgent: tuple[int, ...] = (0, 0)
    large: tuple[str, ...] = ("", "")
    turns: tuple[int, ...] = ()
    places: frozenset[int] = frozenset()
    waits: frozenset[int] = frozenset()
    is_fresh: bool = False
    overtakes: int = 0
    stalls: int = 1
    rushes: int = 1

    @property
    def free(self) -> int:
        """Number of free permits of the first limit."""
        used = sum(self.small) + sum(self.urgent)
        return CAPACITY * (1 - self.large.count("runs")) - used


@dataclass(frozen=True)
class Turns:
    """Rules; a mutant leaves out one. larges: workers with a large job. limits: of such a job."""

    larges: int = 1
    limits: int = 1
    stands_in_line: bool = True
    keeps_reservations: bool = True
    leaves_the_place_of_others: bool = True
    has_one_order: bool = True

    def start(self) -> State:
        """Return a state in which nothing runs."""
        return State()

    def fault(self, state: State) -> str:
        """Return whether a large job waits too long."""
        if state.overtakes:
            return "a small job overtakes a large one"
        waiting = [who for who in (0, 1) if state.large[who] == "waits"]
        if (
            waiting
            and state.free == CAPACITY
            and not any(self._may_run(state, who) for who in waiting)
        ):
            return "nothing runs, and the large jobs wait"
        return ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a job start or end, a worker stall, or half a second pass."""
        if state.is_fresh:
            yield "half a second passes", state._replace(is_fresh=False)
        for who in (0, 1):
            for words, after in self._work(state, who):
                yield f"worker {who + 1} {words}", after

    def _work(self, state: State, who: int) -> Iterator[tuple[str, State]]:
        if state.small[who]:
            small = put(state.small, who, state.small[who] - 1)
            yield "ends a small job", state._replace(small=small, is_fresh=True)
        if state.urgent[who]:
            yield "ends an urgent job", state._replace(urgent=(0, 0), is_fresh=True)
        if state.large[who] == "runs":
            large = put(state.large, who, "done")
            yield "ends its large job", state._replace(large=large, is_fresh=True)
        if state.free > self._reserved(state, who):
            small = put(state.small, who, state.small[who] + 1)
            overtakes = state.overtakes + ("waits" in state.large)
            yield "starts a small job", state._replace(small=small, overtakes=overtakes)
        if state.rushes and state.free:
            urgent = put(state.urgent, who, 1)
            rushed = state._replace(urgent=urgent, rushes=0)
            if not self.leaves_the_place_of_others:
                rushed = rushed._replace(waits=state.waits - {who})
            yield "starts an urgent job", rushed
        if state.stalls and who in state.places:
            gone = state._replace(stalls=0, places=state.places - {who}, waits=state.waits - {who})
            gone = gone._replace(large=put(state.large, who, ""))
            yield "stalls, and its place expires", gone
        if who < self.larges and state.large[who] in ("", "waits"):
            yield "asks for its large job", self._ask(state, who)

    def _reserved(self, state: State, who: int) -> int:
        """Return how many permits small jobs of a worker must leave."""
        mine = self.stands_in_line and who in state.places
        others = (self.keeps_reservations or state.is_fresh) and bool(state.waits - {who})
        return CAPACITY * (mine + others)

    def _may_run(self, state: State, who: int) -> bool:
        """Return whether all permits of each limit are free, and no turn comes before this one."""
        for limit in range(self.limits):
            turns = state.turns if self.has_one_order or not limit else state.turns[::-1]
            first = turns[: turns.index(who)]
            if any(other in state.waits for other in first):
                return False
        return state.free == CAPACITY

    def _ask(self, state: State, who: int) -> State:
        if who not in state.turns:
            state = state._replace(turns=(*state.turns, who))
        if self._may_run(state, who):
            return state._replace(
                large=put(state.large, who, "runs"),
                places=state.places - {who},
                waits=state.waits - {who},
            )
        return state._replace(
            large=put(state.large, who, "waits"),
            places=state.places | {who},
            waits=state.waits | {who},
        )


MODELS = {
    "one large job": Turns(),
    "two large jobs of two limits": Turns(larges=2, limits=2),
}
MUTANTS = {
    "no line in the worker": Turns(stands_in_line=False),
    "reserved for half a second": Turns(keeps_reservations=False),
    "an urgent job ends the wait": Turns(leaves_the_place_of_others=False),
    "an order for each limit": Turns(larges=2, limits=2, has_one_order=False),
}
