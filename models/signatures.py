"""Workers whose versions of a task take other arguments (O9, rule P13).

The arguments of a job fit the last worker only, which starts and stops. A worker that claimed the
job in vain lists the lane that names all signatures which were refused, and moves the job there.
When the wait is over, any worker claims from that lane, and ends the job if no worker that lives
has another signature. Claims may expire.

Guarantees: each other worker claims the job once, and again only after an expired claim or the end
of a wait. It always waits where the worker that fits looks. It is dead only after the end of a
wait, read while that worker did not live.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

Lane = frozenset[int]
WORKERS = 3
FITS = WORKERS - 1
EXPIRIES = 1
WAITS = 2
STARTS = 1


class Row(NamedTuple):
    """The job's row; lane: the workers that it was refused by. is_over: its wait is over."""

    lane: Lane
    token: int
    is_claimed: bool = False
    is_over: bool = False


class Worker(NamedTuple):
    """A worker: its next step, and the token that it read or wrote."""

    at: str = "poll"
    token: int = 0


class State(NamedTuple):
    """The row, the listed lanes and the workers; is_up: whether the worker that fits lives.

    claims: number of claims in vain. renewed: number of waits that began again. starts, waits,
    expiries: how many are left.
    """

    row: Row | None
    listed: frozenset[Lane]
    workers: tuple[Worker, ...]
    is_up: bool
    starts: int
    waits: int
    expiries: int
    token: int
    claims: int = 0
    wrong: str = ""


@dataclass(frozen=True)
class Signatures:
    """Rules; a mutant leaves out one. All are of rule P13."""

    moves: bool = True
    names_all: bool = True
    lists_first: bool = True
    leaves_what_it_refused: bool = True
    claims_after_the_wait: bool = True
    asks_who_lives: bool = True

    def start(self) -> State:
        """Return a state with one due row, in a lane of all workers."""
        workers = tuple(Worker() for _ in range(WORKERS))
        row, listed = Row(frozenset(), 1), frozenset({frozenset[int]()})
        return State(
            row,
            listed,
            workers,
            is_up=False,
            starts=STARTS,
            waits=WAITS,
            expiries=EXPIRIES,
            token=2,
        )

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a claim expire, a wait end, the worker that fits start or stop, or one continue."""
        row = state.row
        if row and row.is_claimed and state.expiries:
            free = row._replace(is_claimed=False)
            yield "the claim expires", state._replace(row=free, expiries=state.expiries - 1)
        if row and row.lane and not row.is_over and state.waits:
            over = row._replace(is_over=True)
            yield "the wait is over", state._replace(row=over, waits=state.waits - 1)
        if state.is_up:
            stopped = put(state.workers, FITS, Worker())
            yield "the worker that fits stops", state._replace(is_up=False, workers=stopped)
        elif state.starts:
            yield "the worker that fits starts", state._replace(is_up=True, starts=state.starts - 1)
        for number, worker in enumerate(state.workers):
            if number == FITS and not state.is_up:
                continue
            for words, there, after in self._work(state, worker, number):
                workers = put(there.workers, number, after)
                yield f"worker {number + 1} {words}", there._replace(workers=workers)

    def fault(self, state: State) -> str:
        """Check where the job waits, and how often it was claimed in vain."""
        row = state.row
        accidents = EXPIRIES - state.expiries + WAITS - state.waits
        if state.wrong or row is None:
            return state.wrong
        if state.claims > FITS + accidents * FITS:
            return "a job is claimed again and again"
        if row.is_claimed:
            return ""
        if not self._sees(state, row, FITS):
            return "a job waits where the worker that fits does not look"
        if row.is_over and not any(self._sees(state, row, number) for number in range(FITS)):
            return "a job waits without an end"
        return ""

    def _sees(self, state: State, row: Row, number: int) -> bool:
        """Return whether a worker polls the lane of the row."""
        if row.lane not in state.listed:
            return False
        if row.is_over and self.claims_after_the_wait:
            return True
        return number not in row.lane or not self.leaves_what_it_refused

    def _work(  # noqa: PLR0912  (one case for each step)
        self, state: State, worker: Worker, number: int
    ) -> Iterator[tuple[str, State, Worker]]:
        row = state.row
        holds = row is not None and row.token == worker.token
        lane = row.lane if row and self.names_all else frozenset[int]()
        target = lane | {number}
        match worker.at:
            case "poll" if row and not row.is_claimed and self._sees(state, row, number):
                yield "reads the row", state, Worker("claim", row.token)
            case "claim" if row and holds and not row.is_claimed:
                claimed = row._replace(token=state.token, is_claimed=True)
                there = state._replace(row=claimed, token=state.token + 1)
                if number == FITS:
                    yield "claims it", there, Worker("run", state.token)
                else:
                    there = there._replace(claims=state.claims + 1)
                    yield "claims it in vain", there, Worker("judge", state.token)
            case "claim":
                yield "is rejected", state, Worker()
            case "judge" if row and holds and self._is_last(row, number):
                if state.is_up and self.asks_who_lives:
                    yield "reads that another lives", state, worker._replace(at="list")
                else:
                    at = "wrong" if state.is_up else "end"
                    yield "reads who lives", state, worker._replace(at=at)
            case "judge":
                yield (
                    "lets it wait",
                    state,
                    worker._replace(at="list" if self.lists_first else "move"),
                )
            case "list":
                listed = state._replace(listed=state.listed | {target})
                yield "lists the lane", listed, worker._replace(at="move")
            case "move":
                to = target if self.moves else row.lane if row else target
                moved = Row(to, state.token) if holds else row
                yield "moves it", state._replace(row=moved, token=state.token + 1), Worker()
            case "end" | "wrong":
                wrong = "a job is dead that a worker can take" if worker.at == "wrong" else ""
                there = state._replace(row=None, wrong=wrong) if holds else state
                yield "ends it", there, Worker()
            case "run":
                yield "runs it", state._replace(row=None if holds else row), Worker()

    def _is_last(self, row: Row, number: int) -> bool:
        return number in row.lane and row.is_over


MODELS = {"two signatures that refuse, one that fits": Signatures()}
MUTANTS = {
    "a job stays in its lane": Signatures(moves=False),
    "the lane names the last refusal alone": Signatures(names_all=False),
    "the lane is not listed": Signatures(lists_first=False),
    "a worker claims what it refused": Signatures(leaves_what_it_refused=False),
    "no worker claims after the wait": Signatures(claims_after_the_wait=False),
    "a worker does not ask who lives": Signatures(asks_who_lives=False),
}
