"""`python -m benchmarks.compare --base CHECKOUT`: this checkout against another, in one run.

Both run the same measures in interleaved rounds, each with its own interpreter
(CHECKOUT/.venv/bin/python), through the public interface and the commands. Prints JSON to stdout
and a table to stderr: for each goal of benchmarks/goals.json the median ratio, the least and the
most of a round, and the ratio of processor time for each job.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import measure
from benchmarks.__main__ import chosen, on_cassandra, parser, sizes_of
from benchmarks.commands import Checkout
from benchmarks.rows import Bench, Row
from benchmarks.samples import Samples, Spread

GOALS: Final = Path(__file__).with_name("goals.json")
SKIPPED: Final = ("readme", "history", "bare", "default-normal", "threads-8", "pickup-normal",
                  "schedule", "idle", "backlog", "bulk")  # fmt: skip
"""Rows without a goal, which are measured only if they are named."""


class Goal(NamedTuple):
    """What is to be reached. to: sides of which the best counts; none for the measure itself."""

    title: str
    row: str
    measure: str
    to: Sequence[str]
    side: str = "ours"
    at_least: float | None = None
    at_most: float | None = None


def goals() -> list[Goal]:
    """Read the goals."""
    return [Goal(**one) for one in json.loads(GOALS.read_text(encoding="utf-8"))]


def judged(goal: Goal, samples: Samples) -> dict[str, Any] | None:
    """Return a line of the table; None if nothing was measured."""
    found = [(_spread(goal, samples, to), to) for to in goal.to or [""]]
    known = [(spread, to) for spread, to in found if spread]
    if not known:
        return None
    pick = min if goal.at_least is not None else max
    spread, to = pick(known, key=lambda one: one[0].median)
    is_met = (
        spread.median >= goal.at_least
        if goal.at_least is not None
        else spread.median <= (goal.at_most or 0)
    )
    ours, other = samples.spread(goal.side, goal.measure), samples.spread(to, goal.measure)
    cpu_us = goal.measure.replace("per_s", "cpu_us") if "per_s" in goal.measure else "cpu_us"
    cpu = samples.ratio(goal.side, to, cpu_us) if to else None
    return {
        "title": goal.title,
        "to": to,
        "measure": goal.measure,
        "ours": ours.median if ours else None,
        "theirs": other.median if other else None,
        "median": spread.median,
        "min": spread.min,
        "max": spread.max,
        "cpu_ratio": cpu.median if cpu else None,
        "at_least": goal.at_least,
        "at_most": goal.at_most,
        "is_met": is_met,
    }


def _spread(goal: Goal, samples: Samples, to: str) -> Spread | None:
    if to:
        return samples.ratio(goal.side, to, goal.measure)
    return samples.spread(goal.side, goal.measure)


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Write lines as a table."""
    yield "| measure | ours | theirs | ratio (least to most) | processor | to reach | met |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for line in lines:
        sign = f">= {line['at_least']:g}" if line["at_least"] is not None else ""
        sign = sign or f"<= {line['at_most']:g}"
        spread = f"{line['median']:.3g} ({line['min']:.3g} to {line['max']:.3g})"
        cpu = "" if line["cpu_ratio"] is None else f"{line['cpu_ratio']:.2f}"
        theirs = "" if line["theirs"] is None else f"{line['theirs']:,.4g}"
        to = f" to {line['to']}" if line["to"] else ""
        name = f"{line['title']}: {line['measure']}{to}"
        met = "yes" if line["is_met"] else "**no**"
        yield f"| {name} | {line['ours']:,.4g} | {theirs} | {spread} | {cpu} | {sign} | {met} |"


def main() -> int:
    """Measure, then print; return the exit code."""
    options = parser("benchmarks.compare")
    options.description = __doc__
    options.add_argument("--base", type=Path, required=True, help="another checkout")
    options.add_argument("--no-sqlite", action="store_true", help="measure on Cassandra only")
    asked = options.parse_args()
    base, sizes = Checkout.at(asked.base), sizes_of(asked)
    if not base.python.exists():
        options.error(f"{base.python} does not exist")
    on_sqlite = [] if asked.no_sqlite else Bench(sizes, base).rows()
    rows: list[Row] = chosen(
        [*on_sqlite, *on_cassandra(asked.cassandra, sizes, base)], asked, options
    )
    if not asked.only:
        rows = [row for row in rows if row.name not in SKIPPED]
    found = measure.run(rows, asked.rounds)
    lines = [
        line
        for goal in goals()
        if goal.row in found and (line := judged(goal, found[goal.row])) is not None
    ]
    report = {
        "machine": measure.machine(),
        "asked": {**vars(asked), "base": str(asked.base)},
        "goals": lines,
        "rows": {row.name: {"title": row.title, **found[row.name].report()} for row in rows},
    }
    print(json.dumps(report, indent=1))
    print(*table(lines), sep="\n", file=sys.stderr)
    failures = [f"{row.name}: {one}" for row in rows for one in found[row.name].failures]
    print(*failures, sep="\n", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
