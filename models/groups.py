"""A group that cancels its parts when one of them fails.

Workers claim the parts and end them; one part may fail, and one claim may be released. The process
that ends the part that fails moves the group's own step to now and cancels the other parts, one by
one; it may stop at any of these steps. Any worker claims the group's step when it is due.

Guarantees: no part is cancelled in a group without a failure; no part starts once the process that
ended the failed one has gone through the others, or the group's step has checked; the step ends,
and not before all parts have.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

PARTS = frozenset({0, 1, 2})
ENDED = ("done", "dead", "cancelled")


class State(NamedTuple):
    """The rows of the parts and of the group's step, and the processes that cancel.

    asked: parts whose end was requested. is_soon: the step was moved to now. moves, left: the
    process that ended the failed part still moves the step, and has these parts to cancel.
    checks: the parts that a worker which claimed the step has to cancel. is_over: none may start.
    """

    parts: tuple[str, ...] = ("held", "waiting", "waiting")
    asked: frozenset[int] = frozenset()
    step: str = "parked"
    is_soon: bool = False
    moves: bool = False
    left: frozenset[int] = frozenset()
    checks: frozenset[int] = frozenset()
    is_over: bool = False
    failures: int = 1
    releases: int = 1
    crashes: int = 1
    wrong: str = ""


@dataclass(frozen=True)
class Groups:
    """Rules, of which a mutant leaves out one."""

    ender_cancels: bool = True  # rule W8
    asks_running_parts: bool = True  # rule W8
    step_completes: bool = True  # rule W8
    step_checks_again: bool = True  # rule W8
    step_has_a_time: bool = True  # rule W7
    waits_for_a_failure: bool = True  # rule W8

    def start(self) -> State:
        """Return one part claimed, the others waiting."""
        return State()

    def fault(self, state: State) -> str:
        """Find a part that started or was cancelled wrongly, and a step that waits forever."""
        if state.wrong:
            return state.wrong
        has_ended = all(part in ENDED for part in state.parts)
        if state.step == "ended":
            return "" if has_ended else "the group ended before its parts"
        is_quiet = has_ended and state.step == "parked" and not (state.moves or state.left)
        if is_quiet and not (state.is_soon or self.step_has_a_time):
            return "the group waits forever"
        return ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a worker claim, end or release a part, or a process cancel the next one."""
        for number, part in enumerate(state.parts):
            if part == "waiting":
                yield self._claim(state, number)
            if part == "held":
                yield from self._end(state, number)
        if state.moves:
            yield "the step is moved", self._passed(state._replace(moves=False, is_soon=True))
        for number in state.left if not state.moves else ():
            there = self._cancelled(state, number)._replace(left=state.left - {number})
            yield f"part {number} is cancelled at once", self._passed(there)
        if (state.moves or state.left) and state.crashes:
            there = state._replace(moves=False, left=frozenset(), crashes=0)
            yield "the process that cancels stops", there
        yield from self._check(state)

    def _claim(self, state: State, number: int) -> tuple[str, State]:
        if number in state.asked:
            return f"part {number} is refused", self._ended(state, number, "cancelled")
        wrong = "a part starts after the group failed" if state.is_over else state.wrong
        there = state._replace(parts=put(state.parts, number, "held"), wrong=wrong)
        return f"part {number} starts", there

    def _end(self, state: State, number: int) -> Iterator[tuple[str, State]]:
        yield f"part {number} is done", self._ended(state, number, "done")
        if number in state.asked:
            yield f"part {number} stops", self._ended(state, number, "cancelled")
        elif state.failures:
            left = PARTS - {number} if self.ender_cancels else frozenset()
            parts = put(state.parts, number, "dead")
            there = state._replace(parts=parts, failures=0, moves=True, left=left)
            yield f"part {number} fails", there
        if state.releases:
            there = state._replace(parts=put(state.parts, number, "waiting"), releases=0)
            yield f"part {number} is released", there

    def _ended(self, state: State, number: int, end: str) -> State:
        return state._replace(parts=put(state.parts, number, end), is_soon=True)

    def _passed(self, state: State) -> State:
        """Return the state after a step of the process that cancels; none starts after its last."""
        return state._replace(is_over=state.is_over or not state.left)

    def _cancelled(self, state: State, number: int) -> State:
        wrong = state.wrong if "dead" in state.parts else "a part is cancelled without a failure"
        if state.parts[number] == "waiting":
            return self._ended(state, number, "cancelled")._replace(wrong=wrong)
        if state.parts[number] == "held" and self.asks_running_parts:
            return state._replace(asked=state.asked | {number}, wrong=wrong)
        return state

    def _check(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a worker claim the group's step, cancel parts, and end or postpone it."""
        open_parts = frozenset(n for n, part in enumerate(state.parts) if part not in ENDED)
        has_failed = "dead" in state.parts or not self.waits_for_a_failure
        if state.step == "parked" and (state.is_soon or self.step_has_a_time):
            there = state._replace(step="claimed", is_soon=False)
            if has_failed:
                there = there._replace(step="checks", checks=open_parts)
            yield "a worker claims the step", there
        elif state.step == "claimed":
            yield "the step is postponed, or ends", self._again(state, open_parts)
        elif state.step == "checks" and state.checks and self.step_completes:
            for number in state.checks:
                there = self._cancelled(state, number)
                yield (
                    f"the step cancels part {number}",
                    there._replace(checks=state.checks - {number}),
                )
        elif state.step == "checks":
            is_last = open_parts if self.step_checks_again else frozenset[int]()
            there = self._again(state, is_last)._replace(checks=frozenset(), is_over=True)
            yield "the step has checked", there

        if state.step in ("claimed", "checks") and state.crashes:  # its lease ends
            there = state._replace(step="parked", is_soon=True, checks=frozenset(), crashes=0)
            yield "the worker that holds the step stops", there

    def _again(self, state: State, open_parts: frozenset[int]) -> State:
        return state._replace(step="parked" if open_parts else "ended")


MODELS = {"three parts, one fails": Groups()}
MUTANTS = {
    "the process that ends a part does not cancel": Groups(ender_cancels=False),
    "running parts are not asked": Groups(asks_running_parts=False),
    "the step does not complete a cancellation": Groups(step_completes=False),
    "the step checks once": Groups(step_checks_again=False),
    "the step is postponed without a time": Groups(step_has_a_time=False),
    "the step cancels without a failure": Groups(waits_for_a_failure=False),
}
