"""Draw the documentation's charts: `python -m tools.pictures` writes them to docs/images.

The numbers are those that docs/performance.md cites, each with its benchmark.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

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


DRAIN: Final = (
    Bar("huey", 3_500, "3,500", THEIRS),
    Bar("dueline: results and history (default)", 18_250, "16,300 to 20,200"),
    Bar("dueline: history", 40_000, "40,000"),
    Bar("dueline: neither", 50_000, "50,000"),
)
PICKUP: Final = (
    Bar("huey", 52, "52 ms", THEIRS),
    Bar("dueline, FULL (default)", 2.6, "2.6 ms (p99 3.4)"),
    Bar("dueline, NORMAL", 2.0, "2.0 ms (p99 2.9)"),
)
DUE: Final = (
    Bar("huey", 1_119, "1,119 ms", THEIRS),
    Bar("dueline, FULL (default)", 0.5, "0.5 ms (p50 0.4)"),
    Bar("dueline, NORMAL", 1.3, "1.3 ms (p50 0.4)"),
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
    """Draw how many jobs a second one worker runs on SQLite."""
    title = "Jobs a second that one worker runs, SQLite"
    note = "No-op jobs, synchronous=NORMAL, one process, two cores, 22 November 2026."
    parts = [*bars(36, title, DRAIN), text(20, 216, note, size=14, color=GREY)]
    return picture(236, title, parts)


def latency() -> str:
    """Draw how soon jobs start on SQLite."""
    parts = [
        *bars(36, "From enqueue to start on an idle queue, p50 (log scale)", PICKUP, is_log=True),
        *bars(196, "From due time to start, a job each 20 ms, p99 (log scale)", DUE, is_log=True),
        text(20, 340, "SQLite, two cores, a flush takes 0.42 ms at the median, 22 November 2026.",
             size=14, color=GREY),
    ]  # fmt: skip
    return picture(360, "How soon jobs start, SQLite", parts)


def backlog() -> str:
    """Draw what a backlog costs on Cassandra."""
    parts = [
        *bars(36, "dueline: jobs a second while it drains a million waiting jobs", MILLION),
        *bars(196, "A queue in one partition: time to read the next hundred jobs", ONE_PARTITION),
        text(20, 440, "Cassandra 5.0, one node, commitlog_sync: batch, two cores,"
             " 23 November 2026.", size=14, color=GREY),
    ]  # fmt: skip
    return picture(460, "What a backlog costs, Cassandra", parts)


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
