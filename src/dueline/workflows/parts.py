"""The parts of workflows: steps, pipelines, groups and graphs.

A step is one call of a task. Parts can be nested to any depth: a pipeline runs its parts in
sequence, a group in parallel, and a graph runs each step after the steps that it names. The result
of a part is the first argument of the next step.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Literal, get_args

from dueline.core.call_options import Carried
from dueline.core.clock import duration_us
from dueline.core.errors import BadInput
from dueline.core.retry import WAIT_US_MAX

OnFailure = Literal["stop", "skip"]
Failures = Literal["stop", "skip", "collect", "cancel"]

NAME_CHARACTERS_MAX: Final = 128
_HINT: Final = 'Write pipeline(fetch.step("a"), store.step()).'


class StepCall(Carried, frozen=True, gc=False):
    """A call as it is stored. due_us: None for now. expires_us: None for never."""

    task: str
    queue: str
    codec: int
    body: bytes
    priority: int = 0
    tenant: str = ""
    due_us: int | None = None
    expires_us: int | None = None
    limits: tuple[str, ...] = ()


class _Chained:
    """A part that other parts can follow."""

    __slots__ = ()

    def then(self, *parts: "Part") -> "Pipeline":
        """Run other parts after this one."""
        return pipeline(self, *parts)  # type: ignore[arg-type]  # every kind of part is chained


@dataclass(frozen=True, slots=True, eq=False)
class Step(_Chained):
    """One call of a task, created by `task.step(...)`.

    write: encodes the call, given how many leading arguments come from other steps. takes: whether
    it takes the result of the part before it. undo: its compensation.
    """

    task: str
    write: Callable[[int], StepCall]
    takes: bool = True
    undo: "Step | None" = None

    def alone(self) -> "Step":
        """Run the step after the part before it, without the result of that part."""
        return replace(self, takes=False)

    def undone_by(self, step: "Step") -> "Step":
        """Set a compensation: it runs if this step is done and a pipeline around it fails.

        Compensations run after the outermost pipeline has ended, in sequence, that of the last step
        first. Each gets the result of the step that it compensates. If one fails, the others still
        run.

        Raises: BadInput: it is not a step, or has a compensation itself.
        """
        if not _is_plain(step):
            raise BadInput(
                f"{step!r:.80} cannot be a compensation.", hint="Pass the step() of another task."
            )
        return replace(self, undo=step)


@dataclass(frozen=True, slots=True, eq=False)
class Wait(_Chained):
    """A step without a task: it ends when its signal is sent, with the value of the signal.

    timeout_us: how long after the part before it ended it fails; 0: never.
    """

    name: str
    timeout_us: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline(_Chained):
    """Parts that run in sequence. on_failure: "stop", "skip", or a step."""

    parts: "tuple[Part, ...]"
    on_failure: OnFailure | Step = "stop"


@dataclass(frozen=True, slots=True, eq=False)
class Group(_Chained):
    """Parts that run in parallel. at_least: how many results are needed, a share or a number."""

    parts: "tuple[Part, ...]"
    failures: Failures = "stop"
    at_least: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Graph(_Chained):
    """Steps by name, each with the names of the steps before it, in topological order."""

    steps: Mapping[str, tuple[Step, tuple[str, ...]]]


Part = Step | Wait | Pipeline | Group | Graph


def pipeline(*parts: Part, on_failure: OnFailure | Step = "stop") -> Pipeline:
    """Run parts in sequence; the result of each is the first argument of the next.

    Args:
      on_failure: what happens to the other parts when a part fails: "stop": they wait until the
        dead job is retried. "skip": the next part runs with the last result before the failed
        part. A step: it runs with a description of the failure, a dict; the other parts do not.

    Raises: BadInput: there is no part, or a part is invalid.
    """
    if not parts:
        raise BadInput("A pipeline has no parts.", hint=_HINT)
    if not (_is_plain(on_failure) or on_failure in get_args(OnFailure)):
        raise BadInput(f"on_failure is {on_failure!r:.80}.", hint='Use "stop", "skip", or a step.')
    if isinstance(on_failure, Step) and not on_failure.takes:
        raise BadInput(
            "A step of `on_failure` gets the description of the failure, also with `.alone()`.",
            hint="Omit .alone(), and take the failure as the first argument, a dict.",
        )
    return Pipeline(_parts(parts), on_failure)


def group(
    *parts: Part | Iterable[Part], failures: Failures = "stop", at_least: float | None = None
) -> Group:
    """Run parts in parallel; the result is the list of their results, in their order.

    Args:
      parts: any number of parts, or lists or generators of them.
      failures: what happens to the list when a part fails: "stop": the next step waits until the
        dead job is retried. "skip": the part is omitted. "collect": a description of the failure, a
        dict, takes its place. "cancel": the other parts are cancelled at once, and steps that need
        the list end too.
      at_least: minimum number of results, or a share below 1. The list is complete when all parts
        have ended; failed ones are omitted, or collected.

    Raises: BadInput: a part is invalid, or an option is out of range.
    """
    flat: list[Part] = []
    for part in parts:
        flat += _several(part)
    if failures not in get_args(Failures):
        raise BadInput(
            f"failures is {failures!r:.80}.", hint=f"Use one of {', '.join(get_args(Failures))}."
        )
    if at_least is not None and not _is_count(at_least, len(flat)):
        raise BadInput(
            f"at_least is {at_least!r:.80} of {len(flat)} parts.",
            hint="Use a number of parts, or a share such as 0.9.",
        )
    return Group(_parts(flat), failures, at_least)


def chord(parts: Iterable[Part], callback: Part, *, failures: Failures = "stop") -> Pipeline:
    """Run parts in parallel, then a callback with the list of their results."""
    return group(parts, failures=failures).then(callback)


def graph(steps: Mapping[str, Step | tuple[Step | str, ...]]) -> Graph:
    """Run each step after the steps that it names: `{"a": a.step(1), "b": (b.step(), "a")}`.

    The first arguments of a step are the results of the steps that it names, in that order.

    Raises: BadInput: a name is unknown, or steps wait for each other in a cycle.
    """
    if not _is_mapping(steps):
        raise BadInput("A graph has no steps.", hint='Write {"a": a.step(1), "b": (b.step(), "a")}')
    needs: dict[str, tuple[Step, tuple[str, ...]]] = {}
    for name, given in steps.items():
        step, *before = given if isinstance(given, tuple) else (given,)
        if not isinstance(step, Step):
            raise _no_part(step)
        for earlier in before:
            if earlier not in steps:
                raise BadInput(
                    f"The step {name!r:.80} comes after {earlier!r:.80}, which the graph has not.",
                    hint=f"It has {', '.join(map(str, steps))}."[:200],
                )
        needs[name] = (step, tuple(map(str, before)))
    return Graph(_in_order(needs))


def wait_for(name: str, *, timeout: timedelta | float | None = None) -> Wait:
    """Wait for a signal, without using a slot of a worker; the result is the signal's value.

    Args: timeout: how long after the part before it ended the step fails; None: never.

    Raises: BadInput: the name is invalid, or the timeout is out of range.
    """
    if not _is_name(name):
        raise BadInput(
            f"{name!r:.80} is no name of a signal.",
            hint=f"Use 1 to {NAME_CHARACTERS_MAX} signs on a line.",
        )
    timeout_us = 0 if timeout is None else duration_us(timeout)
    if timeout is not None and not 0 < timeout_us <= WAIT_US_MAX:
        raise BadInput(f"timeout is {timeout!r}.", hint="Use more than 0, up to ten years.")
    return Wait(name, timeout_us)


def _is_plain(step: object) -> bool:
    return isinstance(step, Step) and step.undo is None


def _is_count(value: object, parts: int) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= max(1, parts)


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping) and len(value) > 0


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= NAME_CHARACTERS_MAX and value.isprintable()


def _parts(parts: Iterable[object]) -> tuple[Part, ...]:
    checked = []
    for part in parts:
        if not isinstance(part, Step | Wait | Pipeline | Group | Graph):
            raise _no_part(part)
        checked.append(part)
    return tuple(checked)


def _several(part: object) -> Iterable[Part]:
    if isinstance(part, Step | Wait | Pipeline | Group | Graph):
        return (part,)
    if not isinstance(part, Iterable) or isinstance(part, str | bytes | Mapping):
        raise _no_part(part)
    return _parts(part)


def _no_part(part: object) -> BadInput:
    return BadInput(f"{part!r:.80} is no part of a workflow.", hint=_HINT)


def _in_order(
    needs: Mapping[str, tuple[Step, tuple[str, ...]]],
) -> dict[str, tuple[Step, tuple[str, ...]]]:
    """Return steps in topological order.

    Raises: BadInput: some wait for each other in a cycle.
    """
    placed: dict[str, tuple[Step, tuple[str, ...]]] = {}
    left = dict(needs)
    while left:
        free = [name for name, (_, before) in left.items() if all(map(placed.__contains__, before))]
        if not free:
            raise BadInput(
                f"Steps of the graph wait for each other: {', '.join(_circle(left))}.",
                hint="Leave out one of the names that they come after.",
            )
        for name in free:
            placed[name] = left.pop(name)
    return placed


def _circle(left: Mapping[str, tuple[Step, tuple[str, ...]]]) -> list[str]:
    """Return the names of one cycle."""
    path = [next(iter(left))]
    while True:
        after = next(name for name in left[path[-1]][1] if name in left)
        if after in path:
            return [*path[path.index(after) :], after]
        path.append(after)
