"""Output of the demo: tables and proof."""

from collections import Counter
from collections.abc import Collection
from statistics import quantiles

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from examples.demo.facts import Facts, Story
from examples.demo.proof import checks, crashes, recovered

LARGEST = 10


def show(story: Story, facts: Facts, out: Console) -> bool:
    """Print the tables and the proof; return whether it holds."""
    out.print(_figures(story, facts), _largest(story, facts))
    found = checks(story, facts)
    for check in found:
        out.print(f"[green]ok[/]  {check.text}" if check.holds else f"[red]FAILED[/] {check.text}")
    return all(check.holds for check in found)


def _figures(story: Story, facts: Facts) -> Table:
    outcomes = Counter(one.outcome for one in facts.attempts)
    ahead = {job for job, one in story.jobs.items() if one.after_s}
    table = Table("Demo", "", box=SIMPLE_HEAD)
    table.add_row("jobs", f"{len(story.jobs):,}")
    table.add_row("retries of failed attempts", f"{outcomes['retried']}")
    table.add_row("processes crashed by jobs", f"{len(crashes(facts))}")
    table.add_row("jobs recovered from the killed worker", f"{len(recovered(story, facts))}")
    table.add_row("dead-letter jobs", f"{len(facts.dead)}")
    table.add_row(
        f"start latency p50 / p99, {len(ahead)} urgent scheduled jobs", _lateness(facts, ahead)
    )
    table.add_row("start latency p50 / p99, all jobs", _lateness(facts, story.jobs))
    table.add_row("throughput", f"{len(story.jobs) / story.took_s:,.0f} jobs/s")
    table.add_row("duration", f"{story.took_s:.1f} s")
    return table


def _largest(story: Story, facts: Facts) -> Table:
    table = Table("Ten largest modules", box=SIMPLE_HEAD)
    for name in ("lines", "functions", "classes"):
        table.add_column(name, justify="right")
    found = sorted(facts.results.items(), key=lambda result: -result[1].lines)[:LARGEST]
    for job, counts in found:
        figures = (counts.lines, counts.functions, counts.classes)
        table.add_row(story.jobs[job].module, *(f"{figure:,}" for figure in figures))
    return table


def _lateness(facts: Facts, jobs: Collection[str]) -> str:
    """Return how long after their due times these jobs first started."""
    late_ms: dict[str, float] = {}
    for one in sorted(facts.attempts, key=lambda one: -one.started_us):
        if one.started_us and one.job in jobs:
            late_ms[one.job] = (one.started_us - one.due_us) / 1000
    cuts = quantiles(late_ms.values(), n=100)
    return f"{cuts[49]:,.0f} ms / {cuts[98]:,.0f} ms"
