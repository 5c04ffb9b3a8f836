"""When a call recurs: hours that come twice or never, what was missed."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dueline.core.clock import DAY_US, SECOND_US, to_datetime, to_us
from dueline.core.errors import BadInput
from dueline.schedules.schedule import (
    AHEAD_US,
    CATCH_UP_MAX,
    LATE_US,
    Schedule,
    Template,
    Timing,
    check,
    check_name,
    has_same_times,
    last_times,
    step,
    times_after,
)

HOUR_US = 3600 * SECOND_US
NOW_US = to_us(datetime(2026, 10, 20, tzinfo=UTC))
TEMPLATE = Template("t", "q", 0, b"[]")
ZONES = ("Europe/Vilnius", "America/New_York", "Australia/Lord_Howe")
CRONS = ("*/30 * * * *", "30 2 * * *", "30 3 * * *", "0 2,3 * * *", "10 1-3 * * sun")
CHANGES = tuple(
    to_us(datetime(2026, *day, tzinfo=UTC)) for day in ((3, 8), (3, 29), (4, 5), (10, 25))
)


def at(text: str, zone: str) -> int:
    """Read an instant as a clock on the wall shows it; `*` behind it is the second time."""
    local = datetime.fromisoformat(text.rstrip("*")).replace(tzinfo=ZoneInfo(zone))
    return to_us(local.replace(fold=int(text.endswith("*"))))


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        # T8: an hour that does not come: what names a time in it runs right behind it
        ("30 3 * * *", "Europe/Vilnius", "2026-03-28T12:00",
         ["2026-03-29T04:00", "2026-03-30T03:30"]),
        ("30 2 * * *", "America/New_York", "2026-03-07T12:00",
         ["2026-03-08T03:00", "2026-03-09T02:30"]),
        # an hour that comes twice: what names a time in it runs once
        ("30 3 * * *", "Europe/Vilnius", "2026-10-24T12:00",
         ["2026-10-25T03:30", "2026-10-26T03:30"]),
        ("30 1 * * *", "America/New_York", "2026-10-31T12:00",
         ["2026-11-01T01:30", "2026-11-02T01:30"]),
        # and what recurs within the hour runs in both
        ("*/30 * * * *", "Europe/Vilnius", "2026-10-25T02:40",
         ["2026-10-25T03:00", "2026-10-25T03:30", "2026-10-25T03:00*", "2026-10-25T03:30*",
          "2026-10-25T04:00"]),
        ("*/30 * * * *", "Europe/Vilnius", "2026-03-29T02:40",
         ["2026-03-29T04:00", "2026-03-29T04:30"]),
        ("0 9 * * mon-fri", "Asia/Kathmandu", "2026-10-23T10:00",
         ["2026-10-26T09:00", "2026-10-27T09:00"]),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("0 0 L * *", "UTC", "2026-01-31T00:00", ["2026-02-28T00:00", "2026-03-31T00:00"]),
    ],
)  # fmt: skip
def test_clocks_are_read_as_people_read_them(
    cron: str, zone: str, after: str, expected: list[str]
) -> None:
    timing = Timing(cron, zone)
    times = list(islice(times_after(timing, at(after, zone)), len(expected)))
    assert times == [at(text, zone) for text in expected]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("cron", CRONS)
def test_wherever_one_begins_the_times_are_the_same(cron: str, zone: str) -> None:
    # T8: every process begins to count somewhere else
    timing = Timing(cron, zone)
    for day_us in CHANGES:
        begin_us = day_us - DAY_US // 4
        end_us = begin_us + 2 * DAY_US
        whole = list(takewhile(end_us.__ge__, times_after(timing, begin_us)))
        assert whole == sorted(set(whole))
        for from_us in range(begin_us, end_us, 50 * 60 * SECOND_US):
            rest = [us for us in whole if us > from_us]
            assert list(islice(times_after(timing, from_us), min(3, len(rest)))) == rest[:3]
            so_far = [us for us in whole if us <= from_us]
            assert last_times(timing, begin_us, from_us, 2) == so_far[-2:]


@given(
    some.integers(1, 10**6),
    some.integers(0, 10**7),
    some.integers(0, 10**7),
    some.integers(1, 5),
)
def test_intervals_are_counted_from_their_start(every: int, start: int, after: int, n: int) -> None:
    timing = Timing(every_us=every, start_us=start)
    times = list(islice(times_after(timing, after), n))
    assert all(us > after and us >= start and (us - start) % every == 0 for us in times)
    assert times[0] - every <= after or times[0] == start
    assert [b - a for a, b in pairwise(times)] == [every] * (n - 1)
    assert last_times(timing, after, times[-1], n) == times


def test_a_timing_that_cannot_be_is_refused_with_the_reason() -> None:
    for wrong in (
        Timing(),
        Timing("* * * * *", every_us=SECOND_US),
        Timing(every_us=SECOND_US - 1),
        Timing("61 * * * *"),
        Timing("0 0 30 2 *"),
        Timing("* * * *"),
        Timing("* * * * *", "Mars/Olympus"),
        Timing("* * * * *", "../../etc/passwd"),
        Timing("* * * * *", catch_up="some"),  # type: ignore[arg-type]
        Timing("* * * * *", overlap="never"),  # type: ignore[arg-type]
        Timing("* * * * *", catch_up_max=0),
        Timing("* * * * *", catch_up_max=CATCH_UP_MAX + 1),
    ):
        with pytest.raises(BadInput):
            check(wrong)
    check(Timing("30 3 * * mon-fri", "Europe/Vilnius"))
    for name in ("", "-a", "a b", "a/b", "x" * 129, None):
        with pytest.raises(BadInput):
            check_name(name)
    assert check_name("tasks.Report:daily") == "tasks.Report:daily"


# --- what was missed ---------------------------------------------------------------------------


def hourly(**terms: object) -> Schedule:
    """Make a schedule of every full hour, seen to until NOW_US."""
    timing = Timing("0 * * * *", **terms)  # type: ignore[arg-type]
    return Schedule(TEMPLATE, timing, b"seed", NOW_US)


@pytest.mark.parametrize(
    ("catch_up", "most", "made_up", "skipped"),
    [("skip", 100, [], 5), ("last", 100, [5], 4), ("all", 100, [1, 2, 3, 4, 5], 0),
     ("all", 2, [4, 5], 3)],
)  # fmt: skip
def test_what_was_missed_is_made_up_for_as_asked(
    catch_up: str, most: int, made_up: list[int], skipped: int
) -> None:
    # T9
    schedule = hourly(catch_up=catch_up, catch_up_max=most)
    now_us = NOW_US + 5 * HOUR_US + HOUR_US // 2
    times, after = step(schedule, now_us)
    assert times == [NOW_US + number * HOUR_US for number in made_up]
    assert (after.stored, after.skipped) == (len(made_up), skipped)
    assert step(after, now_us).times_us == []


def test_a_minute_late_is_not_missed() -> None:
    schedule = hourly(catch_up="skip")
    assert step(schedule, NOW_US + HOUR_US + LATE_US - 1).times_us == [NOW_US + HOUR_US]
    assert step(schedule, NOW_US + HOUR_US + LATE_US + 1).times_us == []


def test_jobs_are_stored_a_minute_ahead_each_once() -> None:
    schedule = Schedule(TEMPLATE, Timing(every_us=7 * SECOND_US), b"seed", NOW_US)
    sent: list[int] = []
    for second in range(0, 600, 13):
        times, schedule = step(schedule, NOW_US + second * SECOND_US)
        assert all(us <= NOW_US + second * SECOND_US + AHEAD_US for us in times)
        sent += times
    assert sent == list(takewhile(lambda us: us <= sent[-1], times_after(schedule.timing, NOW_US)))
    assert sent[-1] > NOW_US + 600 * SECOND_US


def test_a_step_stores_all_of_its_span_at_once() -> None:
    timing = Timing(every_us=SECOND_US, catch_up="all", catch_up_max=CATCH_UP_MAX)
    schedule = Schedule(TEMPLATE, timing, b"seed", NOW_US)
    now_us = NOW_US + 10 * HOUR_US
    times, after = step(schedule, now_us)
    assert len(times) == CATCH_UP_MAX + (LATE_US + AHEAD_US) // SECOND_US
    more, _ = step(after, now_us)
    assert more == []
    assert times == list(range(times[0], times[0] + len(times) * SECOND_US, SECOND_US))
    assert times[-1] == now_us + AHEAD_US


def test_a_paused_one_stores_nothing() -> None:
    schedule = Schedule(TEMPLATE, Timing("* * * * *"), b"seed", NOW_US, is_paused=True)
    assert step(schedule, NOW_US + DAY_US) == ([], schedule)


def test_far_times_take_no_time() -> None:
    timing = Timing("* * * * *", catch_up="last")
    schedule = Schedule(TEMPLATE, timing, b"seed", NOW_US - 3650 * DAY_US)
    times, after = step(schedule, NOW_US)
    assert to_datetime(times[0]) == to_datetime(NOW_US) - timedelta(minutes=1)
    assert after.skipped > 0


@pytest.mark.timeout(60)
def test_the_search_for_missed_times_ends_where_clocks_skip_midnight() -> None:
    # T8: cronsim goes back and forth between 23:59 and 00:07
    timing = Timing("7 * * * 6", "America/Nuuk")
    midnight_us = to_us(datetime(2027, 3, 28, 1, tzinfo=UTC))
    times = [midnight_us - HOUR_US * hours + 7 * 60 * SECOND_US for hours in (3, 2, 1)]
    assert last_times(timing, midnight_us - 8 * HOUR_US, midnight_us, 3) == times


TIMINGS = [
    Timing(cron="*/7 * * * *"),
    Timing(cron="*/7 * * * *", start_us=DAY_US),
    Timing(cron="3 5 * * *"),
    Timing(cron="3 5 * * *", zone="Asia/Tokyo"),
    Timing(every_us=HOUR_US),
    Timing(every_us=HOUR_US, start_us=1),
    Timing(every_us=HOUR_US, start_us=1, zone="Asia/Tokyo"),
    Timing(every_us=2 * HOUR_US, start_us=1),
    Timing(at_us=NOW_US + 5),
    Timing(at_us=NOW_US + 6),
    Timing(at_us=NOW_US + 6, start_us=DAY_US, zone="Asia/Tokyo"),
]


@pytest.mark.parametrize("timing", TIMINGS)
def test_timings_are_the_same_if_their_occurrences_are(timing: Timing) -> None:
    """Else a schedule that is declared again with another start would keep its old times."""
    for other in TIMINGS:
        mine, others = (
            list(islice(times_after(each_timing, NOW_US), 99)) for each_timing in (timing, other)
        )
        assert has_same_times(timing, other) == (mine == others), other
