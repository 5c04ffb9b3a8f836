"""Whether a step of a workflow may run.

Pure functions of the layout and of the outcomes of the needed steps, which are read for each
decision (rule W4).
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dueline.core.codec import encode
from dueline.workflows.graph import Gathered, Layout, Node, Value, steps_in


class End(NamedTuple):
    """The outcome of a step: its state, its result as JSON (done only) or its error, and when."""

    state: str
    value: str = ""
    error: str = ""
    ended_us: int = 0

    @property
    def is_final(self) -> bool:
        """Whether the outcome cannot change: a dead job may be retried."""
        return self.state != "dead"


class Failure(NamedTuple):
    """The step that failed, so that there is no value."""

    step: int
    end: End


class Waits(NamedTuple):
    """The step has to wait. steps: for how many others. first: the first of them."""

    steps: int
    first: int


class Runnable(NamedTuple):
    """The step may run. given: its first arguments, as a JSON array."""

    given: bytes


class Held(NamedTuple):
    """A needed job is dead: the step continues once that is retried."""

    failure: Failure


class NotNeeded(NamedTuple):
    """The step ends without being run."""

    why: str


class Broken(NamedTuple):
    """A part of the gathered group failed: the other parts are cancelled."""

    failure: Failure


Readiness = Waits | Runnable | Held | NotNeeded | Broken

_NULL = "null"


def judge(layout: Layout, step: int, ends: Mapping[int, End]) -> Readiness:
    """Decide whether a step may run, from the outcomes of the steps that it needs."""
    node = layout.nodes[step]
    missing = sorted({need for need in node.needs() if need not in ends})
    if missing:
        failure = _broken(layout, node, ends)
        return Broken(failure) if failure else Waits(len(missing), missing[0])
    if node.undoes:
        if (why := _needless(layout, node, ends)) is not None:
            return NotNeeded(why)
    elif node.unless is not None:
        return _watched(layout, node.unless, ends)
    given = []
    for value in node.given:
        result = evaluate(layout, value, ends)
        if isinstance(result, Failure):
            return _without(layout, node, result)
        given.append(result)
    for before in node.after:
        if ends[before].state != "done":
            return _without(layout, node, Failure(before, ends[before]))
    return Runnable(f"[{','.join(given)}]".encode())


def _broken(layout: Layout, node: Node, ends: Mapping[int, End]) -> Failure | None:
    """Return the failed part of a group that is cancelled when a part fails."""
    if node.cancels_from >= 0:
        for gathered in node.given:
            for value in gathered.of if isinstance(gathered, Gathered) else ():
                if all(step in ends for step in steps_in((value,))):
                    result = evaluate(layout, value, ends)
                    if isinstance(result, Failure):
                        return result
    return None


def _watched(layout: Layout, unless: Value, ends: Mapping[int, End]) -> Readiness:
    result = evaluate(layout, unless, ends)
    if not isinstance(result, Failure):
        return NotNeeded("It runs only after a failure, and nothing failed.")
    return Runnable(encode([account(layout, result)]))


def _needless(layout: Layout, node: Node, ends: Mapping[int, End]) -> str | None:
    """Return why a compensation is not needed; None: it is (rule W9)."""
    assert node.unless is not None, "a compensation waits for a failure"
    if not isinstance(evaluate(layout, node.unless, ends), Failure):
        return "Nothing failed, so nothing is undone."
    step = node.undoes[0]
    if ends[step].state != "done":
        return f"The step {step} ({layout.title(step)}) is not done, so it is not undone."
    return None


def _without(layout: Layout, node: Node, failure: Failure) -> Readiness:
    if not node.is_lenient and not failure.end.is_final:
        return Held(failure)
    return NotNeeded(reason(layout, failure))


def evaluate(layout: Layout, value: Value, ends: Mapping[int, End]) -> str | Failure:
    """Return the value of ended steps, as JSON, or the failure that prevents it."""
    if isinstance(value, int):
        end = ends[value]
        return end.value or _NULL if end.state == "done" else Failure(value, end)
    results = [evaluate(layout, part, ends) for part in value.of]
    failures = [failure for failure in results if isinstance(failure, Failure)]
    if value.rule == "last":
        fine = [result for result in results if not isinstance(result, Failure)]
        return fine[-1] if fine else failures[-1]
    if failures and (value.rule == "stop" or len(results) - len(failures) < value.at_least):
        return failures[0]
    return f"[{','.join(_members(layout, value, results))}]"


def _members(layout: Layout, value: Gathered, results: list[str | Failure]) -> Iterator[str]:
    for result in results:
        if not isinstance(result, Failure):
            yield result
        elif value.rule == "collect":
            yield encode(account(layout, result)).decode()


def account(layout: Layout, failure: Failure) -> Mapping[str, Any]:
    """Return the description of a failure that handlers get."""
    step, end = failure
    return {"step": step, "task": layout.nodes[step].task, "state": end.state, "error": end.error}


_PREFIX = "The step "


def follows(failure: Failure) -> bool:
    """Return whether a step was not run because another one failed."""
    return failure.end.error.startswith(_PREFIX)


def reason(layout: Layout, failure: Failure) -> str:
    """Return why a step ends without being run; in a chain of such steps, the first failure."""
    step, end = failure
    if follows(failure):
        return end.error
    why = f": {end.error}" if end.error else ""
    return f"{_PREFIX}{step} ({layout.title(step)}) is {end.state}{why}"
