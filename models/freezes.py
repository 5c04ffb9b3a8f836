"""A store that is frozen while an export reads it (rules X7 and X8).

A worker checks whether the store is frozen, claims a job and ends it: its outcome comes first, then
its result, and the row goes. An exporter freezes the store, waits, and reads records, then rows.
The freeze may expire at any time, as when the exporter is suspended; then the worker goes on.

Guarantees: an export has the job either waiting or with its result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class State(NamedTuple):
    """The job, the worker and the exporter.

    row: "waiting", "claimed", "decided" or "gone". has_result: it is stored. began: the worker has
    found the store open, and claims next. is_frozen: the mark is there. expiries: how often the
    mark may still expire. phase: what the exporter has done. result, seen: what it has read.
    """

    row: str = "waiting"
    has_result: bool = False
    began: bool = False
    is_frozen: bool = False
    expiries: int = 1
    phase: str = "nothing"
    result: bool = False
    seen: str = ""


@dataclass(frozen=True)
class Freezes:
    """Rules; a mutant leaves out one."""

    waits_for_calls: bool = True
    waits_for_claims: bool = True
    completes_ends: bool = True
    notices_its_expiry: bool = True

    def start(self) -> State:
        """Return a job that waits in an open store."""
        return State()

    def fault(self, state: State) -> str:
        """Return what is wrong with an export that is complete."""
        if state.phase != "done" or (state.seen, state.result) in (
            ("waiting", False),
            ("gone", True),
        ):
            return ""
        return f"the export has the row {state.seen}, and {'a' if state.result else 'no'} result"

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let the worker or the exporter take a step, or the freeze expire."""
        yield from self._work(state)
        yield from self._export(state)
        if state.is_frozen and state.expiries:
            yield "the freeze expires", state._replace(is_frozen=False, expiries=0)

    @staticmethod
    def _work(state: State) -> Iterator[tuple[str, State]]:
        if not state.is_frozen and not state.began and state.row == "waiting":
            yield "the worker finds the store open", state._replace(began=True)
        if state.began:
            row = "claimed" if state.row == "waiting" else state.row
            yield "the worker claims", state._replace(began=False, row=row)
        if state.row == "claimed":
            yield "the worker decides the end", state._replace(row="decided")
            yield "the worker gives the job back", state._replace(row="waiting")
        if state.row == "decided" and not state.has_result:
            yield "the worker stores the result", state._replace(has_result=True)
        if state.row == "decided" and state.has_result:
            yield "the worker deletes the row", state._replace(row="gone")

    def _export(self, state: State) -> Iterator[tuple[str, State]]:
        match state.phase:
            case "nothing":
                yield "the exporter freezes", state._replace(is_frozen=True, phase="frozen")
            case "frozen" if not (self.waits_for_calls and state.began):
                yield "calls have ended", state._replace(phase="quiet")
            case "quiet" if not (self.waits_for_claims and state.row == "claimed"):
                after = state._replace(phase="waited")
                if self.completes_ends and state.row == "decided":
                    after = after._replace(row="gone", has_result=True)
                yield "claims have ended", after
            case "waited":
                yield "records are read", state._replace(phase="records", result=state.has_result)
            case "records":
                yield "rows are read", state._replace(phase="rows", seen=state.row)
            case "rows" if state.is_frozen or not self.notices_its_expiry:
                yield "the manifest is written", state._replace(phase="done", is_frozen=False)


MODELS = {"one job": Freezes()}
MUTANTS = {
    "calls are not waited for": Freezes(waits_for_calls=False),
    "claims are not waited for": Freezes(waits_for_claims=False),
    "ends are not completed": Freezes(completes_ends=False),
    "an expiry is not noticed": Freezes(notices_its_expiry=False),
}
