"""Workflows: a step runs when its dependencies have ended (W1).

Two workers end a child each and check the callback. A third claims the callback when it is due,
checks its dependencies, and runs or postpones it. The store has no transactions: an outcome is
written into the row and carries the record, which is written before the row is deleted
(`carried.py`). Another worker completes what one that died has decided, a dead child is retried,
and one record may have no response: then it arrives later, or never.

Guarantees: the callback runs after both are done, never before; an end is never undone; the
callback does not wait forever, and does not wait for its own time if no process stopped.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

CLAIMS = 2


class Ender(NamedTuple):
    """A child's worker: its next step, and the version of the callback's row that it read."""

    at: str = "run"
    version: int = 0


class Callback(NamedTuple):
    """The callback's row. has_time: it becomes due by itself."""

    at: str = "parked"
    version: int = 0
    has_time: bool = True


class State(NamedTuple):
    """Rows and outcomes of the children, records, marks and processes.

    sent: pending records without a response.
    """

    rows: tuple[str, ...]
    outcomes: tuple[str, ...]
    ends: tuple[frozenset[str], ...]
    notes: frozenset[int]
    sent: frozenset[tuple[int, str]]
    enders: tuple[Ender, ...]
    callback: Callback
    asker: Ender
    seen: int = 0
    claims: int = CLAIMS
    unknowns: int = 1
    crashes: int = 1
    deaths: int = 0
    ran_early: bool = False


NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Flows:
    """Rules, of which a mutant leaves out one. is_wide: ends are in many places."""

    is_wide: bool = False
    deaths: int = 0
    clears_last: bool = True  # rules C3, W2
    looks_after_it_recorded: bool = True  # rule W3
    notes_before_it_reads: bool = True  # rule W3
    asks: bool = True  # rule W4
    looks_again: bool = True  # rule W5
    keeps_deaths_apart: bool = True  # rule W6
    parks_until_a_time: bool = True  # rule W7

    def start(self) -> State:
        """Return both children claimed, and the callback postponed."""
        return State(
            ("held", "held"), ("", ""), (NONE, NONE), frozenset(), frozenset(),
            (Ender(), Ender()), Callback(has_time=self.parks_until_a_time), Ender("idle"),
            deaths=self.deaths,
        )  # fmt: skip

    def fault(self, state: State) -> str:
        """Find a callback that ran early or waits forever, and an end that is undone."""
        if state.ran_early:
            return "the callback ran before both were done"
        for number in (0, 1):
            was_done = state.rows[number] == "gone" and state.ends[number]
            if was_done and self._end(state, number) == "dead":
                return "an end is undone"
        is_quiet = (
            not state.sent
            and state.rows == ("gone", "gone")
            and all(process.at in ("idle", "crashed") for process in (*state.enders, state.asker))
        )
        if not is_quiet or state.callback.at != "parked":
            return ""
        if not all(self._end(state, number) == "done" for number in (0, 1)):
            return "no process records an end any more"
        if not state.callback.has_time:
            return "the callback waits forever"
        stood_still = state.crashes == 0 or state.unknowns == 0
        return "" if stood_still else "no process moved the callback"

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a record arrive, time pass, or a process continue."""
        for number, end in state.sent:
            there = state._replace(sent=state.sent - {(number, end)})
            yield f"child {number + 1}'s late record arrives", self._recorded(there, number, end)
            yield f"child {number + 1}'s late record is lost", there
        for number in (0, 1):
            yield from self._others(state, number)
            ender = state.enders[number]
            for words, there, after in self._end_child(state, ender, number):
                enders = put(there.enders, number, after)
                yield f"worker {number + 1} {words}", there._replace(enders=enders)
            if state.crashes and ender.at != "idle":
                dead = put(state.enders, number, Ender("crashed"))
                yield f"worker {number + 1} dies", state._replace(enders=dead, crashes=0)
        callback = state.callback
        if callback.at == "parked" and callback.has_time:
            yield "the callback becomes due", _with(state, callback._replace(at="due"))
        if callback.at == "held" and state.asker.at == "crashed":
            yield "the claim on the callback expires", _with(state, callback._replace(at="due"))
        if state.crashes and state.asker.at != "idle":
            yield "the asker dies", state._replace(asker=Ender("crashed"), crashes=0)
        for words, there, asker in self._ask(state, state.asker):
            yield f"the asker {words}", there._replace(asker=asker)

    def _others(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        """Let others continue with an abandoned row: repeat effects, retry a dead child."""
        if state.enders[number].at not in ("idle", "crashed"):
            return
        row = state.rows[number]
        if row == "decided":
            enders = put(state.enders, number, Ender(self._after_decision()))
            yield (
                f"another repeats the effects of child {number + 1}",
                state._replace(enders=enders),
            )
        if row == "dead" or (row == "held" and state.enders[number].at == "crashed"):
            again = state._replace(
                enders=put(state.enders, number, Ender()), rows=put(state.rows, number, "held")
            )
            yield f"child {number + 1} is run again", again

    def _after_decision(self) -> str:
        return "record" if self.clears_last else "drop"

    def _end_child(
        self, state: State, ender: Ender, number: int
    ) -> Iterator[tuple[str, State, Ender]]:
        look = "note" if self.is_wide and self.notes_before_it_reads else "look"
        outcome = state.outcomes[number]
        match ender.at:
            case "run":
                for end in ("done", "dead") if state.deaths and number == 0 else ("done",):
                    there = state._replace(
                        rows=put(state.rows, number, "decided"),
                        outcomes=put(state.outcomes, number, end),
                        deaths=state.deaths - (end == "dead"),
                    )
                    at = self._after_decision() if self.looks_after_it_recorded else "look"
                    yield f"decides: {end}", there, ender._replace(at=at)
            case "record":
                after = ender._replace(at="drop" if self.clears_last else look)
                yield "records it", self._recorded(state, number, outcome), after
                if state.unknowns and self.clears_last:
                    sent = state._replace(sent=state.sent | {(number, outcome)}, unknowns=0)
                    yield "records it, without a response", sent, ender._replace(at=look)
            case "drop":
                row = "gone" if outcome == "done" else "dead"
                there = state._replace(rows=put(state.rows, number, row))
                at = look if self.clears_last else "record"
                at = at if self.looks_after_it_recorded else "idle"
                yield "deletes the row", there, ender._replace(at=at)
            case "note":
                noted = state.notes | {number} if state.ends[number] else state.notes
                at = "look" if self.notes_before_it_reads else "find" if ender.version else "idle"
                yield "marks it", state._replace(notes=noted), ender._replace(at=at)
            case "look":
                yield "checks", state, self._looked(state, ender, number)
            case "find" | "move":
                yield from self._move(state, ender)

    def _looked(self, state: State, ender: Ender, number: int) -> Ender:
        """Return the next step of a worker that has read what has ended."""
        if self.is_wide:
            known = state.notes if self.notes_before_it_reads else state.notes | {number}
            is_complete = len(known) == len(state.rows)
        else:
            is_complete = all(state.ends)
        if self.is_wide and not self.notes_before_it_reads:
            return ender._replace(at="note", version=int(is_complete))
        if not self.looks_after_it_recorded:
            return ender._replace(at="find" if is_complete else "record")
        return ender._replace(at="find" if is_complete else "idle")

    def _move(self, state: State, ender: Ender) -> Iterator[tuple[str, State, Ender]]:
        callback = state.callback
        over = ender._replace(at="idle" if self.looks_after_it_recorded else "record", version=0)
        if ender.at == "find" and callback.at in ("parked", "due"):
            yield "finds the callback", state, Ender("move", callback.version)
        elif ender.at == "find":
            yield "finds the callback claimed", state, over
        elif callback.version != ender.version:
            yield "moves the callback in vain", state, over
        else:
            moved = callback._replace(at="due", version=callback.version + 1)
            yield "moves the callback to now", _with(state, moved), over

    def _ask(self, state: State, asker: Ender) -> Iterator[tuple[str, State, Ender]]:
        callback = state.callback
        match asker.at:
            case "idle" | "crashed" if callback.at == "due" and state.claims:
                held = callback._replace(at="held", version=callback.version + 1)
                there = _with(state, held)._replace(claims=state.claims - 1, seen=0)
                yield "claims the callback", there, Ender("first" if self.asks else "start")
            case "first" | "second":
                number = 0 if asker.at == "first" else 1
                is_done = self._end(state, number) == "done"
                following = "second" if number == 0 else "start"
                at = following if is_done else "park"
                yield f"reads how child {number + 1} ended", state, Ender(at)
            case "start":
                are_done = state.outcomes == ("done", "done")
                there = _with(state, callback._replace(at="ended"))
                yield "runs it", there._replace(ran_early=not are_done), Ender("idle")
            case "park":
                parked = Callback("parked", callback.version + 1, self.parks_until_a_time)
                at = "again" if self.looks_again else "idle"
                yield "postpones it", _with(state, parked), Ender(at)
            case "again":
                are_done = all(self._end(state, number) == "done" for number in (0, 1))
                yield "checks once more", state, Ender("find" if are_done else "idle")
            case "find" | "move":
                for words, there, after in self._move(state, asker):
                    yield (
                        words,
                        there,
                        after._replace(at="idle" if after.at == "record" else after.at),
                    )

    def _recorded(self, state: State, number: int, end: str) -> State:
        ends = state.ends[number] | {end} if self.keeps_deaths_apart else frozenset({end})
        return state._replace(ends=put(state.ends, number, ends))

    def _end(self, state: State, number: int) -> str:
        """Return how a child ended: a death counts until there is an end."""
        ends = state.ends[number]
        return "done" if "done" in ends else "dead" if ends else ""


def _with(state: State, callback: Callback) -> State:
    return state._replace(callback=callback)


MODELS = {
    "two children": Flows(),
    "ends in many places": Flows(is_wide=True),
    "a child is retried": Flows(deaths=1),
}
MUTANTS = {
    "recorded after the row is deleted": Flows(clears_last=False),
    "checks before it records": Flows(looks_after_it_recorded=False),
    "reads before it marks": Flows(is_wide=True, notes_before_it_reads=False),
    "a claimed step does not check": Flows(asks=False),
    "no second check": Flows(looks_again=False),
    "a death replaces an end": Flows(deaths=1, keeps_deaths_apart=False),
    "postponed without a time": Flows(parks_until_a_time=False),
}
