"""A workflow drawn as the tree of its parts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from dueline.cli.output import Entry, Instant
from dueline.workflows.graph import Layout
from dueline.workflows.status import StepStatus

COLUMNS = ("step", "part", "state", "at", "why")
ALIKE_MAX = 4
"""More parallel parts with the same shape share one line."""


@dataclass(slots=True)
class _Branch:
    """A part, or several of the same shape: label, steps of a leaf, inner parts."""

    label: str
    steps: list[int] = field(default_factory=list)
    parts: "list[_Branch]" = field(default_factory=list)
    count: int = 1

    def shape(self) -> object:
        """Return what parts that share a line have in common."""
        return (self.label, self.count, tuple(part.shape() for part in self.parts))


def drawn(layout: Layout, stands: Sequence[StepStatus], *, whole: bool) -> Iterator[Entry]:
    """Yield the lines of a workflow. whole: one line per part, even for similar parts."""
    root = _grown(layout)
    if not whole:
        _fold(root)
    for part in root.parts:
        yield from _lines(layout, part, stands, 0)


def _grown(layout: Layout) -> _Branch:
    """Return the tree of parts with their steps."""
    root = _Branch("")
    open_parts = [(root, layout.size)]
    spans = iter((*layout.parts, None))
    span = next(spans)
    for number in range(layout.size + 1):
        while span is not None and span.begin == number:
            while open_parts[-1][1] <= number and len(open_parts) > 1:
                open_parts.pop()
            branch = _Branch(span.label)
            open_parts[-1][0].parts.append(branch)
            open_parts.append((branch, span.end))
            span = next(spans)
        while open_parts[-1][1] <= number and len(open_parts) > 1:
            open_parts.pop()
        if number < layout.size:
            open_parts[-1][0].parts.append(_Branch(layout.label(number), [number]))
    return root


def _fold(branch: _Branch) -> None:
    """Merge parallel parts of the same shape."""
    for part in branch.parts:
        _fold(part)
    if not branch.label.startswith("group"):
        return
    folded: list[_Branch] = []
    for _, parts in groupby(branch.parts, key=_Branch.shape):
        alike = list(parts)
        is_many = len(alike) > 1 and sum(branch.count for branch in alike) > ALIKE_MAX
        folded += [_merged(alike)] if is_many else alike
    branch.parts = folded


def _merged(alike: Sequence[_Branch]) -> _Branch:
    first = alike[0]
    steps = [step for branch in alike for step in branch.steps]
    parts = [
        _merged([branch.parts[place] for branch in alike]) for place in range(len(first.parts))
    ]
    merged = _Branch(first.label, sorted(steps), parts, sum(branch.count for branch in alike))
    _fold(merged)
    return merged


def _lines(
    layout: Layout, branch: _Branch, stands: Sequence[StepStatus], depth: int
) -> Iterator[Entry]:
    times = f"{branch.count:,} x " if branch.count > 1 else ""
    part = f"{'  ' * depth}{times}{branch.label}"
    statuses = [stands[step] for step in branch.steps]
    if len(statuses) == 1:
        yield {"part": part, **entry(layout, statuses[0])}
    elif statuses:
        yield {"part": part, **_summed(statuses)}
    else:
        yield {"part": part}
    for inner in branch.parts:
        yield from _lines(layout, inner, stands, depth + 1)


def entry(layout: Layout, stand: StepStatus) -> Entry:
    """Return the output of one step."""
    node = layout.nodes[stand.step]
    tries = f" (attempt {stand.errors + 1})" if stand.errors else ""
    return {
        "step": stand.step,
        "task": node.task or None,
        "signal": node.signal or None,
        "state": f"{stand.state}{tries}",
        "at": Instant(stand.at_us) if stand.at_us else None,
        "why": stand.why,
    }


def _summed(stands: Sequence[StepStatus]) -> Entry:
    """Return one line for many steps: counts by state, and the first failure."""
    states = Counter(stand.state for stand in stands)
    said = ", ".join(f"{count:,} {state}" for state, count in states.most_common())
    odd = next(
        (step for step in stands if step.why and step.state not in ("done", "waiting")),
        None,
    )
    last_us = max(stand.at_us for stand in stands)
    first, last = stands[0].step, stands[-1].step
    return {
        "step": f"{first}-{last}" if last - first < len(stands) else f"{first}..{last}",
        "state": said,
        "at": Instant(last_us) if len(states) == 1 and last_us else None,
        "why": f"step {odd.step}: {odd.why}" if odd else "",
    }
