"""What workflows are made of.

A step is one call of a task. Parts are put together to larger parts, at any depth: a pipeline
runs them one after the other, a group side by side, a graph each after those that it names. What
a part gives is the first argument of the step behind it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Literal, NamedTuple, get_args

from dueline.core.clock import duration_us
from dueline.core.errors import BadInput
from dueline.core.retry import WAIT_US_MAX

OnFailure = Literal["stop", "skip"]
Failures = Literal["stop", "skip", "collect", "cancel"]

NAME_CHARACTERS_MAX: Final = 128
_HINT: Final = 'Write pipeline(fetch.step("a"), store.step()).'


class StepCall(NamedTuple):
    """A call as it is stored. due_us, expires_us: None for now, and for never."""

    task: str
    queue: str
    codec: int
    body: bytes
    priority: int = 0
    tenant: str = ""
    tags: tuple[str, ...] = ()
    due_us: int | None = None
    expires_us: int | None = None
    limits: tuple[str, ...] = ()


class _Chained:
    """What can be followed by something."""

    __slots__ = ()

    def then(self, *parts: "Part") -> "Pipeline":
        """Run other parts after this one."""
        return pipeline(self, *parts)  # type: ignore[arg-type]  # every kind of part is chained


@dataclass(frozen=True, slots=True, eq=False)
class Step(_Chained):
    """One call of a task, which `task.step(...)` makes.

    write: makes what is stored of it; given how many leading arguments come from other steps.
    takes: whether it takes what the part before it gives. undo: what is run to undo it.
    """

    task: str
    write: Callable[[int], StepCall]
    takes: bool = True
    undo: "Step | None" = None

    def alone(self) -> "Step":
        """Let the step begin after the part before it, and take nothing of what that gives."""
        return replace(self, takes=False)

    def undone_by(self, step: "Step") -> "Step":
        """Have another step run if this one is done, and a pipeline around it fails.

        Those that undo run when the outermost pipeline has ended, one after the other, that of
        the last step first; each is given what the step gave that it undoes. One that fails keeps
        no other from running.

        Raises: BadInput: it is no step, or is to be undone itself.
        """
        if not _is_plain(step):
            raise BadInput(f"{step!r:.80} undoes no step.", hint="Write another task's step().")
        return replace(self, undo=step)


@dataclass(frozen=True, slots=True, eq=False)
class Wait(_Chained):
    """A step without a task: it ends when somebody signals its name, and gives their value.

    timeout_us: it fails so long after the part before it ended; 0: never.
    """

    name: str
    timeout_us: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline(_Chained):
    """Parts that run one after the other. on_failure: "stop", "skip", or a step."""

    parts: "tuple[Part, ...]"
    on_failure: OnFailure | Step = "stop"


@dataclass(frozen=True, slots=True, eq=False)
class Group(_Chained):
    """Parts that run side by side. at_least: of how many a result is needed, share or number."""

    parts: "tuple[Part, ...]"
    failures: Failures = "stop"
    at_least: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Graph(_Chained):
    """Steps by name, each with the names of those that it comes after, in an order that holds."""

    steps: Mapping[str, tuple[Step, tuple[str, ...]]]


Part = Step | Wait | Pipeline | Group | Graph


def pipeline(*parts: Part, on_failure: OnFailure | Step = "stop") -> Pipeline:
    """Run parts one after the other; what one gives is the first argument of the next.

    Args:
      on_failure: what becomes of the rest when a part fails: "stop" lets it wait until the job
        that died is retried, "skip" goes on with what the part before the failed one gave. A step
        is run with an account of the failure, a dict, as its first argument, and the rest never.

    Raises: BadInput: there is no part, or something that is none.
    """
    if not parts:
        raise BadInput("A pipeline has no parts.", hint=_HINT)
    if not _is_on_failure(on_failure):
        raise BadInput(f"on_failure is {on_failure!r:.80}.", hint='Use "stop", "skip", or a step.')
    return Pipeline(_parts(parts), on_failure)


def group(
    *parts: Part | Iterable[Part], failures: Failures = "stop", at_least: float | None = None
) -> Group:
    """Run parts side by side; what they give together is a list, in their order.

    Args:
      parts: any number, or lists or generators of them.
      failures: what becomes of the list when a part fails: "stop": there is none, and what needs
        it waits until the job that died is retried; "skip": the part is left out; "collect": an
        account of the failure, a dict, stands in its place; "cancel": the other parts are cancelled
        at once, and what needs the list ends with them.
      at_least: of so many parts there must be a result, or of such a share below 1; the list is
        there when all have ended. Failed ones are left out, or collected.

    Raises: BadInput: a part is none, or an option is out of range.
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
    """Run parts side by side, then one with the list of what they gave: a group, then that."""
    return group(parts, failures=failures).then(callback)


def graph(steps: Mapping[str, Step | tuple[Step | str, ...]]) -> Graph:
    """Run steps each after those that it names: `{"a": a.step(1), "b": (b.step(), "a")}`.

    A step's first arguments are what the steps gave that it names, in that order.

    Raises: BadInput: a name is unknown, steps wait for each other in a circle, or the like.
    """
    if not _is_mapping(steps):
        raise BadInput("A graph has no steps.", hint='Write {"a": a.step(1), "b": (b.step(), "a")}')
    needs: dict[str, tuple[Step, tuple[str, ...]]] = {}
    for name, given in steps.items():
        step, *before = given if isinstance(given, tuple) else (given,)
        if not isinstance(step, Step):
            raise _no_part(step)
        for one in before:
            if one not in steps:
                raise BadInput(
                    f"The step {name!r:.80} comes after {one!r:.80}, which the graph has not.",
                    hint=f"It has {', '.join(map(str, steps))}."[:200],
                )
        needs[name] = (step, tuple(map(str, before)))
    return Graph(_in_order(needs))


def wait_for(name: str, *, timeout: timedelta | float | None = None) -> Wait:
    """Wait until somebody signals a name, without a worker's slot; it gives their value.

    Args: timeout: so long after the part before it ended, it fails; None: never.

    Raises: BadInput: the name is none, or the timeout is out of range.
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


def _is_on_failure(value: object) -> bool:
    return _is_plain(value) or value in get_args(OnFailure)


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
    """Put steps behind those that they come after.

    Raises: BadInput: some wait for each other in a circle.
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
    """Name the steps of one circle: each of these waits for another of them."""
    path = [next(iter(left))]
    while True:
        after = next(name for name in left[path[-1]][1] if name in left)
        if after in path:
            return [*path[path.index(after) :], after]
        path.append(after)
