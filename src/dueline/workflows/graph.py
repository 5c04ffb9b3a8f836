"""The layout of a workflow as numbered steps.

Every part becomes steps, each with the steps that it needs and the results that it takes. So for a
worker a group in a pipeline in a group is only a list of steps.
"""

import math
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Final, Literal, NamedTuple

from dueline.core.codec import decode, encode
from dueline.core.errors import BadInput, StoreCorrupt
from dueline.workflows.parts import Graph, Group, Part, Pipeline, Step, StepCall, Wait

STEPS_MAX: Final = 100_000
LAYOUT_BYTES_MAX: Final = 1024 * 1024
BLOCK: Final = 128
"""Number of consecutive steps whose outcomes are stored together."""

Rule = Literal["stop", "skip", "collect", "last"]


@dataclass(frozen=True, slots=True)
class Gathered:
    """A value that is combined from several values.

    rule: "stop": the list of all, and no value if one failed. "skip": the list without failed ones.
    "collect": with descriptions of failures in their places. "last": the last one that did not
    fail. at_least: how many must not have failed.
    """

    of: "tuple[int | Gathered, ...]"
    rule: Rule = "stop"
    at_least: int = 0


Value = int | Gathered
"""The result of a step, by its number, or a combination of several."""


@dataclass(frozen=True, slots=True)
class Node:
    """A numbered step.

    given: its first arguments. after: other steps that must be done before. unless: it runs only if
    this value failed, with a description of the failure as its first argument. undoes: the step
    that it compensates if that is done, then the steps that must have ended before, in any state;
    a compensation gets no description. is_lenient: its failure is handled, so steps that need it
    end instead of waiting for a retry. signal: it ends when this signal is sent, or fails after
    `timeout_us`. cancels_from: a step without a task that gathers a group, and cancels all steps
    from this one on when a part fails; -1: none.
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
        """The name for people."""
        if self.task or not self.signal:
            return self.task or "the list of a group"
        return f"the signal {self.signal}"

    def needs(self) -> Iterator[int]:
        """Yield the steps that must have ended before it, with repeats."""
        unless = () if self.unless is None else (self.unless,)
        if not (self.given or self.after or self.undoes or unless):  # as most of a large group
            return iter(())
        return chain(steps_in(self.given), self.after, self.undoes, steps_in(unless))


class Span(NamedTuple):
    """A part: its label, and the numbers of its steps, from `begin` to before `end`."""

    label: str
    begin: int
    end: int


def steps_in(values: Sequence[Value]) -> Iterator[int]:
    """Yield the steps of which values consist."""
    for value in values:
        if isinstance(value, int):
            yield value
        else:
            yield from steps_in(value.of)


@dataclass(frozen=True)
class Layout:
    """A workflow as it is stored; it never changes.

    result: the value of the workflow. parts: the parts other than steps, outer ones first. key: its
    unique key; then the last two nodes are of the key, see `with_key`.
    """

    name: str
    nodes: tuple[Node, ...]
    result: Value
    started_us: int = 0
    parts: tuple[Span, ...] = ()
    key: str = ""

    def to_bytes(self) -> bytes:
        """Encode and compress the layout; steps are similar."""
        stored = _Stored(self.name, self.nodes, self.result, self.started_us, self.parts, self.key)
        return zlib.compress(encode(stored))

    @property
    def size(self) -> int:
        """Number of steps, without those of the key."""
        return len(self.nodes) - (_KEY_STEPS if self.key else 0)

    def title(self, number: int) -> str:
        """Return the name of a step for people."""
        return self.nodes[number].title if number < self.size else "the unique key"

    def label(self, number: int) -> str:
        """Return what a step does, for people."""
        node = self.nodes[number]
        if node.signal:
            return f"wait for {node.signal}"
        if node.task and node.undoes:
            return f"compensation of step {node.undoes[0]}: {node.task}"
        is_watch = node.task and node.unless is not None
        return f"on failure: {node.task}" if is_watch else self.title(number)

    @cached_property
    def needed_by(self) -> Mapping[int, Sequence[int]]:
        """The steps that need each step."""
        dependents: dict[int, list[int]] = defaultdict(list)
        for number, node in enumerate(self.nodes):
            for need in set(node.needs()):
                dependents[need].append(number)
        return dependents

    @cached_property
    def cancelled_spans(self) -> Sequence[range]:
        """The steps of each group that is cancelled when a part fails; the next one gathers it."""
        nodes = enumerate(self.nodes)
        return [range(node.cancels_from, step) for step, node in nodes if node.cancels_from >= 0]

    @cached_property
    def _needs(self) -> dict[int, Mapping[int, frozenset[int]]]:
        return {}

    def needs_by_block(self, step: int) -> Mapping[int, frozenset[int]]:
        """Return the needs of a step, by the blocks in which their outcomes are stored."""
        needs = self._needs.get(step)
        if needs is None:
            blocks: dict[int, set[int]] = defaultdict(set)
            for need in self.nodes[step].needs():
                blocks[need // BLOCK].add(need)
            needs = {block: frozenset(members) for block, members in blocks.items()}
            self._needs[step] = needs
        return needs

    def blocks(self) -> range:
        """Return all blocks."""
        return range(-(-len(self.nodes) // BLOCK))


@dataclass(frozen=True, slots=True)
class _Stored:
    name: str
    nodes: tuple[Node, ...]
    result: Value
    started_us: int
    parts: tuple[Span, ...]
    key: str = ""


def read_layout(data: bytes) -> Layout:
    """Decode a layout.

    Raises: StoreCorrupt: it cannot be read.
    """
    try:
        plain = zlib.decompress(data)
    except zlib.error as error:
        raise StoreCorrupt(f"The layout of a workflow cannot be read: {error}.") from error
    stored = decode(plain, _Stored)
    return Layout(
        stored.name, stored.nodes, stored.result, stored.started_us, stored.parts, stored.key
    )


class LaidOut(NamedTuple):
    """A layout, and the call of each step; None for steps without a task."""

    layout: Layout
    calls: Sequence[StepCall | None]


def lay_out(part: Part, name: str) -> LaidOut:
    """Number the steps of a workflow, and compute what each needs.

    Raises: BadInput: it is not a part, has too many steps, or the arguments of a step do not fit.
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


_KEY_STEPS: Final = 2


def with_key(laid_out: LaidOut, key: str) -> LaidOut:
    """Add the steps of a unique key: one that all others come after, and one that comes last.

    The last one holds the key. It ends when all others have ended for good: steps whose failure is
    handled in any state, the others unless they are dead.
    """
    layout, calls = laid_out
    gate = len(layout.nodes)
    nodes = [
        node if any(True for _ in node.needs()) else replace(node, after=(gate,))
        for node in layout.nodes
    ]
    last = [number for number in range(gate) if number not in layout.needed_by]
    lenient = tuple(number for number in last if nodes[number].is_lenient)
    strict = tuple(number for number in last if not nodes[number].is_lenient)
    given = (Gathered(lenient, "skip"),) if lenient else ()
    nodes += [Node(""), Node("", given, strict if last else (gate,))]
    return LaidOut(replace(layout, nodes=tuple(nodes), key=key), [*calls, *[None] * _KEY_STEPS])


def without_key(layout: Layout) -> Layout:
    """Return a layout without the steps of its unique key."""
    if not layout.key:
        return layout
    gate = layout.size
    nodes = [
        replace(node, after=()) if node.after == (gate,) else node for node in layout.nodes[:gate]
    ]
    return replace(layout, nodes=tuple(nodes), key="")


class _Upstream(NamedTuple):
    """What comes before a part: the value that it gets, and other steps that it follows."""

    value: Value | None
    after: tuple[int, ...] = ()

    def steps(self) -> tuple[int, ...]:
        """Return the steps that it follows."""
        own = () if self.value is None else tuple(steps_in((self.value,)))
        return tuple(dict.fromkeys((*own, *self.after)))


_NOTHING: Final = Gathered(())


class _Undoing(NamedTuple):
    """A step with its compensation, which runs if one of these values failed."""

    number: int
    step: Step
    unless: list[Value]


def _can_undo(part: Part) -> bool:
    """Return whether a part has steps with compensations."""
    if isinstance(part, Step):
        return part.undo is not None
    if isinstance(part, Graph):
        return any(step.undo is not None for step, _ in part.steps.values())
    return not isinstance(part, Wait) and any(map(_can_undo, part.parts))


@dataclass
class _GraphBuilder:
    """Builds the layout, one step after the other."""

    nodes: list[Node] = field(default_factory=list)
    calls: list[StepCall | None] = field(default_factory=list)
    parts: list[Span] = field(default_factory=list)
    _undoing: list[_Undoing] = field(default_factory=list)
    _depth: int = 0
    _can_undo: bool = False

    def lay(self, part: Part, came: _Upstream, *, is_lenient: bool) -> _Upstream:
        """Add the steps of a part; return what comes before the next part."""
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
        for member in part.parts:
            before = came
            came = self.lay(member, before, is_lenient=is_lenient or is_own)
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
        """Note the compensation of a step, if it has one."""
        if part.undo is not None and not self._depth:
            raise BadInput(
                f"A step of {part.task} has a compensation, but is not in a pipeline.",
                hint="Write pipeline(reserve.step().undone_by(release.step()), pay.step()).",
            )
        if part.undo is not None:
            self._undoing.append(_Undoing(number, part.undo, []))

    def _undo(self, unless: Value, first: int) -> None:
        """Add the compensations noted from `first` on, for the failure of a pipeline around them.

        They run after the outermost pipeline, in sequence, the last first.
        """
        if not isinstance(unless, int):  # a value may name thousands of steps: once only
            unless = self._add(Node("", (unless,), (), is_lenient=True), None)
        for undoing in self._undoing[first:]:
            undoing.unless.append(unless)
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
        each = [self.lay(member, came, is_lenient=is_lenient or is_own) for member in part.parts]
        values = tuple(end.value if end.value is not None else _NOTHING for end in each)
        rule: Rule = "stop" if part.failures == "cancel" else part.failures
        if part.failures == "stop" and part.at_least is not None:
            rule = "skip"
        after = dict.fromkeys(chain.from_iterable(end.after for end in each))
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
            given: tuple[Value, ...] = tuple(numbers[name] for name in before)
            after: tuple[int, ...] = ()
            if not before:
                takes = step.takes and came.value is not None
                given = (came.value,) if takes and came.value is not None else ()
                after = came.after if takes else came.steps()
            elif not step.takes:
                given, after = (), tuple(numbers[name] for name in before)
            node = Node(step.task, given, after, None, is_lenient)
            numbers[name] = self._add(node, step.write(len(given)))
            self._note(step, numbers[name])
        needed = {name for _, before in part.steps.values() for name in before}
        last = [numbers[name] for name in part.steps if name not in needed]
        return _Upstream(last[0] if len(last) == 1 else Gathered(tuple(last)))


def _label(part: Group) -> str:
    """Return the label of a group, with its failure rule."""
    rule = f" failures={part.failures}" if part.failures != "stop" else ""
    return f"group{rule}" + (f" at_least={part.at_least}" if part.at_least is not None else "")


def _count(part: Group) -> int:
    """Return the minimum number of results of a group; 0 if only its rule applies."""
    if part.at_least is None:
        return 0
    if type(part.at_least) is float and part.at_least <= 1:
        return math.ceil(part.at_least * len(part.parts))
    return math.ceil(part.at_least)
