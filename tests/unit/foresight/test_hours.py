"""Jobs by hour of the week, and the band of the timeline."""

from pathlib import Path

from dueline.admin.timeline import timeline
from dueline.coordination import notes
from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.foresight.hours import HOUR_US, KIND, NAME, WEEK, Hours, after_jobs, expected
from dueline.web.drawing import bars
from tests.harness.world import world_on

THURSDAY_US = 2_000 * WEEK * HOUR_US


def weeks(*numbers: int) -> Hours:
    """Count the jobs of one hour of some weeks, in four parts."""
    hours = Hours()
    for week, number in enumerate(numbers):
        for part in range(4):
            at_us = THURSDAY_US + week * WEEK * HOUR_US + part * HOUR_US // 4
            hours = after_jobs(hours, number // 4, at_us)
    return after_jobs(hours, 1, THURSDAY_US + len(numbers) * WEEK * HOUR_US)


def test_the_hour_of_other_weeks_is_expected() -> None:
    hours = weeks(1000, 1040, 960, 1000)
    low, high = expected(hours, THURSDAY_US + 5 * WEEK * HOUR_US, HOUR_US) or (0, 0)
    assert 930 < low < 1000 < high < 1070
    half = expected(hours, THURSDAY_US, HOUR_US // 2)
    assert half is not None
    assert 440 < half[0] < 500 < half[1] < 560


def test_the_hour_of_other_days_is_expected_without_this_one() -> None:
    hours = weeks(1000)
    assert expected(hours, THURSDAY_US + 24 * HOUR_US, HOUR_US) is not None
    assert expected(hours, THURSDAY_US + HOUR_US, HOUR_US) is None


def test_an_hour_of_which_little_was_counted_is_left_out() -> None:
    hours = after_jobs(Hours(), 5, THURSDAY_US + 50 * 60 * SECOND_US)
    assert not after_jobs(hours, 1, THURSDAY_US + HOUR_US).means


def test_the_timeline_has_a_band() -> None:
    world = world_on("memory", Path())
    hour = world.now_us // HOUR_US
    hours = Hours({(hour + 2) % WEEK: 100.0}, {(hour + 2) % WEEK: 12.0})
    world.store.commit(notes.PARTITION, (notes.put(KIND, NAME, encode(hours), b"v"),))
    world.put(after_s=7_500)
    found = timeline(world.queues.engine)
    banded = [slot for slot in found.slots if slot.expected]
    assert [(slot.at_us // HOUR_US, slot.expected) for slot in banded] == [
        (hour + 2, (41, 59)), (hour + 2, (41, 59)),
    ]  # fmt: skip
    drawn = bars(found)
    assert drawn.has_expected
    assert drawn.top == 59
    (bar, _) = (one for one in drawn.bars if one.expected)
    assert bar.label.endswith("1 normal priority; expected to start: 41 to 59 (80 %)")
