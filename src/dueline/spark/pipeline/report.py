"""The report: one HTML page about queues, without scripts.

It shows start latency, throughput, backlog, fairness and failures from the pipeline's tables.
Charts without data are omitted.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import compute

from dueline.core.durations import span_text
from dueline.core.errors import NotFound
from dueline.spark.pipeline import charts
from dueline.spark.pipeline.insights_arrow import fingerprint
from dueline.spark.pipeline.table_store import BRONZE, SILVER, Folder
from dueline.spark.pipeline.tables_arrow import lines_of
from dueline.spark.pipeline.thresholds import MINUTE_US

Line = Mapping[str, Any]

SLOTS_MAX: Final = 48
ROWS_MAX: Final = 24
CAUSES_MAX: Final = 10
_OPEN_US: Final = (1 << 63) - 1
_FAILURES: Final = ("retried", "dead", "crashed")
_STYLE: Final = """
:root{color-scheme:light dark}
*{box-sizing:border-box}
body{font:15px/1.45 system-ui,sans-serif;margin:0 auto;max-width:1240px;padding:12px;
color:#1d2733;background:#f6f7f9}
h1{font-size:1.4em;margin:.2em 0}h2{font-size:1.02em;margin:0 0 .4em}
main{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:12px}
section{background:#fff;border:1px solid #dde2e8;border-radius:6px;padding:10px;min-width:0}
svg{display:block;width:100%;height:auto}
svg text{font:9px system-ui,sans-serif;fill:#55606d}
.y{text-anchor:end}.x{text-anchor:middle}.grid{stroke:#e3e7ec;stroke-width:1}
.note{margin:.4em 0 0;font-size:.82em;color:#55606d}.note span{margin-right:1em}
.note i{display:inline-block;width:.8em;height:.8em;margin-right:.35em;border-radius:2px}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.88em;width:100%}
td,th{text-align:right;padding:2px 6px;border-bottom:1px solid #e3e7ec}
td:first-child,th:first-child{text-align:left;overflow-wrap:anywhere}
@media (prefers-color-scheme:dark){body{color:#d5dbe3;background:#14181d}
section{background:#1b2129;border-color:#2c3540}svg text,.note{fill:#9aa5b1;color:#9aa5b1}
.grid,td,th{stroke:#2c3540;border-color:#2c3540}}
"""


class Span(NamedTuple):
    """The minutes of a page: from `since_us` until before `until_us`."""

    since_us: int
    until_us: int

    @classmethod
    def of(cls, since_us: int | None, until_us: int | None) -> "Span":
        """Return the minutes that a period touches; all if it is open."""
        end_us = _OPEN_US if until_us is None else -(-until_us // MINUTE_US) * MINUTE_US
        return cls((since_us or 0) // MINUTE_US * MINUTE_US, end_us)

    @property
    def is_all(self) -> bool:
        """Return whether it has no bounds."""
        return self == Span.of(None, None)

    def has(self, instant_us: int) -> bool:
        """Return whether a time is in it."""
        return self.since_us <= instant_us < self.until_us


class Slots:
    """Time divided into at most 48 slots of whole minutes."""

    def __init__(self, minutes: Sequence[int]) -> None:
        self.first = min(minutes)
        count = (max(minutes) - self.first) // MINUTE_US + 1
        self._width = -(-count // SLOTS_MAX) * MINUTE_US
        self.count = (max(minutes) - self.first) // self._width + 1
        form = "%H:%M" if count < 24 * 60 else "%m-%d %H:%M"
        starts = [self.first + place * self._width for place in range(self.count)]
        self.labels = [datetime.fromtimestamp(one / 1e6, UTC).strftime(form) for one in starts]
        self.words = span_text(self._width)

    def place(self, minute: int) -> int:
        """Return the slot of a minute."""
        return min(max((minute - self.first) // self._width, 0), self.count - 1)

    def sums(self, pairs: Sequence[tuple[int, int]]) -> list[float]:
        """Sum numbers by slot, from pairs of minute and number."""
        found = [0.0] * self.count
        for minute, number in pairs:
            found[self.place(minute)] += number
        return found


def percentile(steps: Mapping[int, int], share: float) -> int | None:
    """Return the step of a histogram below which a share of the values is."""
    wanted = share * sum(steps.values())
    seen = 0
    for step in sorted(steps):
        seen += steps[step]
        if seen >= wanted:
            return step
    return None


def step_text(step: int) -> str:
    """Return the upper bound of a step as text."""
    for unit, size in (("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1000)):
        if 2**step >= size:
            return f"{2**step / size:.0f} {unit}"
    return f"{2**step} us"


def page(folder: Folder, title: str, span: Span) -> str:
    """Return the page.

    Tables that describe only the end of the history (starts on time, suspicious shards) are omitted
    from a page about a period.

    Raises:
        NotFound: Nothing was copied.
    """
    if not folder.manifest(BRONZE).parts:
        raise NotFound(
            f"{folder.root} holds no tables.", hint="Fill it with `dueline pipeline run`."
        )
    minutes = _minutes(folder, "gold_minute", span)
    parts = [_section(name, body) for name, body in _parts(folder, minutes, span) if body]
    if not parts:
        parts = [_section("No data yet", "<p>No attempt in the copied history has ended.</p>")]
    until = max((line["minute"] for line in minutes), default=0)
    stamp = datetime.fromtimestamp(until / 1e6, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{escape(title)}</h1>"
        f'<p class="note">{sum(line["attempts"] for line in minutes):,} attempts, until {stamp}</p>'
        f"<main>{''.join(parts)}</main></html>\n"
    )


def _parts(folder: Folder, minutes: list[Line], span: Span) -> list[tuple[str, str]]:
    flow = _minutes(folder, "flow", span._replace(since_us=0))  # earlier jobs are in the backlog
    known = [line["minute"] for line in minutes]
    if not known:
        return []
    slots = Slots(known)
    late = _minutes(folder, "gold_lateness", span)
    fair = _minutes(folder, "fairness", span)
    now = [
        ("Starts on time", _slo(_read(folder, "slo"))),
        ("Suspicious shards", _shards(_read(folder, "suspicious"))),
    ]
    return [
        ("Start latency", _histogram(late)),
        (f"Start latency over time, by {slots.words}", _percentiles(late, slots)),
        (f"Ended attempts, by {slots.words}", _throughput(minutes, slots)),
        ("Backlog by shard", _backlog(flow, slots)),
        ("Fairness between tenants (Jain index)", _fairness(fair, slots)),
        ("Failures by cause", _causes(folder, span)),
        ("Run time of handlers", _histogram(_minutes(folder, "gold_run", span))),
        *(now if span.is_all else ()),
    ]


def _histogram(lines: Sequence[Line]) -> str:
    steps = _steps(lines)
    if not steps:
        return ""
    shown = range(min(steps), max(steps) + 1)
    labels = [f"<{step_text(step)}" if step else "on time" for step in shown]
    percentiles = ", ".join(
        f"p{share * 100:g} below {step_text(percentile(steps, share) or 0)}"
        for share in (0.5, 0.9, 0.99)
    )
    drawn = charts.bars(labels, {"attempts": [steps[step] for step in shown]}, unit="attempts")
    return f'{drawn}<p class="note">{percentiles}</p>'


def _percentiles(lines: Sequence[Line], slots: Slots) -> str:
    if not lines:
        return ""
    cells: list[Counter[int]] = [Counter() for _ in range(slots.count)]
    for line in lines:
        cells[slots.place(line["minute"])][line["step"]] += line["attempts"]
    series = {
        name: [percentile(cell, share) for cell in cells]
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    }
    known = [step for values in series.values() for step in values if step is not None]
    low, high = min(known), max(*known, min(known) + 3)
    marks = {float(step): f"<{step_text(step)}" for step in range(low, high, -(-(high - low) // 4))}
    return charts.lines(slots.labels, series, marks=marks | {float(high): f"<{step_text(high)}"})


def _throughput(minutes: Sequence[Line], slots: Slots) -> str:
    kinds: dict[str, Callable[[Line], int]] = {
        "done": lambda line: int(line["done"]),
        "retried": lambda line: int(line["retried"] + line["snoozed"] + line["given_back"]),
        "dead or crashed": lambda line: int(line["dead"] + line["crashed"]),
        "other": lambda line: int(line["cancelled"] + line["expired"] + line["lost"]),
    }
    series = {
        name: slots.sums([(line["minute"], count(line)) for line in minutes])
        for name, count in kinds.items()
    }
    kept = {name: values for name, values in series.items() if name == "done" or any(values)}
    return charts.bars(slots.labels, kept, unit="attempts")


def _backlog(flow: Sequence[Line], slots: Slots) -> str:
    """Draw the number of jobs that had come and not gone by the end of each slot."""
    shards: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for line in flow:
        name = f"{line['queue']}/{line['shard']}"
        shards[name].append((line["minute"], line["came"] - line["went"]))
    rows = {}
    for name, pairs in sorted(shards.items()):
        at_hand, held = [], 0.0
        for change in slots.sums(pairs):
            held += change
            at_hand.append(max(held, 0.0))
        rows[name] = at_hand
    most = sorted(rows, key=lambda name: max(rows[name]), reverse=True)[:ROWS_MAX]
    kept = {name: values for name, values in rows.items() if name in most}
    return charts.heat(slots.labels, kept, unit="jobs") if any(map(any, kept.values())) else ""


def _fairness(lines: Sequence[Line], slots: Slots) -> str:
    shared = [line for line in lines if line["tenants"] > 1]
    if not shared:
        return ""
    queues = Counter({line["queue"]: 0 for line in shared})
    for line in shared:
        queues[line["queue"]] += line["attempts"]
    series = {}
    for queue, _ in queues.most_common(len(charts.COLOURS)):
        values: list[float | None] = [None] * slots.count
        for line in shared:
            if line["queue"] == queue:
                place = slots.place(line["minute"])
                values[place] = min(line["jain"], values[place] or 1.0)
        series[queue] = values
    return charts.lines(slots.labels, series, marks={0.0: "0", 0.5: "0.5", 1.0: "1 even"})


def _causes(folder: Folder, span: Span) -> str:
    table = folder.read(SILVER, columns=("outcome", "error", "ended"))
    if table is None:
        return ""
    ended = table.column("ended").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    late = compute.greater_equal(ended, span.since_us)
    table = table.filter(compute.and_(late, compute.less(ended, span.until_us)))
    counts: Counter[str] = Counter()
    for line in table.group_by(["outcome", "error"]).aggregate([([], "count_all")]).to_pylist():
        if line["outcome"] in _FAILURES:
            counts[f"{line['outcome']}: {fingerprint(line['error'])}"] += line["count_all"]
    return charts.ranks(dict(counts.most_common(CAUSES_MAX)), unit="attempts") if counts else ""


def _slo(lines: Sequence[Line]) -> str:
    rows = [
        (
            line["queue"],
            f"{line['share']:.2%}",
            *(_burn(line[f"burn_{name}"]) for name in ("5m", "1h", "6h")),
        )
        for line in lines
    ]
    note = '<p class="note">Burn: error-budget burn rate (1 = on budget).</p>'
    return _table(("queue", "on time", "burn 5m", "1h", "6h"), rows) + note if rows else ""


def _burn(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _shards(lines: Sequence[Line]) -> str:
    rows = [(f"{line['queue']}/{line['shard']}", line["evidence"]) for line in lines]
    return _table(("shard", "evidence"), rows) if rows else ""


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(one)}</td>' for one in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _section(name: str, body: str) -> str:
    return f"<section><h2>{escape(name)}</h2>{body}</section>"


def _steps(lines: Sequence[Line]) -> Counter[int]:
    found: Counter[int] = Counter()
    for line in lines:
        found[line["step"]] += line["attempts"]
    return found


def _minutes(folder: Folder, table: str, span: Span) -> list[Line]:
    return [line for line in _read(folder, table) if span.has(line["minute"])]


def _read(folder: Folder, table: str) -> list[Line]:
    found = folder.read(table) if folder.manifest(table).parts else None
    return [] if found is None else lines_of(found)
