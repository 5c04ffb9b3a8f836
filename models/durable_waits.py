"""Waits of a durable function: it parks, and is woken by a signal or by its time.

A function waits for a signal with a time-out, then for a signal of the same name without one. Two
workers claim it in turn. Clients send signals and wake the job. Workers may stall anywhere; one
process may crash, and one write may have no response: then it arrives at any later time.
A claim opens the log (`durable_log.py`), so a record of an earlier claim is refused.

Guarantees: a fulfilled wait is noticed, whatever stops, and at once if nothing does; a signal is
the answer of one wait, and no acknowledged one is lost; each replay is given the same answers; a
wait holds no claim; wake-ups change nothing but parked rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

CLAIMS = 3
TIME_OUT = "time-out"
NO_MARK = 0


class Row(NamedTuple):
    """The job: held, parked, waiting for a retry (backoff), due or ended.

    has_time: it becomes due by itself. The row is its own token: a claim raises the fence.
    """

    at: str = "due"
    fence: int = 0
    is_out: bool = False
    has_time: bool = True


class Worker(NamedTuple):
    """A worker. place: its wait, from 1. taking, seen: a signal, and its mark as it was read.

    version: of the inbox, when it was read. parked: the row that it wrote.
    """

    at: str = "idle"
    fence: int = 0
    place: int = 0
    taking: str = ""
    seen: int = NO_MARK
    version: int = 0
    parked: Row | None = None


class Client(NamedTuple):
    """A sender of a signal, with the row and the version of the inbox that it read."""

    at: str = "send"
    row: Row | None = None
    version: int = 0


class Write(NamedTuple):
    """A write without a response, and what it expects."""

    what: str
    name: str = ""
    place: int = 0
    fence: int = 0
    seen: int = 0
    row: Row | None = None


class State(NamedTuple):
    """The row, the log, the inbox of signals with their marks, and processes.

    given: what the function was first given. is_late: the time-out of the first wait has come.
    """

    row: Row = Row()
    log: tuple[str, ...] = ("", "")
    opened: int = 0
    inbox: tuple[str, ...] = ()
    marks: tuple[int, ...] = (NO_MARK, NO_MARK)
    version: int = 0
    workers: tuple[Worker, ...] = (Worker(), Worker())
    clients: tuple[Client, ...] = ()
    sent: frozenset[Write] = frozenset()
    given: tuple[str, ...] = ("", "")
    is_late: bool = False
    unknowns: int = 1
    crashes: int = 1
    errors: int = 1
    wrong: str = ""


@dataclass(frozen=True)
class DurableWaits:
    """Rules; a mutant leaves out one.

    has_transactions: a signal and its wake-up are one group, a mark and its record are one, and so
    are parking and the check. signals: how many are sent.
    """

    has_transactions: bool = False
    signals: int = 1
    records_time_outs: bool = True  # rule D9
    wakes: bool = True  # rule D3
    writes_before_it_wakes: bool = True  # rule D3
    looks_again: bool = True  # rule D3
    checks_by_itself: bool = True  # rule D3
    parks_on_the_version: bool = True  # rule D3
    parking_raises_the_version: bool = True  # rule D3
    wakes_only_the_parked: bool = True  # rules D3, P2
    names_the_row: bool = True  # rules D3, P2
    releases_its_claim: bool = True  # rule D6
    heeds_marks: bool = True  # rule D12
    names_the_mark: bool = True  # rule D12
    replaces_void_marks: bool = True  # rule D12
    keeps_taken_signals: bool = True  # rule D12

    def start(self) -> State:
        """Return a function that was never claimed."""
        few = self.signals - 1  # two signals have many orders, so nothing else goes wrong
        clients = (Client(),) * self.signals
        return State(clients=clients, unknowns=1 - few, errors=1 - few)

    def fault(self, state: State) -> str:
        """Look for signals that are taken twice or lost, and for a wait that nobody ends."""
        if state.wrong:
            return state.wrong
        if state.log[0] and state.log[0] == state.log[1] != TIME_OUT:
            return "two waits take one signal"
        for place, name in enumerate(state.log, 1):
            is_kept = name in state.inbox and self.heeds_marks
            if is_kept and state.marks[int(name)] != place:
                return "the mark of a signal names another wait"
        workers_rest = all(worker.at in ("idle", "crashed") for worker in state.workers)
        clients_rest = all(client.at in ("done", "crashed") for client in state.clients)
        if not (workers_rest and clients_rest) or state.sent or state.row.at != "parked":
            return ""
        place = self._place(state)
        unread = set(state.inbox) - set(state.log)
        if not unread:
            return ""
        if not self._find(state, place)[0]:
            return "an acknowledged signal is lost"
        if not state.row.has_time:
            return "a fulfilled wait waits forever"
        is_calm = state.crashes and state.unknowns == self.start().unknowns
        return "nobody wakes the job" if is_calm else ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a write arrive, time pass, or a process go on or crash."""
        for write in state.sent:
            there = state._replace(sent=state.sent - {write})
            yield f"a late {write.what} arrives", self._apply(there, write)[1]
        row = state.row
        if row.at == "held" and not row.is_out and row.fence < CLAIMS:
            yield "the lease runs out", state._replace(row=row._replace(is_out=True))
        if not state.is_late and state.row.fence:
            yield "the time-out comes", state._replace(is_late=True)
        for number, worker in enumerate(state.workers):
            for words, there, after in self._work(state, worker):
                workers = put(there.workers, number, after)
                yield f"worker {number + 1} {words}", there._replace(workers=workers)
            if state.crashes and worker.at not in ("idle", "crashed"):
                dead = put(state.workers, number, Worker("crashed"))
                yield f"worker {number + 1} dies", state._replace(workers=dead, crashes=0)
        for number, client in enumerate(state.clients):
            for words, there, then in self._signal(state, client, str(number)):
                clients = put(there.clients, number, then)
                yield f"client {number + 1} {words}", there._replace(clients=clients)
            if state.crashes and client.at not in ("send", "done", "crashed"):
                gone = put(state.clients, number, Client("crashed"))
                yield f"client {number + 1} dies", state._replace(clients=gone, crashes=0)

    def _work(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        row, fence = state.row, worker.fence
        match worker.at:
            case "idle" if row.fence < CLAIMS and self._is_due(row):
                held = Row("held", row.fence + 1)
                there = state._replace(row=held, opened=held.fence)
                for place, name in enumerate(state.log):
                    there = self._given(there, place + 1, name) if name else there
                yield "claims it", there, Worker("look", held.fence, self._place(state))
            case "look" if worker.place > len(state.log):
                ended = row._replace(at="ended") if row.fence == fence else row
                yield "ends it", state._replace(row=ended), Worker()
            case "look":
                yield from self._look(state, worker)
            case "again":
                name = self._find(state, worker.place)[0]
                at = "wake" if name else "idle"
                yield "checks once more", state, worker._replace(at=at)
            case "wake":
                write = Write("wake-up", row=worker.parked)
                yield "wakes it", self._apply(state, write)[1], Worker()
            case "mark" | "record" | "park":
                yield from self._write(state, worker)
            case "poll":
                yield "waits", state._replace(wrong="a wait holds a claim"), worker

    def _is_due(self, row: Row) -> bool:
        is_free = row.at in ("due", "backoff") or (row.at == "parked" and row.has_time)
        return is_free or (row.at == "held" and row.is_out)

    def _place(self, state: State) -> int:
        return next((at for at, name in enumerate(state.log, 1) if not name), len(state.log) + 1)

    def _find(self, state: State, place: int) -> tuple[str, int]:
        """Return the oldest signal that a wait may take, and its mark."""
        for name in state.inbox:
            mark = state.marks[int(name)]
            is_free = mark in (NO_MARK, place) or not self.heeds_marks
            said = state.log[mark - 1] if mark else ""
            if is_free or (said not in ("", name) and self.replaces_void_marks):
                return name, mark
        return "", NO_MARK

    def _look(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        name, mark = self._find(state, worker.place)
        after = worker._replace(taking=name, seen=mark, version=state.version)
        if name:
            at = "record" if self.has_transactions else "mark"
            yield "finds a signal", state, after._replace(at=at)
        elif worker.place == 1 and state.is_late and self.records_time_outs:
            yield "finds none in time", state, after._replace(at="record", taking=TIME_OUT)
        elif worker.place == 1 and state.is_late:
            yield "gives the time-out", *self._next(state, worker, TIME_OUT)
        else:
            at = "park" if self.releases_its_claim else "poll"
            yield "finds none", state, after._replace(at=at)
        if state.errors and worker.fence == state.row.fence:
            raised = Row("backoff", worker.fence)
            yield "raises an error", state._replace(row=raised, errors=0), Worker()

    def _write(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        """Write a mark, a record or the parked row."""
        place = worker.place
        has_time = place == 1 or (self.checks_by_itself and not self.has_transactions)
        parked = Row("parked", worker.fence, has_time=has_time)
        seen = worker.version if worker.at == "park" else worker.seen
        row = parked if worker.at == "park" else None
        write = Write(worker.at, worker.taking, place, worker.fence, seen, row)
        is_stored, there = self._apply(state, write)
        look = worker._replace(at="look", taking="", seen=NO_MARK, version=0)
        if worker.at == "mark":
            after = worker._replace(at="record") if is_stored else look
            yield "marks the signal" if is_stored else "finds another mark", there, after
        elif worker.at == "record" and is_stored:
            yield f"records {worker.taking}", *self._next(there, worker, worker.taking)
        elif worker.at == "record":
            is_over = state.row.fence != worker.fence or not self.has_transactions
            yield "is refused", state, Worker() if is_over else look
        elif is_stored:
            at = "again" if self.looks_again and not self.has_transactions else "idle"
            yield "parks it", there, Worker(at, place=place, parked=parked)
        else:
            is_over = state.row.fence != worker.fence
            yield "parks it in vain", state, Worker() if is_over else look
        if state.unknowns:
            unsure = state._replace(sent=state.sent | {write}, unknowns=0)
            yield f"sends a {worker.at}, without a response", unsure, Worker()

    def _next(self, state: State, worker: Worker, name: str) -> tuple[State, Worker]:
        there = self._given(state, worker.place, name)
        return there, Worker("look", worker.fence, worker.place + 1)

    def _given(self, state: State, place: int, name: str) -> State:
        before = state.given[place - 1]
        if before and before != name:
            return state._replace(wrong="a replay is given another answer")
        return state._replace(given=put(state.given, place - 1, name))

    def _signal(
        self, state: State, client: Client, name: str
    ) -> Iterator[tuple[str, State, Client]]:
        if self.has_transactions:
            yield from self._signal_at_once(state, client, name)
            return
        first, second = ("send", "find") if self.writes_before_it_wakes else ("find", "send")
        after = {first: second, second: "done"}
        match client.at:
            case "send":
                write = Write("signal", name)
                yield "writes its signal", self._apply(state, write)[1], Client(after["send"])
                if state.unknowns:  # the client repeats it
                    unsure = state._replace(sent=state.sent | {write}, unknowns=0)
                    yield "writes it, without a response", unsure, client
            case "find" if self._may_wake(state.row):
                yield "finds the row", state, Client("wake", state.row)
            case "find":
                yield "finds nothing to wake", state, Client(after["find"])
            case "wake":
                write = Write("wake-up", row=client.row)
                yield "wakes it", self._apply(state, write)[1], Client(after["find"])
                if state.unknowns:
                    unsure = state._replace(sent=state.sent | {write}, unknowns=0)
                    yield "wakes it, without a response", unsure, Client(after["find"])

    def _signal_at_once(
        self, state: State, client: Client, name: str
    ) -> Iterator[tuple[str, State, Client]]:
        if client.at == "send":
            yield "reads the row", state, Client("commit", state.row, state.version)
        elif client.at == "commit" and self._is_outdated(state, client):
            yield "is refused", state, Client()
        elif client.at == "commit":
            there = self._apply(state, Write("signal", name))[1]
            if self._may_wake(client.row):
                there = self._apply(there, Write("wake-up", row=client.row))[1]
            yield "commits its signal", there, Client("done")

    def _is_outdated(self, state: State, client: Client) -> bool:
        has_moved = client.row != state.row and self._may_wake(client.row)
        return has_moved or client.version != state.version

    def _may_wake(self, row: Row | None) -> bool:
        if row is None or not self.wakes:
            return False
        is_waiting = row.at in ("parked", "backoff") or not self.names_the_row
        return row.at == "parked" or (is_waiting and not self.wakes_only_the_parked)

    def _apply(self, state: State, write: Write) -> tuple[bool, State]:
        """Write, if what the write expects still holds."""
        row = state.row
        match write.what:
            case "signal" if write.name in state.inbox:
                return True, state
            case "signal":
                inbox = (*state.inbox, write.name)
                return True, state._replace(inbox=inbox, version=state.version + 1)
            case "mark":
                number = int(write.name)
                if state.marks[number] != write.seen and self.names_the_mark:
                    return False, state
                return True, state._replace(marks=put(state.marks, number, write.place))
            case "record":
                return self._recorded(state, write)
            case "park":
                is_seen = write.seen == state.version or not self.parks_on_the_version
                is_mine = row.at == "held" and row.fence == write.fence
                if not (is_mine and write.row and (is_seen or not self.has_transactions)):
                    return False, state
                raised = self.has_transactions and self.parking_raises_the_version
                return True, state._replace(row=write.row, version=state.version + raised)
            case "wake-up":
                is_same = row == write.row or not self.names_the_row
                if not is_same or row.at == "ended":
                    return False, state
                if row.at != "parked":
                    state = state._replace(wrong=f"a row that is {row.at} is moved")
                return True, state._replace(row=Row("due", row.fence))
        raise AssertionError(write)

    def _recorded(self, state: State, write: Write) -> tuple[bool, State]:
        fence = state.row.fence if self.has_transactions else state.opened
        if write.fence != fence or state.log[write.place - 1]:
            return False, state
        state = state._replace(log=put(state.log, write.place - 1, write.name))
        if write.name == TIME_OUT:
            return True, state
        if self.has_transactions:
            state = state._replace(marks=put(state.marks, int(write.name), write.place))
        if not self.keeps_taken_signals:
            inbox = tuple(name for name in state.inbox if name != write.name)
            marks = put(state.marks, int(write.name), NO_MARK)
            state = state._replace(inbox=inbox, marks=marks)
        return True, state


MODELS = {
    "without transactions": DurableWaits(),
    "two signals": DurableWaits(signals=2),
    "with transactions": DurableWaits(has_transactions=True),
    "two signals, with transactions": DurableWaits(has_transactions=True, signals=2),
}
MUTANTS = {
    "a time-out is not recorded": DurableWaits(records_time_outs=False),
    "a signal wakes nobody": DurableWaits(wakes=False),
    "woken before the signal": DurableWaits(writes_before_it_wakes=False),
    "no second check": DurableWaits(looks_again=False),
    "a wait never checks": DurableWaits(checks_by_itself=False),
    "parked whatever came": DurableWaits(has_transactions=True, parks_on_the_version=False),
    "a client reads before it is parked": DurableWaits(
        has_transactions=True, parking_raises_the_version=False
    ),
    "a row in backoff is woken": DurableWaits(wakes_only_the_parked=False),
    "a wake-up names no row": DurableWaits(names_the_row=False),
    "a wait keeps its claim": DurableWaits(releases_its_claim=False),
    "marks are not heeded": DurableWaits(heeds_marks=False),
    "a mark replaces another": DurableWaits(names_the_mark=False),
    "a mark counts for ever": DurableWaits(replaces_void_marks=False),
    "a taken signal is deleted": DurableWaits(keeps_taken_signals=False),
}
