"""The page of a simulation: start latency over time, simulated next to real, and a table."""

from collections.abc import Sequence
from html import escape

from dueline.core.clock import SECOND_US
from dueline.foresight.summary import MINUTE_US, Latencies, Outcome, errors_of
from dueline.foresight.target import Target
from dueline.spark.pipeline import charts
from dueline.spark.pipeline.report import Bins
from dueline.spark.pipeline.report_page import Tile, page_of, section, table

SHARES = (("p50", 1), ("p95", 2), ("p99", 3))
LEAST_S = 1e-4


def page(runs: Sequence[tuple[str, Outcome]], aim: Target) -> str:
    """Return the page.

    Args:
        runs: Outcomes by name: what really happened, the replay in force, then settings.
        aim: The target.
    """
    minutes = [cell[2] for _, outcome in runs for cell in outcome.cells]
    bins = Bins(min(minutes) * MINUTE_US, (max(minutes) + 1) * MINUTE_US)
    shown = runs[: len(charts.SERIES)]
    latencies = {name: outcome.latencies(aim) for name, outcome in runs}
    real, replay, *_ = latencies.values()
    errors = ", ".join(f"{name} {error:+.0%}" for name, error in errors_of(real, replay).items())
    tiles = [
        Tile("Error of the simulation", errors, "replay with the settings in force", None),
        *(_tile(name, latency, aim) for name, latency in list(latencies.items())[2:]),
    ]
    parts = [
        section(f"Start latency {name}, by {bins.words}", _lines(shown, place, bins, aim))
        for name, place in SHARES
    ]
    parts.append(section("Start latency", _table(latencies, runs), is_wide=True))
    head = f"Target {aim}. Times are in UTC."
    return page_of("What if", head, tiles, parts)


def _tile(name: str, latency: Latencies, aim: Target) -> Tile:
    is_good = latency.late <= 1 - aim.share
    return Tile(name, f"p99 {_ms(latency.p99_us)}", f"{latency.late:.2%} start too late", is_good)


def _lines(runs: Sequence[tuple[str, Outcome]], place: int, bins: Bins, aim: Target) -> str:
    rows = []
    for name, outcome in runs:
        cells = outcome.by(lambda cell: (cell[2] * MINUTE_US // bins.width_us,), aim)
        for (number,), latency in cells.items():
            assert isinstance(number, int)
            latency_us = latency[place]
            rows.append(
                {
                    **bins.place(number), "kind": name, "n": max(latency_us / 1e6, LEAST_S),
                    "words": f"{bins.label(number)}: {name} {_ms(int(latency_us))}",
                }
            )  # fmt: skip
    kinds = [name for name, _ in runs]
    return charts.lines(rows, kinds, bins.axis, width=charts.NARROW)


def _table(latencies: dict[str, Latencies], runs: Sequence[tuple[str, Outcome]]) -> str:
    used = {name: outcome.utilisation for name, outcome in runs}
    rows = [
        (
            escape(name), f"{latency.starts:,}", _ms(latency.p50_us), _ms(latency.p95_us),
            _ms(latency.p99_us), f"{latency.late:.2%}", f"{used[name]:.1%}",
        )
        for name, latency in latencies.items()
    ]  # fmt: skip
    heads = ("setting", "starts", "p50", "p95", "p99", "too late", "utilisation")
    return table(heads, rows, texts=(0,))


def _ms(latency_us: int) -> str:
    return f"{latency_us / 1e6:.2f} s" if latency_us >= SECOND_US else f"{latency_us / 1e3:.1f} ms"
