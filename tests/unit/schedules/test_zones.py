"""Cron expressions in all time zones, against a model that looks at every minute of the clock."""

import calendar
import os
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise, takewhile
from pathlib import Path
from typing import NamedTuple
from zoneinfo import TZPATH, ZoneInfo, available_timezones

import pytest

from dueline.core.clock import to_us
from dueline.schedules.cron import Cron
from dueline.schedules.schedule import Timing, check, last_times, times_after

FIRST, LAST = datetime(2026, 11, 1, tzinfo=UTC), datetime(2036, 12, 1, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
SAMPLE = 12
"""Number of changes of all zones that are checked each time."""

NAMES = {name.lower(): n for n, name in enumerate(calendar.day_abbr, 1)}
ODD = (
    "Australia/Lord_Howe", "Africa/Cairo", "Africa/Casablanca", "Antarctica/Troll",
    "America/Santiago", "America/Havana", "Asia/Beirut", "Pacific/Chatham", "America/Nuuk",
    "Atlantic/Azores", "Europe/Dublin", "Asia/Gaza",
)  # fmt: skip


# --- the model ----------------------------------------------------------------------------------


class Fields(NamedTuple):
    """What an expression matches; star: which of its five words begin with a star."""

    sets: Sequence[frozenset[int]]
    star: Sequence[bool]
    is_last_day: bool

    def has_day(self, local: datetime) -> bool:
        is_day = local.day in self.sets[2]
        if self.is_last_day:
            is_day = is_day or (local + DAY).day == 1
        is_weekday = local.isoweekday() in self.sets[4]
        both = self.star[2] or self.star[4]
        is_one = (is_day and is_weekday) if both else (is_day or is_weekday)
        return is_one and local.month in self.sets[3]

    def has(self, local: datetime) -> bool:
        return local.minute in self.sets[0] and local.hour in self.sets[1] and self.has_day(local)


@cache
def fields_of(expression: str) -> Fields:
    sets = []
    words = expression.split()
    for word, (low, high) in zip(words, ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7)), strict=True):
        numbers: set[int] = set()
        for part in word.split(","):
            span, _, every = part.partition("/")
            first, _, last = span.partition("-")
            if span == "L":
                continue
            begin = low if first == "*" else NAMES[first] if first in NAMES else int(first)
            end = high if first == "*" or (every and not last) else int(last or begin)
            numbers |= set(range(begin, end + 1, int(every or 1)))
        sets.append(frozenset(numbers))
    sets[4] = frozenset(7 if day == 0 else day for day in sets[4])
    return Fields(sets, [word.startswith("*") for word in words], "L" in words[2])


def at(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the first moment at which a clock shows a time, or the end of the gap it is in."""
    while True:
        moment = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if moment.astimezone(zone).replace(tzinfo=None) == local:
            return moment
        local += MINUTE


class Clock:
    """The minutes of a period, as a clock in a zone shows them."""

    def __init__(self, zone: ZoneInfo, begin: datetime, end: datetime) -> None:
        self.begin, self.end = begin, end
        count = int((end - begin) / MINUTE)
        minutes = [begin + n * MINUTE for n in range(1, count + 1)]
        self._shown = [(minute, minute.astimezone(zone)) for minute in minutes]
        first = begin.astimezone(zone).replace(tzinfo=None) - timedelta(hours=4)
        local = [first + n * MINUTE for n in range(count + 8 * 60)]
        self._named = [(at(minute, zone), minute) for minute in local]

    def times(self, expression: str) -> list[datetime]:
        """List the occurrences after the begin, up to the end."""
        fields = fields_of(expression)
        minutes = self._shown if fields.star[0] or fields.star[1] else self._named
        matches = {moment for moment, local in minutes if fields.has(local)}
        return sorted(moment for moment in matches if self.begin < moment <= self.end)


# --- changes of the clock -----------------------------------------------------------------------


def changes(zone: ZoneInfo) -> Iterator[tuple[datetime, timedelta, timedelta]]:
    """Yield when the offset of a zone changes, and the offsets before and after."""
    begin, before = FIRST, offset(FIRST, zone)
    while begin < LAST:
        end = begin + DAY
        after = offset(end, zone)
        if after != before:
            for minute in range(1, 24 * 60 + 1):
                if offset(begin + minute * MINUTE, zone) == after:
                    yield begin + minute * MINUTE, before, after
                    break
        begin, before = end, after


def offset(moment: datetime, zone: ZoneInfo) -> timedelta:
    utc_offset = moment.astimezone(zone).utcoffset()
    assert utc_offset is not None
    return utc_offset


def rule_of(name: str) -> tuple[bytes, Sequence[timedelta]]:
    """Return what tells zones apart: their rule for the future, and samples of their offsets."""
    files = [file for path in TZPATH if (file := Path(path, name)).is_file()]
    rule = files[0].read_bytes().rstrip(b"\n").rpartition(b"\n")[2] if files else name.encode()
    zone = ZoneInfo(name)
    return rule, tuple(offset(FIRST + n * 10 * DAY, zone) for n in range(360))


def distinct(names: Sequence[str]) -> list[str]:
    """List one zone of each rule."""
    known: dict[object, str] = {}
    for name in names:
        known.setdefault(rule_of(name), name)
    return list(known.values())


def expressions(moment: datetime, before: timedelta, after: timedelta) -> Iterator[str]:
    """Yield expressions before, at, in and after a gap or an overlap."""
    old, new = (moment + before).replace(tzinfo=None), (moment + after).replace(tzinfo=None)
    low, high = min(old, new), max(old, new)
    middle = low + (high - low) / 2
    for local in (low - MINUTE, low, middle, high - MINUTE, high, high + 30 * MINUTE):
        minute, hour, weekday = local.minute, local.hour, local.isoweekday()
        yield f"{minute} {hour} * * *"
        yield f"{minute} {hour} {local.day} {local.month} *"
        yield f"{minute} {hour} * * {weekday % 7}"
    hours = f"{low.hour},{high.hour}"
    yield f"0,15,30,45 {hours} * * *"
    yield f"0-59/20 {middle.hour} * * *"
    yield f"{middle.minute} {hours} 13 * {middle.isoweekday()}"
    yield f"{middle.minute} {middle.hour} */2 * {middle.isoweekday()}"
    yield f"{middle.minute} {middle.hour} L * *"
    yield f"*/10 {hours} * * *"
    yield f"{middle.minute} */2 * * *"
    yield "*/15 * * * *"
    yield f"7 * * * {middle.isoweekday()}"


def check_change(zone: ZoneInfo, change: tuple[datetime, timedelta, timedelta]) -> None:
    """Compare the occurrences around a change, from several beginnings."""
    moment = change[0]
    begin, end = moment - timedelta(hours=8), moment + timedelta(hours=28)
    clock = Clock(zone, begin, end)
    for expression in expressions(*change):
        timing = Timing(expression, zone.key)
        expected = [to_us(minute) for minute in clock.times(expression)]
        upto = to_us(end).__ge__
        times = list(takewhile(upto, times_after(timing, to_us(begin))))
        assert times == expected, (zone.key, moment, expression)
        for minutes in (-61, 0, 45):
            from_us = to_us(moment + minutes * MINUTE)
            later = [us for us in expected if us > from_us]
            assert list(takewhile(upto, times_after(timing, from_us))) == later
            earlier = [us for us in expected if us <= from_us][-3:]
            assert last_times(timing, to_us(begin), from_us, 3) == earlier, expression


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Europe/Berlin", "Australia/Lord_Howe", "Antarctica/Troll"])
def test_a_zone_runs_as_the_clock_on_the_wall_says(name: str) -> None:
    # T8
    zone = ZoneInfo(name)
    for _, change in zip(range(2), changes(zone), strict=False):
        check_change(zone, change)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize("hour", [0, 1, 2, 3])
def test_occurrences_that_are_months_apart_meet_changes_of_the_clock(name: str, hour: int) -> None:
    zone = ZoneInfo(name)
    days = [(year, month, 31 - 7 * week) for year in range(2020, 2040) for month in (3, 7, 10)
            for week in (3, 2, 1, 0)]  # fmt: skip
    moments = [at(datetime(*day, hour, 30), zone) for day in days]  # noqa: DTZ001  (local)
    expected = sorted(to_us(moment) for moment in moments)
    timing = Timing(f"30 {hour} 10,17,24,31 3,7,10 *", name)
    for n in (0, 7, 8, 100):
        assert list(islice(times_after(timing, expected[n]), 30)) == expected[n + 1 : n + 31]
        for most in (1, 2, 9):
            last_us = last_times(timing, expected[0], expected[n + 9], most)
            assert last_us == expected[n + 10 - most : n + 10]
    for before_us, at_us in pairwise(expected):
        assert next(times_after(timing, at_us - 1)) == at_us
        assert last_times(timing, before_us, at_us, 9) == [at_us]


@pytest.mark.parametrize(
    ("cron", "days", "looked_at"), [("0 9 * * *", 9000, 5), ("0 9 29 2 *", 2, 4)]
)
def test_the_last_occurrences_are_searched_no_further_than_needed(
    monkeypatch: pytest.MonkeyPatch, cron: str, days: int, looked_at: int
) -> None:
    day: Callable[..., Iterator[int]] = Cron._day
    looked: list[object] = []

    def look(*bound: object) -> Iterator[int]:
        looked.append(bound)
        return day(*bound)

    monkeypatch.setattr(Cron, "_day", look)
    until = FIRST + 3 * DAY
    last_times(Timing(cron, "UTC"), to_us(until - days * DAY), to_us(until), 3)
    assert 0 < len(looked) <= looked_at


def test_months_without_an_occurrence_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    skip, asked = Cron._days_to_skip, [0]

    def ask(cron: Cron, day_s: int) -> int:
        asked[0] += 1
        return skip(cron, day_s)

    monkeypatch.setattr(Cron, "_days_to_skip", ask)
    first_us = to_us(datetime(2028, 2, 29, 9, tzinfo=UTC))
    assert next(times_after(Timing("0 9 29 2 *", "UTC"), to_us(FIRST))) == first_us
    assert asked[0] < 100  # of 485 days


@pytest.mark.long
def test_odd_zones_run_as_the_clock_on_the_wall_says() -> None:
    # T8
    for name in ODD:
        zone = ZoneInfo(name)
        for _, change in zip(range(2), changes(zone), strict=False):
            check_change(zone, change)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_all_zones_run_as_the_clock_on_the_wall_says_for_ten_years() -> None:
    # T8: every change of every zone with HYPOTHESIS_PROFILE=long, a sample otherwise
    zones = [ZoneInfo(name) for name in distinct(sorted(available_timezones() - {"localtime"}))]
    all_changes = [(zone, change) for zone in zones for change in changes(zone)]
    assert len(all_changes) > 500
    if os.environ.get("HYPOTHESIS_PROFILE") != "long":
        all_changes = random.Random(8).sample(all_changes, SAMPLE)
    for zone, change in all_changes:
        check_change(zone, change)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "Europe/Vilnius", "Pacific/Kiritimati", "Asia/Kathmandu"])
@pytest.mark.parametrize(
    "expression",
    ["0 0 29 2 *", "30 9 29 2 mon", "0 12 * * 7", "0 0 13 * 5", "0 0 */13 * 5", "5 4 31 1-6/2 *",
     "59 23 L * *", "0 9 1-7 * mon"],
)  # fmt: skip
def test_days_of_months_weeks_and_leap_years(expression: str, zone: str) -> None:
    local, fields, expected = datetime(2026, 11, 1), fields_of(expression), list[int]()  # noqa: DTZ001
    (minute,), (hour,) = fields.sets[0], fields.sets[1]
    while local.year < 2033:
        if fields.has_day(local):
            expected.append(to_us(at(local.replace(hour=hour, minute=minute), ZoneInfo(zone))))
        local += DAY
    timing = Timing(expression, zone)
    begin_us, end_us = to_us(FIRST - DAY), to_us(at(local, ZoneInfo(zone)))
    expected = [us for us in expected if us > begin_us]
    assert [us for us in takewhile(lambda us: us < end_us, times_after(timing, begin_us))
            if us >= expected[0]] == expected  # fmt: skip


def test_every_name_of_the_database_is_a_time_zone() -> None:
    for name in available_timezones() - {"localtime"}:
        check(Timing("30 2 * * *", name))
