"""The circuit of a task that pauses itself (rule P16), and the pause in the settings of its queue.

Two workers open the circuit, restore the pause, name probes, run and end them; each may stop
anywhere. A claim may end while its worker goes on. An operator pauses or resumes the task. What a
process reads of the record and of the settings may be old when it writes.

Guarantees: no two probes start within a period, and none while another one runs. A probe that
succeeds under its claim closes the circuit. Once no process is in between, no pause is left that
nobody ends, and a pause by hand lasts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

PERIOD = 1
CLAIMS_MAX = 2
CIRCUITS_MAX = 2
ACTS_MAX = 1
VERSIONS_MAX = 4
"""Of the record, after which no probe is named."""


class Record(NamedTuple):
    """The record. named: a job may probe. started: the fence of the claim that does."""

    version: int
    is_closing: bool = False
    is_named: bool = False
    started: int = 0


class Worker(NamedTuple):
    """A worker: its next step, its claim, which circuit it probes, and what it has read."""

    at: str = "idle"
    fence: int = 0
    circuit: int = 0
    seen: Record | None = None


class State(NamedTuple):
    """The record, the settings, a job, the processes and what has happened.

    until: ticks until the next probe may be named; since: since the last one began. paused: "" or
    who did it, "circuit" or "hand". fence: last claim of the job. is_leased: it lasts. wanted: what
    the operator did last, after how many circuits: before.
    """

    record: Record | None = None
    versions: int = 0
    opened: int = 0
    until: int = 0
    since: int = PERIOD
    paused: str = ""
    fence: int = 0
    is_leased: bool = False
    workers: tuple[Worker, ...] = (Worker(), Worker())
    operator: str = "rest"
    acts: int = 0
    wanted: str = ""
    before: int = 0
    wrong: str = ""


@dataclass(frozen=True)
class Circuits:
    """Rules, all of P16, of which a mutant leaves out one."""

    probes_once: bool = True
    counts_from_the_start: bool = True
    waits_for_the_probe: bool = True
    restores: bool = True
    says_who_paused: bool = True
    deletes_first: bool = True

    def start(self) -> State:
        """Return a task that runs."""
        return State()

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let time pass, or a process continue or stop."""
        yield (
            "time passes",
            state._replace(until=max(0, state.until - 1), since=min(PERIOD, state.since + 1)),
        )
        if state.is_leased:
            yield "the lease ends", state._replace(is_leased=False)
        for number, worker in enumerate(state.workers):
            for words, there, after in self._work(state, worker):
                workers = put(there.workers, number, after)
                yield f"worker {number + 1} {words}", there._replace(workers=workers)
            if worker.at != "idle":
                workers = put(state.workers, number, Worker())
                yield f"worker {number + 1} is killed", state._replace(workers=workers)
        yield from self._operate(state)

    def fault(self, state: State) -> str:
        """Return what must not be."""
        if state.wrong:
            return state.wrong
        if state.operator != "rest" or any(worker.at != "idle" for worker in state.workers):
            return ""
        if state.wanted == "pause" and not state.paused:
            return "the pause by hand has ended"
        if state.paused == "hand" and state.wanted != "pause":
            return "the pause by hand lasts"
        if state.paused == "circuit" and state.record is None and not self.restores:
            return "nobody ends the pause"
        if state.wanted == "resume" and state.record is not None and state.opened == state.before:
            return "the task that was resumed by hand is paused again"
        return ""

    def _work(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        match worker.at:
            case "idle":
                yield from self._begin(state)
            case "restore":
                yield from self._look(state, worker)
            case "delete" if worker.seen is None:
                yield "has read that there is no circuit", state, Worker()
            case "delete":
                is_same = state.record is not None and state.record == worker.seen
                there = state._replace(record=None) if is_same else state
                yield "deletes the record that it read", there, Worker()
            case "name":
                yield self._name(state, worker)
            case "ask":
                yield self._ask(state, worker)
            case "run":
                yield from self._end(state, worker)

    def _begin(self, state: State) -> Iterator[tuple[str, State, Worker]]:
        if state.record is None and state.opened < CIRCUITS_MAX:
            version = state.versions + 1
            there = state._replace(
                record=Record(version), versions=version, opened=state.opened + 1, until=PERIOD
            )
            yield "opens the circuit", there, Worker("restore", seen=there.record)
        if (state.record is not None or state.paused == "circuit") and self.restores:
            yield "reads the record", state, Worker("restore", seen=state.record)
        if not state.is_leased and state.fence < CLAIMS_MAX:
            there = state._replace(fence=state.fence + 1, is_leased=True)
            yield "claims the job", there, Worker("ask", there.fence)

    def _look(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        if (
            worker.seen is not None and not worker.seen.is_closing
        ):  # its copy of the settings says that the task is paused
            yield "names a probe", state, worker._replace(at="name")
        yield self._change(state, worker)

    def _change(self, state: State, worker: Worker) -> tuple[str, State, Worker]:
        """Pause or resume the task, as the record said that was read before."""
        by_hand = state.paused == "hand" and self.says_who_paused
        if worker.seen is None or worker.seen.is_closing or by_hand:
            there = state if by_hand else state._replace(paused="")
            return "ends the pause", there, worker._replace(at="delete")
        there = state if state.paused else state._replace(paused="circuit")
        return "pauses the task", there, worker._replace(at="name")

    def _name(self, state: State, worker: Worker) -> tuple[str, State, Worker]:
        record = state.record
        if record is None or record != worker.seen or state.until or state.versions >= VERSIONS_MAX:
            return "names no probe", state, Worker()
        is_probed = record.started == state.fence and state.is_leased and record.started > 0
        if is_probed and self.waits_for_the_probe:
            return "awaits the probe", state, Worker()
        there = _written(state, Record(0, is_named=True))._replace(until=PERIOD)
        return "names the job", there, Worker()

    def _ask(self, state: State, worker: Worker) -> tuple[str, State, Worker]:
        record = state.record
        if record is None or record.is_closing or not record.is_named:
            return "defers the job", _released(state, worker), Worker()
        wrong = "two probes start within a period" if state.since < PERIOD else state.wrong
        keeps = not self.probes_once
        there = _written(state, Record(0, is_named=keeps, started=worker.fence))
        until = PERIOD if self.counts_from_the_start else state.until
        return (
            "probes",
            there._replace(until=until, since=0, wrong=wrong),
            worker._replace(at="run", circuit=state.opened),
        )

    def _end(self, state: State, worker: Worker) -> Iterator[tuple[str, State, Worker]]:
        if state.fence != worker.fence or not state.is_leased:
            yield "has lost its claim", state, Worker()
            return
        record, over = state.record, _released(state, worker)
        if record is None or record.is_closing:
            yield "ends the job", over, Worker()
        elif record.started == worker.fence:
            closing = _written(over, Record(0, is_closing=True))
            yield "succeeds, and closes", closing, Worker("restore", seen=closing.record)
            yield "fails", _written(over, Record(0)), Worker()
        elif worker.circuit == state.opened:
            yield "succeeds", over._replace(wrong="a probe succeeds in vain"), Worker()

    def _operate(self, state: State) -> Iterator[tuple[str, State]]:
        match state.operator:
            case "rest" if state.acts < ACTS_MAX:
                for act in ("pause", "resume"):
                    there = state._replace(
                        operator=act, acts=state.acts + 1, wanted=act, before=state.opened
                    )
                    if self.deletes_first:
                        there = there._replace(record=None)
                    yield f"the operator begins to {act}", there
            case "pause":
                there = state._replace(operator="rest", paused="hand")
                yield "the operator pauses the task", there
            case "resume":
                there = state._replace(operator="rest", paused="")
                yield "the operator resumes the task", there


def _written(state: State, record: Record) -> State:
    version = state.versions + 1
    return state._replace(record=record._replace(version=version), versions=version)


def _released(state: State, worker: Worker) -> State:
    return state._replace(is_leased=False) if state.fence == worker.fence else state


MODELS = {"two workers, an operator": Circuits()}
MUTANTS = {
    "a job probes again after its claim ended": Circuits(probes_once=False),
    "a period begins when the probe is named": Circuits(counts_from_the_start=False),
    "another probe is named while one runs": Circuits(waits_for_the_probe=False),
    "nobody restores the pause": Circuits(restores=False),
    "the settings do not say who paused": Circuits(says_who_paused=False),
    "an operator keeps the record": Circuits(deletes_first=False),
}
