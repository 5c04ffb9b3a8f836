"""Workers that know different tasks and codecs (O9).

A job needs a task and a codec. One worker knows the task, one the codec, one both; they poll the
same shard. A worker that claimed the job without knowing all that it needs lists the lane of what
the job needs, and moves the job there. Claims may expire, and a move may have no response: then it
arrives later, or never. How a row moves is modelled in `carry`.

Guarantees: workers that cannot run the job claim it once, and only again after an expired claim or
a lost response. It always waits where the worker that knows it looks, at its place, with its
limits.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

Lane = frozenset[str]
ANY: Lane = frozenset()
NEEDS: Lane = frozenset({"task", "codec"})
KNOWN: tuple[Lane, ...] = (frozenset({"task"}), frozenset({"codec"}), NEEDS)
EXPIRIES = 2
UNKNOWNS = 1


class Row(NamedTuple):
    """The job's row; lane: what a worker must know to claim from its lane."""

    lane: Lane
    token: int
    is_claimed: bool = False
    has_place: bool = True
    has_limits: bool = True


class Worker(NamedTuple):
    """A worker: its next step, and the token that it read or wrote."""

    at: str = "poll"
    token: int = 0


class State(NamedTuple):
    """The row, the listed lanes, the workers, and moves without response as tokens and lanes.

    claims: number of claims by workers that cannot run the job.
    """

    row: Row | None
    listed: frozenset[Lane]
    workers: tuple[Worker, ...]
    sent: frozenset[tuple[int, Lane]]
    expiries: int
    unknowns: int
    token: int
    claims: int = 0
    wrong: str = ""


@dataclass(frozen=True)
class Tasks:
    """Rules; a mutant leaves out one. All are of rule P10."""

    moves: bool = True
    moves_by_token: bool = True
    lists_first: bool = True
    keeps_its_place: bool = True
    keeps_its_limits: bool = True
    names_all_it_needs: bool = True
    leaves_lanes_of_others: bool = True
    claims_from_its_lanes: bool = True
    counts_on_workers_that_know_as_much: bool = True

    def start(self) -> State:
        """Return a state with one due row, in a lane of any tasks."""
        workers = tuple(Worker() for _ in KNOWN)
        return State(Row(ANY, 1), frozenset({ANY}), workers, frozenset(), EXPIRIES, UNKNOWNS, 2)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a claim expire, a move arrive, or a worker continue."""
        if state.row and state.row.is_claimed and state.expiries:
            row = state.row._replace(is_claimed=False)
            yield "the claim expires", state._replace(row=row, expiries=state.expiries - 1)
        for token, lane in state.sent:
            there = state._replace(sent=state.sent - {(token, lane)})
            yield "a late move arrives", self._moved(there, token, lane)
        for number, worker in enumerate(state.workers):
            for words, there, after in self._work(state, worker, KNOWN[number]):
                workers = put(there.workers, number, after)
                yield f"worker {number + 1} {words}", there._replace(workers=workers)

    def fault(self, state: State) -> str:
        """Check where the job waits, and how often it was claimed in vain."""
        row = state.row
        accidents = EXPIRIES - state.expiries + UNKNOWNS - state.unknowns
        if state.wrong or row is None:
            return state.wrong
        if state.claims > 1 + accidents:
            return "a job is claimed again and again"
        if not row.has_limits:
            return "a job can run without its limits"
        if row.is_claimed:
            return ""
        if not self._sees(state, row, NEEDS):
            return "a job waits where no worker that knows it looks"
        return "" if row.has_place else "a job has lost its place"

    def _sees(self, state: State, row: Row, known: Lane) -> bool:
        """Return whether a worker polls the lane of the row."""
        if row.lane not in state.listed:
            return False
        if known == NEEDS and not self.counts_on_workers_that_know_as_much:
            return False  # the first worker prefers the shard
        if row.lane == ANY:
            return True
        return self.claims_from_its_lanes and (row.lane <= known or not self.leaves_lanes_of_others)

    def _work(
        self, state: State, worker: Worker, known: Lane
    ) -> Iterator[tuple[str, State, Worker]]:
        row = state.row
        holds = row is not None and row.token == worker.token
        target = NEEDS if self.names_all_it_needs else NEEDS - known
        match worker.at:
            case "poll" if row and not row.is_claimed and self._sees(state, row, known):
                yield "reads the row", state, Worker("claim", row.token)
            case "claim" if row and holds and not row.is_claimed:
                claimed = row._replace(token=state.token, is_claimed=True)
                there = state._replace(row=claimed, token=state.token + 1)
                if known == NEEDS:
                    yield "claims it", there, Worker("run", state.token)
                else:
                    there = there._replace(claims=state.claims + 1)
                    at = "list" if self.moves and self.lists_first else "move"
                    yield "claims it in vain", there, Worker(at, state.token)
            case "claim":
                yield "is rejected", state, Worker()
            case "list":
                listed = state._replace(listed=state.listed | {target})
                yield "lists the lane", listed, worker._replace(at="move")
            case "move" if not self.moves:
                yield "releases it", self._moved(state, worker.token, ANY), Worker()
            case "move":
                yield "moves it", self._moved(state, worker.token, target), Worker()
                if state.unknowns:
                    sent = state.sent | {(worker.token, target)}
                    there = state._replace(sent=sent, unknowns=state.unknowns - 1)
                    yield "moves it without a response", there, Worker()
            case "run":
                yield "runs it", state._replace(row=None if holds else row), Worker()

    def _moved(self, state: State, token: int, lane: Lane) -> State:
        row = state.row
        if (row is None or row.token != token) and self.moves_by_token:
            return state
        wrong = "" if row and row.token == token else "a job of another claim is moved"
        moved = Row(
            lane, state.token, has_place=self.keeps_its_place, has_limits=self.keeps_its_limits
        )
        return state._replace(row=moved, token=state.token + 1, wrong=wrong)


MODELS = {"three workers, a task and a codec": Tasks()}
MUTANTS = {
    "a job stays in its lane": Tasks(moves=False),
    "a move without the token": Tasks(moves_by_token=False),
    "the lane is not listed": Tasks(lists_first=False),
    "a moved job is the last": Tasks(keeps_its_place=False),
    "a moved job has no limits": Tasks(keeps_its_limits=False),
    "the lane names what one worker lacks": Tasks(names_all_it_needs=False),
    "all workers claim from the lane": Tasks(leaves_lanes_of_others=False),
    "no worker claims from the lane": Tasks(claims_from_its_lanes=False),
    "a shard is left to any worker": Tasks(counts_on_workers_that_know_as_much=False),
}
