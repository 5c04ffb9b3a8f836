"""Claims and outcomes of one row (C7).

Two workers read the row, claim it, run it, extend it, and end or release it. An operator cancels
it with the token that it read. Any conditional write may have no response: then it arrives at any
later time, or never. A worker without a response reads back, and repeats the write if it is not
there.

Guarantees: no worker claims a claimed row, fences grow, an outcome is applied only while the row
has its token, a handler never starts on an old state of the row, and no claim is reported as
rejected while the row has its token.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

NOW_MAX = 2
LEASE = 1
CANCEL = 90
ANEW = 5
"""Offset of the token of a repeat, in the mutant where it differs."""


class Row(NamedTuple):
    """The stored row of a job."""

    fence: int
    at: int
    token: int
    cancelled: bool


class Write(NamedTuple):
    """A conditional write: the row that was read, and the new cells.

    token: the one that a claim writes, or that an outcome names. fresh: the one after a move.
    """

    what: str
    token: int
    seen: Row | None = None
    fresh: int = 0
    at: int = 0


class Worker(NamedTuple):
    """A worker: its next step and its claim."""

    at: str = "idle"
    token: int = 0
    seen: Row | None = None
    claims: int = 0


class State(NamedTuple):
    """The time, the row, the processes, and pending writes.

    granted: the highest fence of any claim. over: tokens of ended claims.
    """

    now: int
    row: Row | None
    workers: tuple[Worker, ...]
    cancel: Write | None
    sent: frozenset[Write]
    granted: int
    over: frozenset[int]
    unknowns: int
    extends: int
    wrong: str = ""


@dataclass(frozen=True)
class Claims:
    """Rules; a mutant leaves out one."""

    claims_by_token: bool = True  # rules P1, P4
    claims_by_at: bool = True  # rule P1
    claims_by_fence: bool = False  # what rule P4 forbids
    raises_the_fence: bool = True  # rule P1
    reads_back: bool = True  # rule U2
    knows_its_own: bool = True  # rule U5
    repeats_the_same: bool = True  # rule U5
    ends_by_token: bool = True  # rule P2
    extends_by_token: bool = True  # rule P2
    moves_to_a_fresh_token: bool = True  # rule P2
    cancels_by_token: bool = True  # rule P6

    def start(self) -> State:
        """Return a state with one due row."""
        workers = (Worker(claims=2), Worker(claims=1))
        nothing: frozenset[int] = frozenset()
        return State(0, Row(0, 0, 1, cancelled=False), workers, None, frozenset(), 0, nothing, 1, 1)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let time pass, a write arrive, or a process continue."""
        if state.now < NOW_MAX:
            yield "time passes", state._replace(now=state.now + 1)
        for write in state.sent:
            held, there = self._apply(state._replace(sent=state.sent - {write}), write)
            if held:
                yield f"a late {write.what} arrives", there
        for number, worker in enumerate(state.workers):
            for words, there, after in self._work(state, worker, number):
                workers = put(there.workers, number, after)
                yield f"worker {number + 1} {words}", there._replace(workers=workers)
        yield from self._cancel(state)

    def fault(self, state: State) -> str:
        """Return the fault that a step found."""
        return state.wrong

    def _work(
        self, state: State, worker: Worker, number: int
    ) -> Iterator[tuple[str, State, Worker]]:
        idle = Worker(claims=worker.claims)
        row = state.row
        match worker.at:
            case "idle" if row and row.at <= state.now and worker.claims:
                token = 10 * (number + 1) + worker.claims
                yield "reads the row", state, Worker("claim", token, row, worker.claims - 1)
            case "claim":
                assert worker.seen
                claim = Write("claim", worker.token, worker.seen, at=state.now + LEASE)
                yield self._claimed(state, worker, idle, claim)
                if state.unknowns:
                    asks = worker._replace(at="ask" if self.reads_back else "run")
                    yield "claims it, without a response", _send(state, claim), asks
            case "ask":
                if row is not None and row.token == worker.token:
                    yield "reads back: mine", state, self._held(worker)
                elif row == worker.seen:
                    again = worker._replace(at="claim")
                    if not self.repeats_the_same:
                        again = again._replace(token=worker.token + ANEW)
                    yield "reads back: not yet", state, again
                else:
                    yield "reads back: not mine", state, idle
            case "run":
                if worker.token not in state.over and state.granted == 0:
                    there = state._replace(wrong="a handler runs without a claim")
                    yield "runs it", there, worker
                yield from self._end(state, worker)

    def _claimed(
        self, state: State, worker: Worker, idle: Worker, claim: Write
    ) -> tuple[str, State, Worker]:
        held, there = self._apply(state, claim)
        if held:
            return "claims it", there, self._held(worker)
        row = state.row
        if row is not None and row.token == worker.token and self.knows_its_own:
            return "is rejected because of itself", state, self._held(worker)
        if row is not None and row.token in (worker.token, worker.token - ANEW):
            state = state._replace(wrong="a claim that holds is reported as rejected")
        return "is rejected", state, idle

    def _held(self, worker: Worker) -> Worker:
        assert worker.seen
        return worker._replace(at="run", seen=None)

    def _end(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        idle = Worker(claims=worker.claims)
        if state.extends:
            extend = Write("extend", worker.token, at=state.now + LEASE)
            sent = state._replace(sent=state.sent | {extend}, extends=state.extends - 1)
            yield "sends an extension", sent, worker
        for what in ("drop", "move"):
            outcome = Write(what, worker.token, fresh=worker.token + 100, at=state.now)
            yield f"sends a {what}", self._apply(state, outcome)[1], idle
            if state.unknowns:
                yield f"sends a {what}, without a response", _send(state, outcome), idle

    def _cancel(self, state: State) -> Iterator[tuple[str, State]]:
        row, cancel = state.row, state.cancel
        if cancel is None and row and not row.cancelled:
            read = Write("cancel", row.token, fresh=CANCEL, at=row.at)
            yield "an operator reads the row", state._replace(cancel=read)
        elif cancel and cancel.what == "cancel":
            _, there = self._apply(state, cancel)
            yield "the operator cancels", there._replace(cancel=Write("end", 0))

    def _apply(self, state: State, write: Write) -> tuple[bool, State]:
        """Apply a write if its condition holds; record faults."""
        row = state.row
        if row is None:
            return False, state
        if write.what == "claim":
            return self._apply_claim(state, row, write)
        by_token = {"extend": self.extends_by_token, "cancel": self.cancels_by_token}
        is_current = row.token == write.token
        if by_token.get(write.what, self.ends_by_token) and not is_current:
            return False, state
        over = state.over
        if write.what == "drop":
            new = None
        elif write.what == "extend":
            new = row._replace(at=write.at, token=write.token)
        else:
            fresh = write.fresh if self.moves_to_a_fresh_token else row.token
            cancelled = row.cancelled or write.what == "cancel"
            new = row._replace(at=write.at, token=fresh, cancelled=cancelled)
        if write.what != "extend":
            over = over | {write.token}
        is_stale = not is_current or write.token in state.over
        wrong = f"a stale {write.what} is accepted" if is_stale else ""
        return True, state._replace(row=new, over=over, wrong=wrong)

    def _apply_claim(self, state: State, row: Row, write: Write) -> tuple[bool, State]:
        assert write.seen
        seen = write.seen
        if (
            (self.claims_by_token and row.token != seen.token)
            or (self.claims_by_at and row.at != seen.at)
            or (self.claims_by_fence and row.fence != seen.fence)
        ):
            return False, state
        fence = seen.fence + self.raises_the_fence
        wrong = ""
        if row.at > state.now:
            wrong = "a row is taken before its time"
        elif row.cancelled and not seen.cancelled:
            wrong = "a cancelled job is started"
        elif fence <= state.granted:
            wrong = "a fence does not grow"
        new = row._replace(fence=fence, at=write.at, token=write.token)
        over = state.over | {row.token}
        return True, state._replace(row=new, granted=fence, over=over, wrong=wrong)


def _send(state: State, write: Write) -> State:
    return state._replace(sent=state.sent | {write}, unknowns=state.unknowns - 1)


MODELS = {"two workers and an operator": Claims()}
MUTANTS = {
    "an unfenced claim": Claims(claims_by_token=False, claims_by_at=False),
    "a claim by the fence": Claims(claims_by_token=False, claims_by_fence=True),
    "a claim by the token alone": Claims(claims_by_at=False),
    "the fence is not incremented": Claims(raises_the_fence=False),
    "an unknown claim runs": Claims(reads_back=False),
    "a rejection is not verified": Claims(knows_its_own=False),
    "a repeat has another token": Claims(repeats_the_same=False),
    "an unconditional outcome": Claims(ends_by_token=False),
    "an extension revives an expired claim": Claims(extends_by_token=False),
    "a move keeps the token": Claims(moves_to_a_fresh_token=False),
    "an unconditional cancel": Claims(cancels_by_token=False),
}
