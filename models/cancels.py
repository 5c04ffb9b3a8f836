"""Cancelling a job that runs, by force (C19).

A canceller reads a claimed row, writes its request under the job and under the worker that holds
the claim, and then reads the row again. Two workers claim the job; one that claims it again asks
for requests first. The holder reads its requests while the handler runs, and ends the job at once.
Its handler may run on. An operator retries the job by hand. Claims may expire, and a handler may
fail, also for good.

Guarantees: after the call no handler starts under a later claim, unless the job is retried by hand;
the holder learns of the request; no other claim is stopped; the job ends once, and not as dead if
the request was there when the holder last read its requests.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

CLAIMABLE = ("waiting", "expired")
Inbox = frozenset[tuple[int, int]]
"""Requests under workers: the number of the worker, and the fence of its claim."""


class Row(NamedTuple):
    """The job's row: waiting, claimed, expired or dead."""

    state: str
    fence: int
    token: int
    holder: int = 0


class Worker(NamedTuple):
    """A worker: its next step, its claim, and the fences of the requests that it has read.

    asked: whether it found a request under the job before this claim. noting: requests to delete.
    """

    at: str = "idle"
    fence: int = 0
    token: int = 0
    learned: frozenset[int] = frozenset()
    noting: frozenset[int] = frozenset()
    asked: bool = False


class Caller(NamedTuple):
    """The canceller or the operator: its next step, and what it read."""

    at: str = "look"
    row: Row | None = None
    request: int = 0


class State(NamedTuple):
    """The row, the requests, and the processes.

    request: version of the request under the job; 0 for none. promised: fence of the claim that the
    canceller was told of; -1 for none. asked_for: fences whose end was requested.
    """

    row: Row | None
    request: int
    inbox: Inbox
    canceller: Caller
    operator: Caller
    workers: tuple[Worker, ...]
    expiries: int = 1
    failures: int = 1
    number: int = 1
    promised: int = -1
    asked_for: frozenset[int] = frozenset()
    ended: int = 0
    wrong: str = ""


@dataclass(frozen=True)
class Cancels:
    """Rules; a mutant leaves out one."""

    requests_at_the_job: bool = True  # rule P11
    requests_at_the_holder: bool = True  # rule P11
    reads_the_claim_again: bool = True  # rule P11
    asks_before_it_runs: bool = True  # rule P11
    asks_after_it_claims: bool = True  # rule P11
    stops_the_named_claim: bool = True  # rule P11
    notes_what_it_read: bool = True  # rule P11
    reads_before_it_fails: bool = True  # rule P11
    ends_by_token: bool = True  # rule P2
    retries_withdraw: bool = True  # rule P12
    withdraws_what_it_read: bool = True  # rule P12
    late_cancels_withdraw: bool = True  # rule P12

    def start(self) -> State:
        """Return a state with one waiting row."""
        workers = (Worker(), Worker())
        return State(Row("waiting", 0, 0), 0, frozenset(), Caller(), Caller(), workers)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a claim expire, or a process continue."""
        row = state.row
        if row and row.state == "claimed" and state.expiries:
            expired = row._replace(state="expired")
            yield "the claim expires", state._replace(row=expired, expiries=state.expiries - 1)
        yield from self._cancel(state, state.canceller)
        yield from self._retry(state, state.operator)
        for number, worker in enumerate(state.workers):
            for words, there, after in self._work(state, worker, number):
                workers = put(there.workers, number, after)
                yield f"worker {number + 1} {words}", there._replace(workers=workers)

    def fault(self, state: State) -> str:
        """Check the ends, and that the holder has or finds the request."""
        if state.wrong or state.ended > 1:
            return state.wrong or "a job has ended twice"
        row = state.row
        if row is None or row.state != "claimed" or row.fence != state.promised:
            return ""
        holder = state.workers[row.holder]
        knows = row.fence in holder.learned or (row.holder, row.fence) in state.inbox
        runs = holder.at == "run" and holder.fence == row.fence
        return "a request is lost" if runs and not knows else ""

    def _cancel(self, state: State, caller: Caller) -> Iterator[tuple[str, State]]:
        def then(there: State, at: str, row: Row | None = caller.row) -> State:
            return there._replace(canceller=Caller(at, row, there.canceller.request))

        row = state.row
        match caller.at:
            case "look" if row is None or row.state == "dead":
                is_mine = caller.request and state.request == caller.request
                there = state
                if is_mine and self.late_cancels_withdraw:
                    there = state._replace(request=0)
                yield "the canceller comes too late", then(there, "end")
            case "look" if row and row.state == "waiting":
                yield "the canceller ends the job", then(self._ended(state, row.token), "end")
            case "look":
                yield "the canceller reads the row", then(state, "request", row)
            case "request":
                there = state
                if self.requests_at_the_job:
                    version = caller.request + 1
                    there = state._replace(
                        request=version, canceller=caller._replace(request=version)
                    )
                yield "the canceller writes under the job", then(there, "tell")
            case "tell" if caller.row:
                place = (caller.row.holder, caller.row.fence)
                inbox = state.inbox | {place} if self.requests_at_the_holder else state.inbox
                there = state._replace(inbox=inbox, asked_for=state.asked_for | {place[1]})
                yield "the canceller writes under the worker", then(there, "check")
            case "check" if caller.row:
                if self.reads_the_claim_again and (row is None or row.token != caller.row.token):
                    yield "the canceller finds it changed", then(state, "look")
                else:
                    there = state._replace(promised=caller.row.fence)
                    yield "the call returns", then(there, "end")

    def _retry(self, state: State, caller: Caller) -> Iterator[tuple[str, State]]:
        """Retry the job by hand: read the request, then the row, then write."""
        row = state.row
        match caller.at:
            case "look":
                read = Caller("read", None, state.request)
                yield "the operator reads the request", state._replace(operator=read)
            case "read" if row and row.fence and row.state in ("waiting", "dead"):
                after = Caller("withdraw", row, caller.request)
                yield "the operator reads the row", state._replace(operator=after)
            case "withdraw":
                there = state._replace(operator=caller._replace(at="write"))
                same = state.request == caller.request or not self.withdraws_what_it_read
                if not self.retries_withdraw:
                    yield "the operator withdraws nothing", there
                elif same:
                    is_mine = state.request == caller.request
                    promised = -1 if is_mine else state.promised  # from now on it may run
                    yield "the operator withdraws it", there._replace(request=0, promised=promised)
                else:
                    after = Caller("end")
                    yield "the operator finds another request", state._replace(operator=after)
            case "write":
                after = Caller("end")
                if caller.row and row and row.token == caller.row.token:
                    is_over = state.canceller.at == "end" and state.request
                    waiting = Row("waiting", row.fence, state.number)
                    yield (
                        "the operator retries the job",
                        state._replace(
                            row=waiting,
                            number=state.number + 1,
                            operator=after,
                            promised=-1,
                            wrong="a retried job does not run" if is_over else "",
                        ),
                    )
                else:
                    yield "the operator finds it changed", state._replace(operator=after)

    def _work(
        self, state: State, worker: Worker, number: int
    ) -> Iterator[tuple[str, State, Worker]]:
        mine = frozenset(fence for holder, fence in state.inbox if holder == number)
        if not mine <= worker.noting:
            read = worker._replace(learned=worker.learned | mine, noting=worker.noting | mine)
            yield "reads its requests", state, read
        if worker.noting:
            left = {
                (holder, fence)
                for holder, fence in state.inbox
                if holder != number or (self.notes_what_it_read and fence not in worker.noting)
            }
            there = state._replace(inbox=frozenset(left))
            yield "notes its requests", there, worker._replace(noting=frozenset())
        match worker.at:
            case "idle" if self.asks_after_it_claims:
                yield from self._claim(state, worker, number)
            case "idle":
                asked = worker._replace(at="claim", asked=bool(state.request))
                yield "asks for requests", state, asked
            case "claim":
                yield from self._claim(state, worker, number)
            case "ask":
                is_asked = bool(state.request) if self.asks_after_it_claims else worker.asked
                at = "refuse" if is_asked and self.asks_before_it_runs else "start"
                yield "asks for requests", state, worker._replace(at=at)
            case "refuse":
                yield (
                    "refuses the job",
                    self._ended(state, worker.token),
                    worker._replace(at="idle"),
                )
            case "start":
                is_late = 0 <= state.promised < worker.fence
                wrong = "a cancelled job starts again" if is_late else state.wrong
                yield "calls the handler", state._replace(wrong=wrong), worker._replace(at="run")
            case "run":
                yield from self._run(state, worker)
            case "fail" | "fail, though asked to stop":
                yield from self._fail(state, worker)

    def _claim(
        self, state: State, worker: Worker, number: int
    ) -> Iterator[tuple[str, State, Worker]]:
        row = state.row
        if row and row.state in CLAIMABLE:
            fence, token = row.fence + 1, state.number
            there = state._replace(row=Row("claimed", fence, token, number), number=token + 1)
            at = "ask" if fence > 1 else "start"  # a first claim has no request before it
            yield "claims the job", there, worker._replace(at=at, fence=fence, token=token)

    def _run(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        idle = worker._replace(at="idle")
        yield "ends the job", self._ended(state, worker.token, by_token=True), idle
        stops = (
            worker.fence in worker.learned if self.stops_the_named_claim else bool(worker.learned)
        )
        if stops:
            there = self._ended(state, worker.token)
            if worker.fence not in state.asked_for:
                there = there._replace(wrong="a claim is stopped that nobody cancelled")
            yield "ends the job by force", there, idle
        row = state.row
        if state.failures and row and row.token == worker.token:
            is_there = self.reads_before_it_fails and (row.holder, worker.fence) in state.inbox
            is_asked = worker.fence in worker.learned or is_there
            is_missed = state.promised == worker.fence and not is_asked
            at = "fail, though asked to stop" if is_missed else "fail"
            yield "reads its requests and fails", state, worker._replace(at=at, asked=is_asked)

    def _fail(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        """Write the end of a failure; a request that comes after the read is too late."""
        idle, row = worker._replace(at="idle", asked=False), state.row
        if not (row and row.token == worker.token and state.failures):
            yield "finds that it lost its claim", state, idle
        elif worker.asked:
            there = self._ended(state, worker.token)._replace(failures=0)
            yield "fails, and the job is cancelled", there, idle
        else:
            for after in ("waiting", "dead"):
                failed = Row(after, row.fence, state.number)
                is_missed = after == "dead" and worker.at != "fail"
                wrong = "a job that was asked to stop is dead" if is_missed else state.wrong
                there = state._replace(row=failed, failures=0, number=state.number + 1, wrong=wrong)
                yield f"fails, and the job is {after}", there, idle

    def _ended(self, state: State, token: int, *, by_token: bool = False) -> State:
        """Write an end under a token."""
        holds = state.row is not None and state.row.token == token
        if holds or not (self.ends_by_token or by_token):
            return state._replace(row=None, ended=state.ended + 1)
        return state


MODELS = {"two workers, one request": Cancels()}
MUTANTS = {
    "no request under the job": Cancels(requests_at_the_job=False),
    "no request under the worker": Cancels(requests_at_the_holder=False),
    "the claim is not read again": Cancels(reads_the_claim_again=False),
    "a claim does not ask": Cancels(asks_before_it_runs=False),
    "a worker asks before it claims": Cancels(asks_after_it_claims=False),
    "a request stops any claim of the job": Cancels(stops_the_named_claim=False),
    "a worker deletes requests that it did not read": Cancels(notes_what_it_read=False),
    "a failure is stored without reading the requests": Cancels(reads_before_it_fails=False),
    "an end without the token": Cancels(ends_by_token=False),
    "a retry leaves the request": Cancels(retries_withdraw=False),
    "a retry withdraws a later request": Cancels(withdraws_what_it_read=False),
    "a cancel that is too late leaves its request": Cancels(late_cancels_withdraw=False),
}
