"""Draw the documentation's charts: `python -m tools.pictures` writes them to docs/images.

Drain, latency and backlog are drawn from benchmarks/recorded.json, as the tables of
docs/performance.md are written (`tools/figures.py`).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from tools.figures import Recorded, backlogs, rounded

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
WIDTH: Final = 760
INK, GREY, RULE = "#1f2430", "#6b7280", "#d5d9e2"
OURS, THEIRS, WARN = "#3f51b5", "#a5adbd", "#e4572e"
FONT: Final = "-apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', Helvetica, Arial, sans-serif"


class Bar(NamedTuple):
    """A bar of a chart: what it shows, its value as a number and as text, its colour."""

    label: str
    value: float
    shown: str
    color: str = OURS


DRAINS: Final = (
    ("huey 4w FULL", "Huey, 4 workers, FULL"),
    ("huey 1w FULL", "Huey, 1 worker, FULL"),
    ("huey 1w NORMAL", "Huey, 1 worker, NORMAL"),
    ("huey 1w OFF", "Huey, 1 worker, no flushes"),
)
OUR_DRAINS: Final = (
    ("processes", "dueline, --processes 2"),
    ("readme", "dueline, the README's application"),
    ("default", "dueline, default settings"),
    ("history", "dueline, without results"),
    ("bare", "dueline, without both"),
)
MILLION: Final = (
    Bar("first 200,000 jobs", 1_927, "1,927"),
    Bar("median of 49 parts", 1_861, "1,861"),
    Bar("last 200,000 jobs", 2_147, "2,147"),
)
ONE_PARTITION: Final = (
    Bar("0 jobs done", 4, "4 ms", THEIRS),
    Bar("10,000", 22, "22 ms", THEIRS),
    Bar("30,000", 62, "62 ms", THEIRS),
    Bar("60,000", 160, "160 ms", THEIRS),
    Bar("100,000", 173, "173 ms", THEIRS),
    Bar("100,100", 173, "the server refuses to read", WARN),
)


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 17,
    color: str = INK,
    anchor: str = "start",
    weight: int = 400,
) -> str:
    """Draw a line of text."""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{color}" text-anchor="{anchor}"'
        f' font-weight="{weight}">{escape(words)}</text>'
    )


def picture(height: int, title: str, parts: Iterable[str], *, width: int = WIDTH) -> str:
    """Put parts together to a picture."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        f' font-family="{FONT}">\n<title>{escape(title)}</title>\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def bars(top: int, title: str, rows: Sequence[Bar], *, is_log: bool = False) -> list[str]:
    """Draw bars below a title, from left to right."""
    left, right, step = 300, 560, 34
    most = max(bar.value for bar in rows)
    least = min(bar.value for bar in rows) / 2

    def length(value: float) -> float:
        share = math.log(value / least) / math.log(most / least) if is_log else value / most
        return max(3.0, share * (right - left))

    parts = [text(20, top, title, weight=600)]
    for number, bar in enumerate(rows):
        y = top + 16 + number * step
        end = left + length(bar.value)
        parts += [
            text(left - 12, y + 18, bar.label, size=15, anchor="end"),
            (
                f'<rect x="{left}" y="{y}" width="{end - left:.1f}" height="24" rx="3"'
                f' fill="{bar.color}"/>'
            ),
            text(end + 10, y + 18, bar.shown, size=15),
        ]
    return parts


def drain() -> str:
    """Draw how many jobs a second one worker runs on SQLite, next to Huey."""
    recorded = Recorded()
    theirs = [(recorded.value("default", side, "per_s"), label, THEIRS) for side, label in DRAINS]
    our = [(recorded.value(row, "ours", "per_s"), label, OURS) for row, label in OUR_DRAINS]
    rows = [
        Bar(label, rate, rounded(rate), color) for rate, label, color in (*theirs, *our) if rate
    ]
    y = 58 + 34 * len(rows)
    note = f"No-op jobs, FULL where nothing else is said, {_machine(recorded, 'default')}."
    title = "Jobs a second that one worker runs, SQLite"
    return picture(y + 40, title, [*bars(36, title, rows), text(20, y + 16, note, size=14,
                   color=GREY)])  # fmt: skip


def _machine(recorded: Recorded, row: str) -> str:
    cores = "two cores" if recorded.machine["cpus"] == 2 else f"{recorded.machine['cpus']} cores"
    return f"{cores}, {recorded.date(row)}"


class Curve(NamedTuple):
    """A line of a plot: points from left to right, and its label."""

    label: str
    points: Sequence[tuple[float, float]]
    color: str


class Axis(NamedTuple):
    """An axis: its ends, its marks with their texts; log: where each step is a factor."""

    least: float
    most: float
    marks: Sequence[tuple[float, str]]
    is_log: bool = False

    def place(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        value = min(max(value, self.least), self.most)
        if self.is_log:
            return math.log(value / self.least) / math.log(self.most / self.least)
        return (value - self.least) / (self.most - self.least)


def plot(top: int, title: str, across: Axis, up: Axis, curves: Sequence[Curve]) -> list[str]:
    """Draw curves in a frame of 180 units below a title; labels stand on the right."""
    left, right, high = 70, 530, 180
    low = top + 20 + high

    def at(x: float, y: float) -> tuple[float, float]:
        return left + across.place(x) * (right - left), low - up.place(y) * high

    parts = [text(20, top, title, weight=600)]
    for value, words in up.marks:
        y = at(across.least, value)[1]
        parts += [f'<path d="M{left} {y:.1f} H{right}" stroke="{RULE}"/>',
                  text(left - 8, y + 5, words, size=13, color=GREY, anchor="end")]  # fmt: skip
    for value, words in across.marks:
        x = at(value, up.least)[0]
        parts += [f'<path d="M{x:.1f} {low} v5" stroke="{GREY}"/>',
                  text(x, low + 20, words, size=13, color=GREY, anchor="middle")]  # fmt: skip
    for number, curve in enumerate(curves):
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in curve.points))
        dash = ' stroke-dasharray="7 5"' if number % 2 else ""
        stroke = f'stroke="{curve.color}" stroke-width="3"{dash}'
        y = top + 40 + 26 * number
        parts += [
            f'<polyline points="{line}" fill="none" {stroke}/>',
            f'<path d="M{right + 16} {y} h26" {stroke}/>',
            text(right + 50, y + 5, curve.label, size=14),
        ]
    return parts


PERCENTILES: Final = (1, 10, 25, 50, 75, 90, 95, 99)
SOONS: Final = (
    ("pickup-full", "ours", "dueline, FULL", OURS),
    ("pickup-normal", "ours", "dueline, NORMAL", OURS),
    ("pickup-full", "huey", "Huey", WARN),
    ("pickup-full", "huey, polls each 5 ms", "Huey, polls each 5 ms", WARN),
)
DUES: Final = (
    ("schedule", "ours", "dueline, each 20 ms", OURS),
    ("due-at-once", "ours", "dueline, 10,000 at once", OURS),
    ("schedule", "huey", "Huey, each 20 ms", WARN),
    ("due-at-once", "huey", "Huey, 10,000 at once", WARN),
)


def _curves(recorded: Recorded, lines: Iterable[tuple[str, str, str, str]]) -> list[Curve]:
    curves = []
    for row, side, label, color in lines:
        points = [
            (value, float(part))
            for part in PERCENTILES
            if (value := recorded.value(row, side, f"p{part}_ms")) is not None
        ]
        if len(points) > 1:
            curves.append(Curve(label, points, color))
    return curves


def latency() -> str:
    """Draw the distribution of how soon jobs start on SQLite."""
    recorded = Recorded()
    marks = [(0.1, "0.1 ms"), (1.0, "1"), (10.0, "10"), (100.0, "100"), (1000.0, "1 s")]
    soon = Axis(0.1, 1000, marks, is_log=True)
    due = Axis(0.1, 10_000, [*marks, (10_000.0, "10 s")], is_log=True)
    share = Axis(0, 100, [(0, "0"), (50, "50 %"), (99, "99 %")])
    flush = recorded.machine["flush_ms"]
    note = f"SQLite, {_machine(recorded, 'pickup-full')}, a flush takes {flush:.2g} ms."
    pickup_title = "Started within this time after enqueue, idle queue"
    due_title = "Started within this time after the due time (early ones at the left edge)"
    parts = [
        *plot(36, pickup_title, soon, share, _curves(recorded, SOONS)),
        *plot(306, due_title, due, share, _curves(recorded, DUES)),
        text(20, 566, note, size=14, color=GREY),
    ]
    return picture(586, "How soon jobs start, SQLite", parts)


def backlog() -> str:
    """Draw what a backlog costs on SQLite and on Cassandra."""
    recorded = Recorded()
    rates = backlogs(recorded)
    sizes = [float(size) for size, _ in rates]
    top = 10_000 * math.ceil(max(rate for _, rate in rates) / 10_000 * 1.1)
    across = Axis(sizes[0], sizes[-1], [(size, f"{size:,.0f}") for size in sizes], is_log=True)
    up = Axis(0, top, [(part * top / 4, f"{part * top / 4:,.0f}") for part in range(5)])
    curve = Curve("dueline", [(float(size), rate) for size, rate in rates], OURS)
    parts = [
        *plot(36, "SQLite: jobs a second by the number of jobs that wait", across, up, [curve]),
        text(20, 290, f"FULL, default settings, {_machine(recorded, 'backlog')}.", size=14,
             color=GREY),
        *bars(340, "Cassandra: jobs a second while a million waiting jobs are drained", MILLION),
        *bars(500, "A queue in one partition: time to read the next hundred jobs", ONE_PARTITION),
        text(20, 744, "Cassandra 5.0, one node, commitlog_sync: batch, two cores,"
             " 23 November 2026.", size=14, color=GREY),
    ]  # fmt: skip
    return picture(764, "What a backlog costs", parts)


class State(NamedTuple):
    """A state of a job: its place and colour in the picture."""

    name: str
    x: int
    y: int
    color: str = OURS


STATES: Final = (
    State("scheduled", 40, 150),
    State("ready", 300, 150),
    State("running", 560, 150),
    State("retrying", 430, 320),
    State("done", 830, 60, "#2e7d32"),
    State("dead", 830, 240, WARN),
    State("cancelled", 830, 330, GREY),
    State("expired", 300, 420, GREY),
)
BOX: Final = (140, 56)


def arrow(path: str, label: str, x: float, y: float, *, anchor: str = "middle") -> list[str]:
    """Draw an arrow with its label."""
    return [
        f'<path d="{path}" fill="none" stroke="{INK}" stroke-width="2" marker-end="url(#tip)"/>',
        text(x, y, label, size=16, color=INK, anchor=anchor),
    ]


def job_life() -> str:
    """Draw the states of a job, and what moves it from one to the next."""
    parts = [
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8"',
        f'markerHeight="8" orient="auto"><path d="M0 0 10 5 0 10z" fill="{INK}"/>',
        "</marker></defs>",
    ]
    for state in STATES:
        parts += [
            (f'<rect x="{state.x}" y="{state.y}" width="{BOX[0]}" height="{BOX[1]}" rx="10"'
            f' fill="{state.color}"/>'),
            text(state.x + BOX[0] / 2, state.y + 35, state.name, size=19, color="#ffffff",
                 anchor="middle", weight=600),
        ]  # fmt: skip
    parts += [
        *arrow("M110 70 V146", "enqueue, due later", 110, 56),
        *arrow("M370 70 V146", "enqueue, due now", 370, 56),
        *arrow("M180 178 H296", "time passes", 238, 168),
        *arrow("M440 178 H556", "claim", 498, 168),
        *arrow("M600 150 C590 104 420 104 396 146", "lease expires", 520, 104),
        *arrow("M700 164 C760 164 760 88 826 88", "returns", 724, 110),
        *arrow("M700 186 C770 186 770 262 826 266", "attempts used up", 764, 264, anchor="end"),
        *arrow("M620 206 C612 250 596 300 574 330", "raises", 606, 306, anchor="start"),
        *arrow("M430 348 C380 340 366 270 368 210", "wait is over", 386, 302, anchor="start"),
        *arrow("M560 192 C470 250 200 260 130 210", "Snooze, Throttled", 236, 266),
        *arrow("M340 206 V416", "expires", 332, 404, anchor="end"),
        *arrow("M570 358 H826", "cancel, in any state that waits", 700, 388),
    ]
    return picture(500, "The states of a job", parts, width=1000)


PICTURES: Final[dict[str, Callable[[], str]]] = {
    "job-life": job_life,
    "drain": drain,
    "latency": latency,
    "backlog": backlog,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(draw(), encoding="utf-8")
        print(IMAGES / f"{name}.svg")
