"""Load and start latency by hour of the week, as heat maps of a report."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dueline.spark.pipeline import charts

HOURS: Final = """
    SELECT unix_micros(minute) div 3600000000 AS hour, step, sum(attempts) AS attempts
    FROM steps
    WHERE unix_micros(minute) >= :since_us AND unix_micros(minute) < :until_us
    GROUP BY unix_micros(minute) div 3600000000, step"""
"""Start latencies by hour, from `gold_lateness`."""

LOAD: Final = """
    SELECT unix_micros(minute) div 3600000000 AS hour, sum(attempts) AS attempts
    FROM gold_minute
    WHERE unix_micros(minute) >= :since_us AND unix_micros(minute) < :until_us
    GROUP BY unix_micros(minute) div 3600000000"""
"""Ended attempts by hour."""

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_HOUR_MS: Final = 3_600_000
_DAY: Final = charts.Axis("%H:%M", 0, 24 * _HOUR_MS)
_THURSDAY: Final = 3
"""The day of the week on which the epoch begins."""

_HOURS_MIN: Final = 2
_TAIL: Final = 0.99


def load(lines: Sequence[Mapping[str, Any]]) -> str:
    """Draw the ended attempts of an hour, the mean over weeks; nothing for less than two hours."""
    counts: Counter[int] = Counter()
    for line in lines:
        counts[_place(line["hour"])] += line["attempts"]
    hours = [line["hour"] for line in lines]
    weeks = Counter(map(_place, range(min(hours, default=0), max(hours, default=0) + 1)))
    return _heat({place: count / weeks[place] for place, count in counts.items()}, "attempts")


def latency(lines: Sequence[Mapping[str, Any]]) -> str:
    """Draw the 99th percentile of start latency, in milliseconds."""
    steps: dict[int, Counter[int]] = defaultdict(Counter)
    for line in lines:
        steps[_place(line["hour"])][line["step"]] += line["attempts"]
    return _heat({place: 2 ** _tail(counts) / 1000 for place, counts in steps.items()}, "ms at p99")


def _place(hour: int) -> int:
    """Return the hour of the week of an hour since the epoch, Monday 00:00 UTC being 0."""
    return (hour + 24 * _THURSDAY) % (24 * len(DAYS))


def _tail(steps: Mapping[int, int]) -> int:
    left = (1 - _TAIL) * sum(steps.values())
    for step in sorted(steps, reverse=True):
        left -= steps[step]
        if left < 0:
            return step
    return 0


def _heat(cells: Mapping[int, float], unit: str) -> str:
    if len(cells) < _HOURS_MIN:
        return ""
    rows = []
    for place, n in sorted(cells.items()):
        day, hour = divmod(place, 24)
        words = f"{DAYS[day]} {hour:02}:00: {n:,.0f} {unit}"
        rows.append(
            {"start": hour * _HOUR_MS, "end": (hour + 1) * _HOUR_MS, "name": DAYS[day], "n": n,
             "words": words}
        )  # fmt: skip
    names = [name for name in DAYS if any(row["name"] == name for row in rows)]
    note = f'<p class="note">The darkest cell is {max(cells.values()):,.0f} {unit}. UTC.</p>'
    return note + charts.heat(rows, names, _DAY, width=charts.NARROW)
