"""When a job will start: an estimate from the work before it, and the error of earlier estimates.

The estimate is that of a queue with several servers: every job before it takes one for its mean run
time. What it does not know (jobs still to come, changing run times, a slow store) shows in the
errors of earlier estimates, from which the interval is made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Final, Literal, NamedTuple

from dueline.core.clock import SECOND_US, to_datetime

SHARE: Final = 80
"""Share of starts that should be within the interval, in percent."""

CHECKED_MIN: Final = 20
"""Minimum number of earlier estimates of a kind, in a queue, whose errors are known."""

CHECKED_MAX: Final = 120
"""Number of errors of each kind that are kept, the latest ones."""

NEAREST: Final = 40
"""Maximum number of errors that make an interval, those of the most similar waits: half of those
that are known, and at least CHECKED_MIN.
"""

NEAR_US: Final = 20_000
"""Added to a wait, so that the errors of short waits are not extreme."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a job is expected to start, in microseconds UTC.

    Attributes:
      earliest_us, latest_us: 80 % of such jobs start between both.
      checked: Number of earlier estimates from whose errors the interval is made.
    """

    expected_us: int
    earliest_us: int
    latest_us: int
    checked: int

    def text(self, now_us: int) -> str:
        """Return the forecast in words, with the date if it is not today, UTC."""
        first, last = self.earliest_us, -(-self.latest_us // SECOND_US) * SECOND_US
        expected, first_text, last_text = (
            _time_text(time_us, now_us) for time_us in (self.expected_us, first, last)
        )
        return f"expected start {expected}, between {first_text} and {last_text} ({SHARE} %)"


def _time_text(instant_us: int, now_us: int) -> str:
    instant = to_datetime(instant_us)
    is_today = instant.date() == to_datetime(now_us).date()
    return instant.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S")


class Line(NamedTuple):
    """The jobs that wait for one thing before a job: slots, permits of a limit, or a rate.

    Attributes:
      servers: How many can run at once.
      busy: How many run, or will before these.
      mean_us: Mean time for which one takes a server.
      rows: Due time and duration of each job that comes before.
      from_us: When the first may start, if all servers are closed until then.
    """

    servers: int
    busy: int
    mean_us: float
    rows: Sequence[tuple[int, float]]
    from_us: int = 0

    def start_us(self, now_us: int, due_us: int) -> int:
        """Return when a job that is due at `due_us` gets a server."""
        spare_us = (self.servers - 1) * self.mean_us / self.servers
        clock = now_us + (self.busy - self.servers + 1) * self.mean_us / self.servers
        clock = max(clock, self.from_us)
        for at_us, took_us in sorted(self.rows):
            clock = max(clock, at_us - spare_us) if at_us > now_us else clock
            clock += took_us / self.servers
        return max(round(clock), now_us, due_us)


class Estimate(NamedTuple):
    """An estimate without its error.

    Attributes:
      base_us: When the job may start first.
      wait_us: How long it waits after that.
    """

    base_us: int
    wait_us: int
    kind: Literal["ready", "later", "limited"]


def estimate(lines: Sequence[Line], *, now_us: int, due_us: int) -> Estimate:
    """Return when a job starts that waits in several lines: first for slots, then for limits."""
    base_us = max(now_us, due_us)
    wait_us = max(line.start_us(now_us, due_us) for line in lines) - base_us
    if len(lines) > 1:
        return Estimate(base_us, wait_us, "limited")
    return Estimate(base_us, wait_us, "ready" if due_us <= now_us else "later")


class Error(NamedTuple):
    """The wait of an earlier estimate, and its error; see `error_of`."""

    wait_us: int
    error: float


Errors = Mapping[str, Sequence[Error]]
"""Errors of earlier estimates by kind; the latest last."""


def error_of(wait_us: int, took_us: int) -> float:
    """Return the error of an estimate: how many times longer the job really waited."""
    return (max(0, took_us) + NEAR_US) / (wait_us + NEAR_US)


def forecast_of(estimate: Estimate, errors: Errors) -> Forecast | None:
    """Return the forecast of an estimate; None if too few errors of its kind are known."""
    known = errors.get(estimate.kind, ())
    if len(known) < CHECKED_MIN:
        return None
    size = log(estimate.wait_us + NEAR_US)
    latest_first = known[::-1]
    near = sorted(latest_first, key=lambda other: abs(log(other.wait_us + NEAR_US) - size))
    near = near[: min(NEAREST, max(CHECKED_MIN, len(known) // 2))]
    ordered = sorted(other.error for other in near)
    low, middle, high = (_quantile(ordered, part) for part in (50 - SHARE / 2, 50, 50 + SHARE / 2))

    def start(error: float) -> int:
        return estimate.base_us + max(0, round((estimate.wait_us + NEAR_US) * error) - NEAR_US)

    return Forecast(start(middle), start(low), start(high), len(near))


def _quantile(ordered: Sequence[float], percent: float) -> float:
    """Return a quantile of all errors to come, of which these are a sample: between two of them."""
    place = percent / 100 * (len(ordered) + 1) - 1
    low = min(max(0, int(place)), len(ordered) - 1)
    high = min(low + 1, len(ordered) - 1)
    part = min(max(0.0, place - low), 1.0)
    return ordered[low] + (ordered[high] - ordered[low]) * part
