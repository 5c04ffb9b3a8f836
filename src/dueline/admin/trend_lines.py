"""What a store did in a period, as lines of charts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.foresight.trends import RANGES, TrendStep, trend_of

PERIODS: Final[Mapping[str, int]] = {
    name: step_us * steps for name, (step_us, steps) in RANGES.items()
}
"""The durations of the periods, in microseconds, by name."""


class TrendPoint(NamedTuple):
    """One step; the values are None if nothing is known of it.

    Attributes:
      at_us: When it began.
      done_per_s, failed_per_s: Attempts in a second that did not fail, and that did.
      latencies: Start latency in microseconds: 50, 95 and 99 per cent; None without a first
        attempt.
      ready: The most ready jobs.
    """

    at_us: int
    done_per_s: float | None = None
    failed_per_s: float | None = None
    latencies: tuple[int | None, ...] = (None, None, None)
    ready: int | None = None


class Trend(NamedTuple):
    """The steps of a period, the oldest first. step_us: how long each is."""

    step_us: int
    points: Sequence[TrendPoint]


def trend_named(engine: Engine, name: str) -> Trend:
    """Return what a store did, step by step from the first that is known.

    Args:
        engine: The engine.
        name: One of PERIODS.

    Raises:
        BadInput: There is no such period.
    """
    if name not in RANGES:
        raise BadInput(f"{name!r:.80} is not a period.", hint=f"Use one of {', '.join(RANGES)}.")
    step_us = RANGES[name].step_us
    return Trend(step_us, list(_points(trend_of(engine.store, name), step_us)))


def _points(steps: Sequence[TrendStep], step_us: int) -> Iterator[TrendPoint]:
    last_us = steps[0].at_us if steps else 0
    for step in steps:
        yield from map(TrendPoint, range(last_us + step_us, step.at_us, step_us))
        last_us = step.at_us
        per_s = SECOND_US / min(max(step.span_us, SECOND_US), step_us)
        yield TrendPoint(
            step.at_us,
            round(max(0, step.ended - step.failed) * per_s, 3),
            round(step.failed * per_s, 3),
            tuple(step.latency_us(percent) for percent in (50, 95, 99)),
            step.ready,
        )
