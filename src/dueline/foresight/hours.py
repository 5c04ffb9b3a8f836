"""How many jobs start in each hour of the week, from the weeks before."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Final

from dueline.coordination import notes
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine

KIND: Final = "hours"
NAME: Final = "all"
HOUR_US: Final = 3600 * SECOND_US
WEEK: Final = 168
DAY: Final = 24

WEIGHT: Final = 0.3
"""Weight of the latest week."""

WIDTH: Final = 1.28
"""Standard deviations on either side of the mean, for 80 %."""

COUNTED_US_MIN: Final = HOUR_US // 2
"""An hour of which less was counted is left out."""


@dataclass(frozen=True, slots=True)
class Hours:
    """Means and deviations of the number of jobs, by hour of the week since Thursday 0:00 UTC.

    Attributes:
      hour, jobs, since_us: The hour that is being counted, the jobs in it so far, and since when.
    """

    means: Mapping[int, float] = field(default_factory=dict)
    deviations: Mapping[int, float] = field(default_factory=dict)
    hour: int = 0
    jobs: int = 0
    since_us: int = 0


def after_jobs(hours: Hours, jobs: int, now_us: int) -> Hours:
    """Return the hours after some jobs have started."""
    hour = now_us // HOUR_US
    if hour == hours.hour:
        return replace(hours, jobs=hours.jobs + jobs)
    counted_us = (hours.hour + 1) * HOUR_US - hours.since_us
    means, deviations = dict(hours.means), dict(hours.deviations)
    if hours.since_us and counted_us >= COUNTED_US_MIN:
        place, number = hours.hour % WEEK, hours.jobs * HOUR_US / counted_us
        mean = means.get(place)
        if mean is None:
            means[place], deviations[place] = round(number, 1), round(sqrt(number), 1)
        else:
            means[place] = round(mean + WEIGHT * (number - mean), 1)
            away = 1.25 * abs(number - mean)  # of a normal distribution
            deviations[place] = round(deviations[place] + WEIGHT * (away - deviations[place]), 1)
    return Hours(means, deviations, hour, jobs, now_us)


def expected(hours: Hours, at_us: int, span_us: int) -> tuple[int, int] | None:
    """Return between which numbers of jobs start in a period of an hour, with 80 %.

    Without this hour of another week, the same hour of other days counts; None without any.
    """
    place = at_us // HOUR_US % WEEK
    places = (
        [place]
        if place in hours.means
        else [other for other in hours.means if other % DAY == place % DAY]
    )
    if not places:
        return None
    part = span_us / HOUR_US
    mean = sum(hours.means[place] for place in places) / len(places) * part
    spread = sum((hours.means[place] * part - mean) ** 2 for place in places) / len(places)
    away = max(hours.deviations[place] for place in places) * part
    deviation = sqrt(max(away**2, mean) + spread)
    return max(0, round(mean - WIDTH * deviation)), round(mean + WIDTH * deviation)


def hours_of(engine: Engine) -> Hours:
    """Return the hours of a store."""
    return notes.value(engine.store, KIND, NAME, Hours) or Hours()
