"""Geometry of the drawings that pages show as SVG: numbers only, the templates draw."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from dueline.admin.job_views import JobDetails
from dueline.admin.read_models import WorkflowDetails
from dueline.admin.stream_views import StreamSummary
from dueline.admin.timeline import BANDS, SLOT_US, Timeline
from dueline.core.clock import SECOND_US
from dueline.core.durations import span_text

# The timeline


class Bar(NamedTuple):
    """A stacked bar.

    Attributes:
      parts: Band, y and height of each part.
      label: What it says in words.
      expected: y and height of the interval in which the number of jobs is expected.
    """

    x: float
    parts: Sequence[tuple[str, float, float]]
    label: str
    is_capped: bool
    expected: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """The timeline as bars in a box of `width` times `height`; `now_x` is the present.

    Attributes:
      ticks: x and text of the marks below.
      top: The number at the upper edge.
      total: Number of jobs.
      until: From where on not all jobs were counted, as x and text; None: all were.
    """

    width: int
    height: int
    bar: float
    bars: Sequence[Bar]
    now_x: float
    ticks: Sequence[tuple[float, str]]
    top: int
    total: int
    is_capped: bool
    until: tuple[float, str] | None

    @property
    def has_expected(self) -> bool:
        """Whether numbers of jobs are expected."""
        return any(bar.expected for bar in self.bars)


_WIDTH, _HEIGHT = 1000, 150
_TICK_HOURS = 3


def bars(timeline: Timeline) -> Bars:
    """Return the timeline as bars, high priorities at the bottom."""
    slots = timeline.slots
    step = _WIDTH / len(slots)
    top = max(1, *(max(slot.total, (slot.expected or (0, 0))[1]) for slot in slots))
    drawn, ticks = [], []
    for place, slot in enumerate(slots):
        at = datetime.fromtimestamp(slot.at_us / SECOND_US, UTC)
        if at.minute == 0 and at.hour % _TICK_HOURS == 0:
            ticks.append((round(place * step, 1), at.strftime("%H:%M")))
        parts, y = [], float(_HEIGHT)
        for band in BANDS:
            if slot.counts[band]:
                height = max(1.5, slot.counts[band] / top * (_HEIGHT - 8))
                y -= height
                parts.append((band, round(y, 1), round(height, 1)))
        said = ", ".join(f"{slot.counts[band]:,} {band}" for band in BANDS if slot.counts[band])
        least = "at least " if slot.is_capped else ""
        label = f"{at:%H:%M} UTC: {least}{said} priority" if said else ""
        within = None
        if slot.expected is not None:
            high, low = (slot.expected[n] / top * (_HEIGHT - 8) for n in (1, 0))
            within = round(_HEIGHT - high, 1), round(max(1.5, high - low), 1)
            label = f"{label or f'{at:%H:%M} UTC'}; expected to start: {slot.expected[0]:,} to "
            label += f"{slot.expected[1]:,} (80 %)"
        x = round(place * step + step * 0.1, 1)
        drawn.append(Bar(x, parts, label, slot.is_capped, within))
    now_x = (timeline.now_us - slots[0].at_us) / SLOT_US * step
    is_capped = any(slot.is_capped for slot in slots)
    total = sum(slot.total for slot in slots)
    until = None
    if timeline.until_us is not None:
        last = min(max(0, (timeline.until_us - slots[0].at_us) // SLOT_US), len(slots) - 1)
        at = datetime.fromtimestamp(slots[last].at_us / SECOND_US, UTC)
        until = round(last * step, 1), f"{at:%H:%M} UTC"
    return Bars(
        _WIDTH, _HEIGHT, round(step * 0.8, 1), drawn, round(now_x, 1), ticks, top, total, is_capped,
        until,
    )  # fmt: skip


# A task in the last day


class Spark(NamedTuple):
    """A bar of a sparkline: its x, and y and height of all attempts and of those that failed."""

    x: float
    all: tuple[float, float]
    failed: tuple[float, float]


SPARK_WIDTH: Final = 144
SPARK_HEIGHT: Final = 24


def sparkline(slots: Sequence[tuple[int, int]]) -> Sequence[Spark]:
    """Return the bars of the slots in which attempts ended, at most as high as the box."""
    top = max((ended for ended, _ in slots), default=0)
    step = SPARK_WIDTH / max(1, len(slots))

    def bar(number: int) -> tuple[float, float]:
        height = max(1.5, number / top * SPARK_HEIGHT) if number else 0.0
        return round(SPARK_HEIGHT - height, 1), round(height, 1)

    return [
        Spark(round(place * step, 1), bar(ended), bar(min(failed, ended)))
        for place, (ended, failed) in enumerate(slots)
        if ended
    ]


# The life of one job


class Span(NamedTuple):
    """A period of a job: what it was, x and width of 1000, and how long it took."""

    kind: str
    x: float
    width: float
    label: str


def spans(details: JobDetails, now_us: int) -> Sequence[Span]:
    """Return the periods of a job: it waits, is late, and runs, attempt by attempt."""
    job = details.summary
    attempts = [attempt for attempt in reversed(details.attempts) if attempt.worker]
    if not job.enqueued_us or details.is_capped:
        return ()
    periods: list[tuple[str, int, int]] = []
    at_us = job.enqueued_us
    for attempt in attempts:
        started_us = attempt.started_us or attempt.claimed_us
        due_us = min(max(attempt.due_us, at_us), started_us) if attempt.fence == 1 else started_us
        periods += [
            ("waits", at_us, due_us),
            ("late", due_us, started_us),
            ("done" if attempt.outcome == "done" else "failed", started_us, attempt.ended_us),
        ]
        at_us = attempt.ended_us
    if job.state == "running":
        periods += [("waits", at_us, job.claimed_us), ("running", job.claimed_us, now_us)]
    elif job.state in ("ready", "scheduled", "retrying"):
        periods += [("waits", at_us, min(job.at_us, now_us)), ("late", job.at_us, now_us)]
    periods = [(kind, begin, end) for kind, begin, end in periods if end > begin]
    if not periods:
        return ()
    first, last = periods[0][1], max(end for _, _, end in periods)
    scale = 1000 / (last - first)
    return [
        Span(
            kind,
            round((begin - first) * scale, 1),
            round(max(3.0, (end - begin) * scale), 1),
            f"{kind} {span_text(end - begin)}",
        )
        for kind, begin, end in periods
    ]


# Streams


class Cell(NamedTuple):
    """The lag of a group in a shard. level: 0 for none, up to 5."""

    shard: int
    rows: int
    level: int
    label: str


_LEVELS: Final = (1, 10, 100, 1_000, 10_000)


def heat(stream: StreamSummary) -> Sequence[tuple[str, Sequence[Cell]]]:
    """Return the heat map of a stream: for each group the lag of each shard."""
    return [
        (
            group.name,
            [
                Cell(
                    lag.shard,
                    lag.rows,
                    sum(lag.rows >= level for level in _LEVELS),
                    f"shard {lag.shard}: {lag.rows:,} unread, waits {span_text(lag.waits_us)}, "
                    f"held by {group.holders.get(lag.shard, 'no member')}",
                )
                for lag in group.lags
            ],
        )
        for group in stream.groups
    ]


# Workflows


@dataclass(slots=True)
class Box:
    """One step, or several alike, at a place of the drawing.

    Attributes:
      steps: Numbers of the steps.
      title: The task, the signal, or what the step does.
      state: The state of the step; of several, the one that needs attention most.
      note: States of several steps, or how often the step failed.
      job: Id of the step's job; empty for several steps.
    """

    steps: list[int]
    title: str
    state: str = ""
    note: str = ""
    job: str = ""
    x: int = 0
    y: int = 0


@dataclass(slots=True)
class Drawing:
    """A workflow as boxes and edges, from left to right."""

    width: int
    height: int
    boxes: Sequence[Box]
    edges: Sequence[str] = field(default_factory=list)


BOX_WIDTH, BOX_HEIGHT = 168, 46
_GAP_X, _GAP_Y, _MARGIN = 56, 18, 12
_TITLE = 22
_ALIKE_MAX = 6
_URGENT = ("dead", "failed", "running", "retrying", "ready", "held", "unknown", "scheduled",
           "waiting", "cancelled", "expired", "lost", "done")  # fmt: skip


def graph(workflow: WorkflowDetails) -> Drawing:
    """Return a workflow as a drawing; many steps of one task at one depth share a box."""
    layout = workflow.view.layout
    depth: list[int] = []
    for node in layout.nodes[: layout.size]:  # steps only need steps with smaller numbers
        before = (depth[need] for need in node.needs() if need < len(depth))
        depth.append(1 + max(before, default=-1))
    alike: dict[tuple[int, str], list[int]] = defaultdict(list)
    for number in range(layout.size):
        alike[depth[number], layout.label(number)].append(number)
    boxes: list[Box] = []
    columns: dict[int, list[Box]] = defaultdict(list)
    for (level, _), steps in sorted(alike.items(), key=lambda entry: (entry[0][0], entry[1][0])):
        for boxed in [steps] if len(steps) > _ALIKE_MAX else [[step] for step in steps]:
            columns[level].append(_box(workflow, boxed))
    tallest = max(len(column) for column in columns.values())
    for level, column in columns.items():
        for place, box in enumerate(column):
            box.x = _MARGIN + level * (BOX_WIDTH + _GAP_X)
            offset = (tallest - len(column)) * (BOX_HEIGHT + _GAP_Y) // 2
            box.y = _MARGIN + offset + place * (BOX_HEIGHT + _GAP_Y)
            boxes.append(box)
    place_of = {step: box for box in boxes for step in box.steps}
    pairs = {
        (id(place_of[need]), id(place_of[number])): (place_of[need], place_of[number])
        for number, node in enumerate(layout.nodes[: layout.size])
        for need in node.needs()
        if need in place_of
    }
    return Drawing(
        2 * _MARGIN + len(columns) * BOX_WIDTH + (len(columns) - 1) * _GAP_X,
        2 * _MARGIN + tallest * (BOX_HEIGHT + _GAP_Y) - _GAP_Y,
        boxes,
        [_edge(*pair) for pair in pairs.values()],
    )


def _box(workflow: WorkflowDetails, steps: list[int]) -> Box:
    layout = workflow.view.layout
    node, title = layout.nodes[steps[0]], layout.title(steps[0])
    statuses = [workflow.steps[step] for step in steps]
    counts = Counter(step_status.state for step_status in statuses)
    urgent = min(counts, key=lambda state: _URGENT.index(state) if state in _URGENT else 0)
    short = title if len(title) <= _TITLE else f"{title[: _TITLE - 1]}…"
    if len(steps) > 1:
        note = ", ".join(f"{count:,} {state}" for state, count in counts.most_common(2))
        return Box(steps, f"{len(steps):,} x {short}"[: _TITLE + 6], urgent, note)
    tries = f", attempt {statuses[0].errors + 1}" if statuses[0].errors else ""
    role = f", undoes step {node.undoes[0]}" if node.undoes else ""
    role = role or (", on failure" if node.task and node.unless is not None else "")
    return Box(steps, short, urgent, f"{urgent}{tries}{role}", workflow.jobs[steps[0]])


def _edge(source: Box, target: Box) -> str:
    """Return the path of an edge: a curve between the sides of two boxes."""
    x, y = source.x + BOX_WIDTH, source.y + BOX_HEIGHT // 2
    to_x, to_y = target.x, target.y + BOX_HEIGHT // 2
    middle = (x + to_x) // 2
    return f"M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}"
