"""A workflow laid out as numbered steps.

Every part comes down to steps, each with the steps that it needs and what it takes of them. So a
group in a pipeline in a group is no more to a worker than a list of steps.
"""

import math
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Final, Literal, NamedTuple

from dueline.core.codec import decode, encode
from dueline.core.errors import BadInput, StoreCorrupt
from dueline.workflows.parts import Graph, Group, Part, Pipeline, Step, StepCall, Wait

STEPS_MAX: Final = 100_000
LAYOUT_BYTES_MAX: Final = 1024 * 1024
BLOCK: Final = 128
"""The ends of so many steps, one after the other, lie together in the store."""

Rule = Literal["stop", "skip", "collect", "last"]


@dataclass(frozen=True, slots=True)
class Gathered:
    """What several values give together.

    rule: "stop": a list of all, and nothing if one failed. "skip": without those that failed.
    "collect": with accounts of the failures in their places. "last": the last that did not fail.
    at_least: how many must not have failed.
    """

    of: "tuple[int | Gathered, ...]"
    rule: Rule = "stop"
    at_least: int = 0


Value = int | Gathered
"""What a step gives, by its number, or what several give together."""


@dataclass(frozen=True, slots=True)
class Node:
    """A numbered step.

    given: what its first arguments are. after: steps that must have ended well besides. unless:
    it runs only where this failed, with an account of it as its first argument. undoes: the step
    that it undoes where that is done, and behind it those that must have ended before, however;
    then no account is given. is_lenient:
    somebody sees to its failure, so what needs it ends rather than waits for a retry. signal: it
    ends when this is signalled, or fails after `timeout_us`. cancels_from: a step without a task
    that gathers a group, and ends all steps from this one on when a part of it fails; -1: none.
    """

    task: str
    given: tuple[Value, ...] = ()
    after: tuple[int, ...] = ()
    unless: Value | None = None
    is_lenient: bool = False
    signal: str = ""
    timeout_us: int = 0
    cancels_from: int = -1
    undoes: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """Name it for people."""
        if self.task or not self.signal:
            return self.task or "the list of a group"
        return f"the signal {self.signal}"

    def needs(self) -> Iterator[int]:
        """List the steps that must have ended before it, maybe more than once."""
        unless = () if self.unless is None else (self.unless,)
        if not (self.given or self.after or self.undoes or unless):  # as most of a large group
            return iter(())
        return chain(steps_in(self.given), self.after, self.undoes, steps_in(unless))


class Span(NamedTuple):
    """A part as it was written: its label, and the numbers of its steps, from and until."""

    label: str
    begin: int
    end: int


def steps_in(values: Sequence[Value]) -> Iterator[int]:
    """List the steps on which values rest."""
    for value in values:
        if isinstance(value, int):
            yield value
        else:
            yield from steps_in(value.of)


@dataclass(frozen=True)
class Layout:
    """A workflow as it is stored: it never changes.

    result: what it gives. parts: those that are no single steps, each before those in it.
    """

    name: str
    nodes: tuple[Node, ...]
    result: Value
    started_us: int = 0
    parts: tuple[Span, ...] = ()

    def to_bytes(self) -> bytes:
        """Write it; steps are much alike, so it is compressed."""
        return zlib.compress(
            encode(_Stored(self.name, self.nodes, self.result, self.started_us, self.parts))
        )

    @cached_property
    def needed_by(self) -> Mapping[int, Sequence[int]]:
        """Tell which steps need a step."""
        found: dict[int, list[int]] = defaultdict(list)
        for number, node in enumerate(self.nodes):
            for need in set(node.needs()):
                found[need].append(number)
        return found

    @cached_property
    def _needs(self) -> dict[int, Mapping[int, frozenset[int]]]:
        return {}

    def needs_by_block(self, step: int) -> Mapping[int, frozenset[int]]:
        """Tell what a step needs, by the blocks in which their ends lie."""
        needs = self._needs.get(step)
        if needs is None:
            blocks: dict[int, set[int]] = defaultdict(set)
            for need in self.nodes[step].needs():
                blocks[need // BLOCK].add(need)
            needs = {block: frozenset(some) for block, some in blocks.items()}
            self._needs[step] = needs
        return needs

    def blocks(self) -> range:
        """List all blocks."""
        return range(-(-len(self.nodes) // BLOCK))


@dataclass(frozen=True, slots=True)
class _Stored:
    name: str
    nodes: tuple[Node, ...]
    result: Value
    started_us: int
    parts: tuple[Span, ...]


def read_layout(data: bytes) -> Layout:
    """Read what `to_bytes` wrote.

    Raises: StoreCorrupt: it cannot be read.
    """
    try:
        plain = zlib.decompress(data)
    except zlib.error as error:
        raise StoreCorrupt(f"The layout of a workflow cannot be read: {error}.") from error
    stored = decode(plain, _Stored)
    return Layout(stored.name, stored.nodes, stored.result, stored.started_us, stored.parts)


class LaidOut(NamedTuple):
    """A workflow, and the call of each of its steps, None for those that wait for a signal."""

    layout: Layout
    calls: Sequence[StepCall | None]


def lay_out(part: Part, name: str) -> LaidOut:
    """Number the steps of a workflow, and say what each needs.

    Raises: BadInput: it is no part, or has too many steps, or the arguments of one do not fit.
    """
    if not isinstance(part, Step | Wait | Pipeline | Group | Graph):
        raise BadInput(
            f"{part!r:.80} is no workflow.", hint='Write pipeline(fetch.step("a"), store.step()).'
        )
    making = _GraphBuilder()
    came = making.lay(part, _Upstream(None), is_lenient=False)
    result = came.value if came.value is not None else _NOTHING
    layout = Layout(name, tuple(making.nodes), result, parts=tuple(making.parts))
    if len(layout.to_bytes()) > LAYOUT_BYTES_MAX:
        raise BadInput(
            f"The layout of this workflow takes more than {LAYOUT_BYTES_MAX} bytes.",
            hint="Start several smaller ones.",
        )
    return LaidOut(layout, making.calls)


class _Upstream(NamedTuple):
    """What comes before a part: the value that it is given, and steps besides that it follows."""

    value: Value | None
    after: tuple[int, ...] = ()

    def steps(self) -> tuple[int, ...]:
        """List the steps that it follows."""
        own = () if self.value is None else tuple(steps_in((self.value,)))
        return tuple(dict.fromkeys((*own, *self.after)))


_NOTHING: Final = Gathered(())


class _Undoing(NamedTuple):
    """A step that is to be undone, by what, and the values of which one must fail for that."""

    number: int
    step: Step
    unless: list[Value]


def _can_undo(part: Part) -> bool:
    """Tell whether a part has steps that are to be undone."""
    if isinstance(part, Step):
        return part.undo is not None
    if isinstance(part, Graph):
        return any(step.undo is not None for step, _ in part.steps.values())
    return not isinstance(part, Wait) and any(map(_can_undo, part.parts))


@dataclass
class _GraphBuilder:
    """Lays parts out, one step after the other."""

    nodes: list[Node] = field(default_factory=list)
    calls: list[StepCall | None] = field(default_factory=list)
    parts: list[Span] = field(default_factory=list)
    _undoing: list[_Undoing] = field(default_factory=list)
    _depth: int = 0
    _can_undo: bool = False

    def lay(self, part: Part, came: _Upstream, *, is_lenient: bool) -> _Upstream:
        """Add a part's steps; answer what comes before whatever is behind it."""
        if isinstance(part, Step):
            return self._step(part, came, is_lenient=is_lenient)
        if isinstance(part, Wait):
            node = Node("", (), came.steps(), None, is_lenient, part.name, part.timeout_us)
            return _Upstream(self._add(node, None))
        place, begin = len(self.parts), len(self.nodes)
        self.parts.append(Span("", begin, begin))
        if isinstance(part, Pipeline):
            rule = " on_failure=skip" if part.on_failure == "skip" else ""
            label, came = f"pipeline{rule}", self._pipeline(part, came, is_lenient=is_lenient)
        elif isinstance(part, Group):
            label, came = _label(part), self._group(part, came, is_lenient=is_lenient)
        else:
            label, came = "graph", self._graph(part, came, is_lenient=is_lenient)
        self.parts[place] = Span(label, begin, len(self.nodes))
        return came

    def _add(self, node: Node, call: StepCall | None) -> int:
        if len(self.nodes) >= STEPS_MAX:
            raise BadInput(
                f"This workflow has more than {STEPS_MAX} steps.",
                hint="Start several smaller ones.",
            )
        self.nodes.append(node)
        self.calls.append(call)
        return len(self.nodes) - 1

    def _step(self, part: Step, came: _Upstream, *, is_lenient: bool) -> _Upstream:
        takes = part.takes and came.value is not None
        given = (came.value,) if takes and came.value is not None else ()
        after = came.after if takes else came.steps()
        number = self._add(Node(part.task, given, after, None, is_lenient), part.write(len(given)))
        self._note(part, number)
        return _Upstream(number)

    def _pipeline(self, part: Pipeline, came: _Upstream, *, is_lenient: bool) -> _Upstream:
        if not self._depth:
            self._can_undo = _can_undo(part)
        self._depth += 1
        first = len(self._undoing)
        is_own = self._can_undo or part.on_failure != "stop"
        for one in part.parts:
            before = came
            came = self.lay(one, before, is_lenient=is_lenient or is_own)
            if part.on_failure == "skip" and before.value is not None and came.value is not None:
                came = came._replace(value=Gathered((before.value, came.value), "last"))
        unless = came.value if came.value is not None else _NOTHING
        if isinstance(part.on_failure, Step):
            watch = Node(part.on_failure.task, (), (), unless, is_lenient)
            self._add(watch, part.on_failure.write(1))
        self._depth -= 1
        if len(self._undoing) > first:
            self._undo(unless, first)
        return came

    def _note(self, part: Step, number: int) -> None:
        """Note that a step is to be undone, if it is."""
        if part.undo is not None and not self._depth:
            raise BadInput(
                f"A step of {part.task} is to be undone, and no pipeline is around it.",
                hint="Write pipeline(reserve.step().undone_by(release.step()), pay.step()).",
            )
        if part.undo is not None:
            self._undoing.append(_Undoing(number, part.undo, []))

    def _undo(self, unless: Value, first: int) -> None:
        """Have steps undone if a pipeline around them fails; `first` of those that are noted.

        They follow the outermost one, one after the other, the last first.
        """
        if not isinstance(unless, int):  # it may be of thousands of steps: so few are named anew
            unless = self._add(Node("", (unless,), (), is_lenient=True), None)
        for one in self._undoing[first:]:
            one.unless.append(unless)
        before_it: tuple[int, ...] = ()
        while self._undoing and not self._depth:
            number, step, values = self._undoing.pop()
            given = (number,) if step.takes else ()
            failed = Gathered(tuple(values))
            undoes = Node(
                step.task, given, (), failed, is_lenient=True, undoes=(number, *before_it)
            )
            before_it = (self._add(undoes, step.write(len(given))),)

    def _group(self, part: Group, came: _Upstream, *, is_lenient: bool) -> _Upstream:
        is_own = part.failures != "stop" or part.at_least is not None
        first = len(self.nodes)
        each = [self.lay(one, came, is_lenient=is_lenient or is_own) for one in part.parts]
        values = tuple(one.value if one.value is not None else _NOTHING for one in each)
        rule: Rule = "stop" if part.failures == "cancel" else part.failures
        if part.failures == "stop" and part.at_least is not None:
            rule = "skip"
        after = dict.fromkeys(chain.from_iterable(one.after for one in each))
        if not part.parts:
            after = dict.fromkeys(came.steps())
        value = Gathered(values, rule, _count(part))
        if part.failures != "cancel":
            return _Upstream(value, tuple(after))
        gathers = Node("", (value,), tuple(after), is_lenient=True, cancels_from=first)
        return _Upstream(self._add(gathers, None))

    def _graph(self, part: Graph, came: _Upstream, *, is_lenient: bool) -> _Upstream:
        numbers: dict[str, int] = {}
        for name, (step, before) in part.steps.items():
            given: tuple[Value, ...] = tuple(numbers[one] for one in before)
            after: tuple[int, ...] = ()
            if not before:
                takes = step.takes and came.value is not None
                given = (came.value,) if takes and came.value is not None else ()
                after = came.after if takes else came.steps()
            elif not step.takes:
                given, after = (), tuple(numbers[one] for one in before)
            node = Node(step.task, given, after, None, is_lenient)
            numbers[name] = self._add(node, step.write(len(given)))
            self._note(step, numbers[name])
        needed = {one for _, before in part.steps.values() for one in before}
        last = [numbers[name] for name in part.steps if name not in needed]
        return _Upstream(last[0] if len(last) == 1 else Gathered(tuple(last)))


def _label(part: Group) -> str:
    """Name a group, with what it makes of failures."""
    rule = f" failures={part.failures}" if part.failures != "stop" else ""
    return f"group{rule}" + (f" at_least={part.at_least}" if part.at_least is not None else "")


def _count(part: Group) -> int:
    """Tell of how many parts a group needs a result, beyond what its rule says."""
    if part.at_least is None:
        return 0
    if type(part.at_least) is float and part.at_least <= 1:
        return math.ceil(part.at_least * len(part.parts))
    return math.ceil(part.at_least)
