"""Occurrences of cron expressions in a time zone.

The expression is read by cronsim, whose own search backwards may not end (decision 51). Time is cut
where the zone's offset changes, and within such a segment local time is UTC plus a constant, so
that each rule about gaps and overlaps is one line:

- An expression that names hours and minutes is due once for each local time. In an overlap that is
  the first time. If local times of it are in a gap, it is due once, at the end of the gap.
- Any other expression, whose minute or hour begins with a star or that has seconds, is due whenever
  local clocks show such a time: never in a gap, in both passes of an overlap.
"""

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from zoneinfo import ZoneInfo

from dueline.core.clock import SECOND_US

if TYPE_CHECKING:
    from cronsim import CronSim

DAY_S: Final = 86_400
GIVE_UP_DAYS: Final = 50 * 366
"""Number of days without an occurrence after which the search ends."""

_LAST_S: Final = int(datetime(9999, 12, 30, tzinfo=UTC).timestamp())
_EPOCH: Final = date(1970, 1, 1)


class Shift(NamedTuple):
    """A change of a zone's offset: when, and the offsets before and after, all in seconds."""

    at_s: int
    before_s: int
    after_s: int


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression.

    fields: what cronsim read. names_times: it names hours and minutes.
    """

    fields: "CronSim"
    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    seconds: tuple[int, ...]
    names_times: bool

    def after(self, after_us: int, zone: ZoneInfo) -> Iterator[int]:
        """Yield the occurrences after a timestamp, in order; in microseconds UTC."""
        from_s = after_us // SECOND_US + 1
        day_s = from_s - from_s % DAY_S
        last_s, idle = from_s - 1, 0
        while idle < GIVE_UP_DAYS and day_s < _LAST_S:
            if days := self._days_to_skip(day_s):
                idle, day_s = idle + days, day_s + days * DAY_S
                continue
            idle += 1
            for at_s in self._day(day_s, zone, last_s + 1):
                if at_s > last_s:
                    last_s, idle = at_s, 0
                    yield at_s * SECOND_US
            day_s += DAY_S

    def last(self, after_us: int, until_us: int, most: int, zone: ZoneInfo) -> list[int]:
        """Return the last occurrences after `after_us`, up to `until_us`, in order."""
        until_s = until_us // SECOND_US
        day_s = until_s - until_s % DAY_S
        latest: list[int] = []  # the latest first
        while (day_s + DAY_S) * SECOND_US > after_us and len(latest) < most:
            times = {at_s for at_s in self._day(day_s, zone, day_s) if at_s <= until_s}
            latest += sorted(times.difference(latest[-1:]), reverse=True)
            day_s -= DAY_S
        return [at_s * SECOND_US for at_s in latest[:most] if at_s * SECOND_US > after_us][::-1]

    def _day(self, day_s: int, zone: ZoneInfo, from_s: int) -> Iterator[int]:
        """Yield the occurrences of a day of UTC in order, from a time on; one may come twice."""
        passed_s = day_s
        if self.names_times and (before := _shift(day_s - DAY_S, zone)) is not None:
            passed_s = _repeats_until(before)
        shift = _shift(day_s, zone)
        if shift is None:
            offset_s = _offset(day_s, zone)
            yield from self._segment(max(passed_s, from_s), day_s + DAY_S, offset_s)
            return
        at_s, before_s, after_s = shift
        yield from self._segment(max(passed_s, from_s), at_s, before_s)
        if self.names_times and at_s >= from_s and self._is_in_gap(shift):
            yield at_s
        if self.names_times:
            passed_s = max(passed_s, _repeats_until(shift))
        yield from self._segment(max(passed_s, at_s, from_s), day_s + DAY_S, after_s)

    def _is_in_gap(self, shift: Shift) -> bool:
        """Return whether one of its local times is in the gap that a change leaves."""
        gap_s = max(0, shift.after_s - shift.before_s)
        skipped = self._segment(shift.at_s, shift.at_s + gap_s, shift.before_s)
        return next(skipped, None) is not None

    def _segment(self, from_s: int, until_s: int, offset_s: int) -> Iterator[int]:
        """Yield the times in a period with one offset."""
        from_s, until_s = from_s + offset_s, until_s + offset_s  # local
        for day in range(from_s // DAY_S, -(-until_s // DAY_S)):
            if from_s < until_s and self._has(_EPOCH + timedelta(days=day)):
                for local_s in self._times(day * DAY_S, from_s):
                    if local_s >= until_s:
                        return
                    yield local_s - offset_s

    def _days_to_skip(self, day_s: int) -> int:
        """Return how many days of UTC, from one on, have no occurrence in any zone."""
        day = _EPOCH + timedelta(seconds=day_s)
        local = [day + timedelta(days=days) for days in (-1, 0, 1)]
        if any(map(self._has, local)):
            return 0
        if self.fields.months.isdisjoint({near.month for near in local}):
            return max(1, monthrange(day.year, day.month)[1] - day.day)
        return 1

    def _has(self, day: date) -> bool:
        return day.month in self.fields.months and self.fields.match_day(day)

    def _times(self, midnight_s: int, from_s: int) -> Iterator[int]:
        """Yield the local times of a day, from a time on."""
        for hour in self.hours:
            hour_s = midnight_s + 3600 * hour
            if hour_s + 3600 <= from_s:
                continue
            for minute in self.minutes:
                minute_s = hour_s + 60 * minute
                if minute_s + 60 > from_s:
                    yield from (minute_s + s for s in self.seconds if minute_s + s >= from_s)


@lru_cache(maxsize=256)
def cron_of(expression: str) -> Cron:
    """Return a parsed expression.

    Raises: ValueError: it cannot be read.
    """
    # It loads the data of time zones: two megabytes that processes without schedules do not need.
    from cronsim import CronSim, CronSimError  # noqa: PLC0415

    try:
        fields = CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise ValueError(str(error)) from error
    words = expression.split()
    names_times = len(words) == 5 and not any(word.startswith("*") for word in words[:2])  # noqa: PLR2004
    hours, minutes, seconds = (
        tuple(sorted(numbers)) for numbers in (fields.hours, fields.minutes, fields.seconds)
    )
    return Cron(fields, hours, minutes, seconds, names_times)


def _offset(at_s: int, zone: ZoneInfo) -> int:
    offset = datetime.fromtimestamp(at_s, zone).utcoffset()
    assert offset is not None, "a zone has an offset"
    return int(offset.total_seconds())


def _repeats_until(shift: Shift) -> int:
    """Return when local times that a clock shows again have passed."""
    return shift.at_s + max(0, shift.before_s - shift.after_s)


def _shift(day_s: int, zone: ZoneInfo) -> Shift | None:
    """Return the change of the offset after the begin of a day, up to that of the next one."""
    before_s, after_s = _offset(day_s, zone), _offset(day_s + DAY_S, zone)
    if before_s == after_s:
        return None
    low_s, high_s = day_s, day_s + DAY_S
    while high_s - low_s > 1:
        middle_s = (low_s + high_s) // 2
        if _offset(middle_s, zone) == before_s:
            low_s = middle_s
        else:
            high_s = middle_s
    return Shift(high_s, before_s, after_s)
