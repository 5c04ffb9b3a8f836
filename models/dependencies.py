"""A job that waits for one that was stored before it (W14, J1 to J4).

A caller stores the waiting job, a worker runs and ends the awaited one, whose row may wait or be
claimed, and may be retried by hand after it died. Another worker claims the waiting job when it is
due, and releases, postpones or runs it. Writes are single; a release, a postponement and the mark
are conditional on the row as it was read. One of them may have no response: then it arrives later,
or never, and is refused if the row has changed. Results of the awaited job may not be kept.

Guarantees: the waiting job runs after the awaited one is done, and never before; it is released
once; it does not wait for ever, and does not wait for its own check if no process stopped, unless
the awaited job ran while the waiting one was stored or checked.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

CLAIMS = 3


class Awaited(NamedTuple):
    """The row of the awaited job: "waits", "held", "decided", "gone" or "dead".

    version: of the row. is_marked: its row says that others wait. outcome: as it was decided.
    """

    at: str = "waits"
    version: int = 0
    is_marked: bool = False
    outcome: str = ""


class Waiting(NamedTuple):
    """The row of the waiting job: "none", "parked", "due", "held" or "ended".

    is_released: it names nothing any more.
    """

    at: str = "none"
    version: int = 0
    is_released: bool = False


class Process(NamedTuple):
    """A process: its next step, the version that it read, and whether its claim saw a mark."""

    at: str = "idle"
    version: int = 0
    knows: bool = False


class State(NamedTuple):
    """Rows, records and processes.

    listed: the waiting job is listed with the awaited one. ends: records of its ends. asked: the
    inbox of its worker. sent: writes to the waiting row that have no response, by what they write
    and the version that they name. releases: how often it was released.
    """

    awaited: Awaited
    waiting: Waiting
    caller: Process
    worker: Process
    checker: Process
    listed: bool = False
    ends: frozenset[str] = frozenset()
    asked: bool = False
    sent: frozenset[tuple[str, int]] = frozenset()
    claims: int = CLAIMS
    deaths: int = 0
    unknowns: int = 1
    crashes: int = 1
    releases: int = 0
    was_running: bool = False
    ran_early: bool = False
    is_given_up: bool = False


@dataclass(frozen=True)
class Dependencies:
    """Rules, of which a mutant leaves out one. is_running: the awaited job runs from the start."""

    is_running: bool = False
    deaths: int = 0
    keeps_results: bool = True
    names_stay_until_released: bool = True  # rule J1: a claimed row that names others is not run
    release_is_conditional: bool = True  # rule J1
    reads_rows_first: bool = True  # rule J2
    a_death_is_no_end: bool = True  # rule J2
    end_is_recorded: bool = True  # rule J3: a marked end carries its outcome
    has_time: bool = True  # rule J4
    looks_again: bool = True  # rule J4

    def start(self) -> State:
        """Return the awaited job before the call that stores the waiting one."""
        row = Awaited("held", 1) if self.is_running else Awaited()
        worker = Process("run", 1) if self.is_running else Process()
        return State(row, Waiting(), Process("find"), worker, Process(), deaths=self.deaths,
                     was_running=self.is_running)  # fmt: skip

    def fault(self, state: State) -> str:
        """Find a job that ran early, was released twice, is dead, or waits for ever."""
        if state.ran_early:
            return "the waiting job ran before the other was done"
        if state.is_given_up:
            return "it is dead although the other one's end is known"
        if state.releases > 1:
            return "it was released twice"
        is_over = state.awaited.at == "gone" and state.awaited.outcome == "done"
        is_quiet = not state.sent and all(
            process.at in ("idle", "crashed")
            for process in (state.caller, state.worker, state.checker)
        )
        if not is_over or not is_quiet or state.waiting.at != "parked":
            return ""
        if not self.has_time:
            return "it waits for ever"
        nothing_stopped = state.crashes == 1 and state.unknowns == 1 and not state.was_running
        return "no process released it" if nothing_stopped else ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a write arrive, time pass, or a process continue."""
        waiting = state.waiting
        for kind, version in state.sent:
            there = state._replace(sent=state.sent - {(kind, version)})
            yield f"a late {kind} arrives", self._written(there, kind, version)
            yield f"a late {kind} is lost", there
        if waiting.at == "parked" and self.has_time:
            yield "the waiting job is due", state._replace(waiting=waiting._replace(at="due"))
        if waiting.at == "held" and state.checker.at == "crashed":
            yield "its claim expires", state._replace(waiting=waiting._replace(at="due"))
        if state.awaited.at == "held" and state.worker.at == "crashed":
            row = state.awaited
            yield (
                "the claim on the other expires",
                state._replace(awaited=row._replace(at="waits", version=row.version + 1)),
            )
        if state.awaited.at == "dead":
            row = state.awaited
            again = row._replace(at="waits", version=row.version + 1, outcome="")
            yield "the dead job is retried", state._replace(awaited=again)
        for name in ("caller", "worker", "checker"):
            process: Process = getattr(state, name)
            if state.crashes and process.at not in ("idle", "crashed"):
                dead = {name: Process("crashed"), "crashes": 0}
                yield f"the {name} dies", state._replace(**dead)  # type: ignore[arg-type]
        yield from self._call(state, state.caller)
        yield from self._work(state, state.worker)
        yield from self._check(state, state.checker)

    def _call(self, state: State, caller: Process) -> Iterator[tuple[str, State]]:
        """Store the waiting job: read the other one, mark, list, insert."""
        row = state.awaited
        match caller.at:
            case "find":
                # The call is refused if the job is gone and nothing says how it ended.
                if self._end(state) == "done":
                    there = state._replace(waiting=Waiting("due", 0, is_released=True), releases=1)
                    yield "stores a job that waits for nothing", there._replace(caller=Process())
                elif row.at != "gone":
                    after = Process("mark", row.version, row.at == "held")
                    was = state.was_running or row.at == "held"
                    yield "reads the row", state._replace(caller=after, was_running=was)
            case "mark":
                marked = self._marked(state, caller.version, is_claimed=caller.knows)
                if marked is None:  # the row has changed: what is claimed is asked for instead
                    was = state.was_running or row.at != "waits"
                    marked = self._marked(state, row.version, is_claimed=row.at == "held") or state
                    marked = marked._replace(was_running=was)
                yield "marks it", marked._replace(caller=caller._replace(at="list"))
            case "list":
                after = caller._replace(at="insert")
                yield "lists it", state._replace(listed=True, caller=after)
            case "insert":
                was = state.was_running or row.at != "waits"
                there = state._replace(waiting=Waiting("parked"), was_running=was)
                yield "inserts the job", there._replace(caller=Process())

    def _marked(self, state: State, version: int, *, is_claimed: bool) -> State | None:
        row = state.awaited
        if row.version != version or row.at in ("decided", "gone"):
            return None
        if is_claimed:
            return state._replace(asked=True)
        marked = row._replace(is_marked=True, version=row.version + 1)
        return state._replace(awaited=marked)

    def _work(self, state: State, worker: Process) -> Iterator[tuple[str, State]]:
        """Run and end the awaited job; then release what is listed, if that is known."""
        row = state.awaited
        match worker.at:
            case "idle" | "crashed" if row.at == "waits":
                held = row._replace(at="held", version=row.version + 1)
                there = state._replace(awaited=held)
                yield "claims the other", there._replace(worker=Process("run", held.version))
            case "idle" | "crashed" if row.at == "decided":
                yield "completes the end", state._replace(worker=Process("record", row.version))
            case "run" if row.version != worker.version:
                yield "has lost the claim", state._replace(worker=Process())
            case "run":
                for outcome in ("done", "dead") if state.deaths else ("done",):
                    decided = row._replace(at="decided", version=row.version + 1, outcome=outcome)
                    left = state.deaths - (outcome == "dead")
                    after = Process("record", decided.version, state.asked)
                    there = state._replace(awaited=decided, deaths=left, worker=after)
                    yield f"decides: {outcome}", there._replace(asked=False)
            case "record":
                there = state
                is_kept = self.keeps_results and row.outcome == "done"
                if is_kept or (row.is_marked and self.end_is_recorded):
                    there = state._replace(ends=state.ends | {row.outcome})
                yield "records the end", there._replace(worker=worker._replace(at="drop"))
            case "drop" if row.at != "decided" or row.version != worker.version:
                yield "finds the row dropped", state._replace(worker=worker._replace(at="look"))
            case "drop":
                place = "gone" if row.outcome == "done" else "dead"
                dropped = row._replace(at=place, version=row.version + 1)
                there = state._replace(awaited=dropped)
                yield "drops the row", there._replace(worker=worker._replace(at="look"))
            case "look":
                knows = row.is_marked or worker.knows
                is_found = knows and state.listed and state.waiting.at in ("parked", "due")
                is_ready = is_found and self._end(state) == "done"
                at = "release" if is_ready and not state.waiting.is_released else "idle"
                yield "looks", state._replace(worker=Process(at, state.waiting.version))
            case "release":
                yield from self._write(state, "release", worker, "worker", "idle")

    def _check(self, state: State, checker: Process) -> Iterator[tuple[str, State]]:
        """Claim the waiting job, and run, release or postpone it."""
        waiting = state.waiting
        match checker.at:
            case "idle" | "crashed" if waiting.at == "due" and state.claims:
                held = waiting._replace(at="held", version=waiting.version + 1)
                runs = waiting.is_released or not self.names_stay_until_released
                at = "run" if runs else "rows" if self.reads_rows_first else "ends"
                there = state._replace(waiting=held, claims=state.claims - 1)
                yield "claims it", there._replace(checker=Process(at, held.version))
            case "run" if waiting.version == checker.version:
                early = "done" not in (state.awaited.outcome, *state.ends)
                there = state._replace(waiting=waiting._replace(at="ended"), ran_early=early)
                yield "runs it", there._replace(checker=Process())
            case "run":
                yield "has lost the claim", state._replace(checker=Process())
            case "release":
                yield from self._write(state, "release", checker, "checker", "idle")
            case "park":
                following = "again" if self.looks_again else "idle"
                yield from self._write(state, "park", checker, "checker", following)
            case "again":
                is_over = self._end(state) == "done" and waiting.at == "parked"
                at = "release" if is_over and not waiting.is_released else "idle"
                yield "checks once more", state._replace(checker=Process(at, waiting.version))
            case _:
                yield from self._read(state, checker)

    def _read(self, state: State, checker: Process) -> Iterator[tuple[str, State]]:
        """Read whether the other job has ended: its row, and the records of its ends."""
        waiting = state.waiting
        match checker.at:
            case "rows":
                row = state.awaited
                is_here = row.at not in ("gone", "decided")
                if row.at == "dead" or (row.at == "decided" and row.outcome == "dead"):
                    is_here = self.a_death_is_no_end
                at = "park" if is_here else "ends"
                yield "reads the row", state._replace(checker=checker._replace(at=at))
            case "ends":
                if self.reads_rows_first:
                    row = state.awaited
                    is_over = "done" in state.ends or row.outcome == "done"
                    if not self.a_death_is_no_end:
                        is_over = is_over or row.outcome == "dead"
                    at = "release" if is_over else "lost" if row.at == "gone" else "park"
                else:
                    at = "release" if "done" in state.ends else "row later"
                yield "reads the ends", state._replace(checker=checker._replace(at=at))
            case "row later":
                at = "lost" if state.awaited.at == "gone" else "park"
                yield "reads the row", state._replace(checker=checker._replace(at=at))
            case "lost":  # it is dead: an operator decides
                there = state._replace(waiting=waiting._replace(at="ended"))
                fine = not self.keeps_results and not state.awaited.is_marked
                there = there._replace(is_given_up=not fine)
                yield "finds nothing and ends it", there._replace(checker=Process())

    def _write(
        self, state: State, kind: str, process: Process, name: str, following: str
    ) -> Iterator[tuple[str, State]]:
        """Write to the waiting row, on the version that was read."""
        after = {name: Process(following)}
        there = self._written(state, kind, process.version)
        if kind == "park":  # the postponing process marks the other one, as the caller does
            there = self._watched(there)
        yield f"the {name} sends a {kind}", there._replace(**after)  # type: ignore[arg-type]
        if state.unknowns:
            sent = state._replace(sent=state.sent | {(kind, process.version)}, unknowns=0)
            yield (
                f"the {name} sends a {kind}, without a response",
                sent._replace(**{name: Process("crashed")}),  # type: ignore[arg-type]
            )

    def _watched(self, state: State) -> State:
        row = state.awaited
        there = state._replace(listed=True)
        is_held = row.at == "held"
        if is_held:
            there = there._replace(was_running=True)
        return self._marked(there, row.version, is_claimed=is_held) or there

    def _written(self, state: State, kind: str, version: int) -> State:
        waiting = state.waiting
        is_as_read = waiting.version == version and waiting.at != "ended"
        if not is_as_read and (self.release_is_conditional or waiting.at in ("none", "ended")):
            return state
        if kind == "park":
            return state._replace(waiting=waiting._replace(at="parked", version=version + 1))
        released = Waiting("due", waiting.version + 1, is_released=True)
        return state._replace(waiting=released, releases=state.releases + 1)

    def _end(self, state: State) -> str:
        """Return how the awaited job has ended, as one look says; empty if it has not."""
        row = state.awaited
        if row.at == "decided":
            return row.outcome
        if row.at == "gone":
            return "done" if "done" in state.ends else ""
        return "" if self.a_death_is_no_end or row.at != "dead" else "done"


MODELS = {
    "one that waits": Dependencies(),
    "one that runs": Dependencies(is_running=True),
    "one that dies and is retried": Dependencies(deaths=1),
    "results are not kept": Dependencies(keeps_results=False),
}
MUTANTS = {
    "a claimed row that names others runs": Dependencies(names_stay_until_released=False),
    "a release names no version": Dependencies(release_is_conditional=False),
    "ends are read before rows": Dependencies(reads_rows_first=False),
    "a death is an end": Dependencies(deaths=1, a_death_is_no_end=False),
    "the end of a marked job is not recorded": Dependencies(
        keeps_results=False, end_is_recorded=False
    ),
    "postponed without a time": Dependencies(has_time=False),
    "no second check": Dependencies(looks_again=False),
}
