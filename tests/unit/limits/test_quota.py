"""What the record of a quota admits, at each of its bounds."""

from dataclasses import replace

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.queue_settings import Quota
from dueline.limits.quota import (
    COUNTED_US_MAX,
    GRAIN_US,
    ROOM_US_MAX,
    ROOM_US_MIN,
    QuotaRecord,
    after_count,
    after_taking,
    ahead_most,
    depth_left,
    grain_end_us,
    is_to_be_counted,
    left,
    rate_of,
    room_in_us,
    surely_used,
    waiting,
)
from dueline.limits.rate import Rate

NOW_US = 1_000 * SECOND_US
DEPTH = Quota(depth=10)
COUNTED = QuotaRecord(taken=9, waiting=4, through=7, counted_us=NOW_US, again_us=NOW_US + 50)


def test_jobs_that_were_taken_since_the_count_wait_too() -> None:
    assert (waiting(COUNTED), depth_left(COUNTED, DEPTH)) == (6, 4)
    assert depth_left(COUNTED, Quota(depth=5)) == 0
    assert depth_left(replace(COUNTED, counted_us=0), DEPTH) == 0  # it has to be counted first


@pytest.mark.parametrize(
    ("need", "later_us", "is_due"),
    [(4, 50, False), (5, 50, True), (5, 49, False), (1, COUNTED_US_MAX, False),
     (1, COUNTED_US_MAX + 1, True)],
)  # fmt: skip
def test_jobs_are_counted_without_room_or_when_the_count_is_old(
    need: int, later_us: int, *, is_due: bool
) -> None:
    assert is_to_be_counted(COUNTED, DEPTH, need, NOW_US + later_us) is is_due
    assert not is_to_be_counted(COUNTED, Quota(rate=1, per_us=SECOND_US), need, NOW_US + later_us)


@pytest.mark.parametrize(
    ("quota", "expected"),
    [(DEPTH, 4), (Quota(rate=3, per_us=SECOND_US), 3), (Quota(depth=10, rate=3, per_us=9), 3),
     (Quota(depth=10, rate=30, per_us=9), 4)],
)  # fmt: skip
def test_the_tighter_bound_of_a_quota_holds(quota: Quota, expected: int) -> None:
    assert left(COUNTED, quota, NOW_US) == expected


def test_what_is_taken_ahead_is_certainly_used_after_its_end() -> None:
    quota = Quota(depth=1000, rate=500, per_us=10 * SECOND_US)
    end_us = grain_end_us(quota, NOW_US + 1)
    assert end_us == NOW_US + SECOND_US // 10
    assert grain_end_us(quota, end_us) == end_us
    assert grain_end_us(DEPTH, NOW_US + 1) == NOW_US + GRAIN_US
    assert (ahead_most(quota), ahead_most(Quota(depth=300))) == (5, 3)
    taken = after_taking(QuotaRecord(), quota, 2, NOW_US + 1, more=3, until_us=end_us)
    assert (taken.taken, taken.lent, taken.lent_us) == (5, 3, end_us)
    assert [surely_used(taken, us) for us in (end_us, end_us + 1)] == [2, 5]
    for us, lent in ((end_us, 7), (end_us + 1, 4)):
        more = after_taking(taken, quota, 1, us, more=4, until_us=end_us - 1)
        assert (more.taken, more.lent, more.lent_us) == (10, lent, end_us)
    assert left(replace(taken, counted_us=1), quota, NOW_US + 1) == 495
    assert rate_of(quota) == Rate(500, 10 * SECOND_US)


def test_a_count_shows_how_fast_jobs_leave() -> None:
    def counted(used: QuotaRecord, count: int, later_us: int) -> QuotaRecord:
        at_us = NOW_US + later_us
        return after_count(used, count=count, through=9, counted_us=at_us, again_us=at_us + 1)

    first = counted(QuotaRecord(taken=9), 8, 0)
    assert (first.left_us, first.each_us, waiting(first)) == (NOW_US, 0, 8)
    same = counted(first, 8, 600)
    assert (same.left_us, same.each_us, same.counted_us) == (NOW_US, 0, NOW_US + 600)
    less = counted(same, 5, 900)
    assert (less.left_us, less.each_us, less.again_us) == (NOW_US + 900, 300, NOW_US + 901)
    assert counted(less, 1, 900).each_us == 1
    without_start = counted(replace(same, left_us=0), 6, 800)
    assert without_start.each_us == 100


@pytest.mark.parametrize(
    ("used", "need", "later_us", "expected_us"),
    [
        (COUNTED, 5, 0, ROOM_US_MIN),  # none has left yet
        (replace(COUNTED, each_us=700, left_us=NOW_US), 6, 0, 1_400),
        (replace(COUNTED, each_us=700, left_us=NOW_US), 6, 500, 900),
        (replace(COUNTED, each_us=700, left_us=NOW_US), 6, 1_400, 1_400),  # later than expected
        (replace(COUNTED, each_us=700, left_us=NOW_US), 6, 9_000, 9_000),
        (replace(COUNTED, each_us=ROOM_US_MAX), 7, 0, ROOM_US_MAX),
        (replace(COUNTED, each_us=1, left_us=NOW_US), 5, 0, 50),  # not before the next count
    ],
)
def test_room_is_expected_at_the_speed_at_which_jobs_left(
    used: QuotaRecord, need: int, later_us: int, expected_us: int
) -> None:
    assert room_in_us(used, DEPTH, need, NOW_US + later_us) == expected_us
