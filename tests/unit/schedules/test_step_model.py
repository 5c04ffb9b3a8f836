"""Steps of schedules at every boundary, against a model that lists all occurrences."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product, takewhile
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dueline.core.clock import SECOND_US
from dueline.core.codec import decode, encode
from dueline.core.errors import BadInput
from dueline.schedules import schedule as definition
from dueline.schedules.schedule import (
    AHEAD_US,
    CATCH_UP_MAX,
    EVERY_US_MIN,
    LATE_US,
    OVERLAPS,
    TIMES_MAX,
    PlannedJob,
    Schedule,
    Skip,
    Template,
    Timing,
    check,
    last_times,
    step,
    times_after,
)

NOW_US = 1_000_000 * SECOND_US
TEMPLATE = Template("t", "q", 0, b"[]")
LAST_JOB = b"the job before"
UNIT_US = LATE_US // 6
"""Times are multiples of this, so that occurrences fall on each boundary."""


def timings() -> some.SearchStrategy[Timing]:
    """Return timings of each kind around the present, with and without an end."""
    at_us = some.integers(-30, 20).map(lambda n: NOW_US + n * UNIT_US)
    every_us = some.sampled_from([UNIT_US, 2 * UNIT_US, 6 * UNIT_US, 7 * UNIT_US])
    last_us = some.one_of(some.just(0), at_us)
    return some.one_of(
        some.builds(Timing, every_us=every_us, start_us=at_us, last_us=last_us),
        some.builds(Timing, at_us=at_us),
        some.builds(Timing, cron=some.sampled_from(["* * * * *", "*/2 * * * *"]), last_us=last_us),
    )


def all_times(timing: Timing) -> list[int]:
    """Return the occurrences up to ten minutes from the present."""
    end_us = min(NOW_US + 60 * UNIT_US, timing.last_us or NOW_US + 60 * UNIT_US)
    if timing.at_us:
        return [timing.at_us]
    if timing.every_us:
        return list(range(timing.start_us, end_us + 1, timing.every_us))
    minutes = 2 if "/2" in timing.cron else 1
    first_us = NOW_US - 60 * UNIT_US
    times = range(first_us - first_us % (minutes * LATE_US), end_us + 1, minutes * LATE_US)
    return [us for us in times if us > first_us]


some_us = some.integers(-40, 20).map(lambda n: NOW_US + n * UNIT_US)


@given(timings(), some_us, some_us, some.integers(1, 4))
def test_the_times_of_a_period_exclude_its_begin_and_include_its_end(
    timing: Timing, after_us: int, until_us: int, most: int
) -> None:
    times = [us for us in all_times(timing) if after_us < us <= until_us]
    assert list(takewhile(until_us.__ge__, times_after(timing, after_us))) == times
    assert last_times(timing, after_us, until_us, most) == times[-most:]


class Expected:
    """What a step does, by the documentation of schedules."""

    def __init__(self, schedule: Schedule, now_us: int, *, lives: bool) -> None:
        timing, taken = schedule.timing, schedule.taken_us
        open_us = [us for us in all_times(timing) if us > schedule.through_us and us not in taken]
        missed = [us for us in open_us if us <= now_us - LATE_US]
        kept = {"skip": 0, "last": 1, "all": timing.catch_up_max}[timing.catch_up]
        self.missed = missed[: max(0, len(missed) - kept)]
        come = missed[len(self.missed) :]
        come += [us for us in open_us if now_us - LATE_US < us <= now_us + AHEAD_US]
        if schedule.held_us:
            come.insert(0, schedule.held_us)
        self.stored, self.held_us, self.overlapping = come, 0, list[int]()
        if timing.overlap != "allow":
            self._alone(timing.overlap, come, max(now_us, schedule.held_us), lives=lives)

    def _alone(self, overlap: str, times: list[int], now_us: int, *, lives: bool) -> None:
        come = [us for us in times if us <= now_us]
        chosen = come[-1:] if overlap == "replace" else come[:1]
        self.overlapping = [us for us in come if us not in chosen]
        self.stored = [] if lives else (chosen or times[:1])
        if lives and overlap in ("wait", "replace"):
            self.held_us = chosen[0] if chosen else 0
        elif lives:
            self.overlapping = come
        elif overlap == "wait" and self.overlapping:
            self.held_us, *self.overlapping = self.overlapping


def expect_step(
    timing: Timing,
    *,
    through_us: int,
    taken: Sequence[int] = (),
    has_last: bool,
    lives: bool,
    is_held: bool,
) -> None:
    """Expect of a step what the documentation of schedules says."""
    overlap = timing.overlap
    later = [us for us in all_times(timing) if us > through_us]
    held_us = through_us if is_held and has_last and overlap in ("wait", "replace") else 0
    schedule = Schedule(
        TEMPLATE, timing, b"seed", through_us, stored=7, skipped=5,
        last=LAST_JOB if has_last else b"", held_us=held_us,
        taken_us=tuple(later[n] for n in sorted(set(taken)) if n < len(later)),
    )  # fmt: skip
    times, after = step(schedule, NOW_US, lambda job: lives and job == LAST_JOB)
    expected = Expected(schedule, NOW_US, lives=lives and has_last)
    assert times == expected.stored
    skips = [("missed", expected.missed), ("overlap", expected.overlapping)]
    if not (times or any(skipped for _, skipped in skips) or expected.held_us != held_us):
        assert after == schedule
        return
    assert after.held_us == expected.held_us
    assert after.untold == tuple(
        Skip(why, len(skipped), skipped[0], skipped[-1]) for why, skipped in skips if skipped
    )
    assert after.stored == 7 + len(times)
    assert after.skipped == 5 + sum(len(skipped) for _, skipped in skips)
    if overlap == "allow":
        assert (after.through_us, after.last) == (NOW_US + AHEAD_US, schedule.last)
    else:
        present_us = max(NOW_US, held_us, through_us)
        assert after.through_us == max([present_us, *times[:1]])
        assert after.last == (definition.job_id(schedule, times[0]) if times else schedule.last)
    replaces = overlap == "replace" and not times and expected.held_us != held_us
    assert after.ended == (schedule.last if replaces else b"")
    assert after.taken_us == tuple(us for us in schedule.taken_us if us > after.through_us)


@given(
    timing=timings(),
    overlap=some.sampled_from(OVERLAPS),
    catch_up=some.sampled_from(get_args(definition.CatchUp)),
    most=some.integers(1, 3),
    through_us=some.integers(-40, 6).map(lambda n: NOW_US + n * UNIT_US),
    taken=some.lists(some.integers(0, 30), max_size=2),
    has_last=some.booleans(),
    lives=some.booleans(),
    is_held=some.booleans(),
)
def test_a_step_stores_and_skips_what_the_documentation_says(
    *,
    timing: Timing,
    overlap: definition.Overlap,
    catch_up: definition.CatchUp,
    most: int,
    through_us: int,
    taken: Sequence[int],
    has_last: bool,
    lives: bool,
    is_held: bool,
) -> None:
    timing = replace(timing, overlap=overlap, catch_up=catch_up, catch_up_max=most)
    expect_step(
        timing, through_us=through_us, taken=taken, has_last=has_last, lives=lives, is_held=is_held
    )


@pytest.mark.parametrize("catch_up", get_args(definition.CatchUp))
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_so_does_each_step_after_few_occurrences(
    overlap: definition.Overlap, catch_up: definition.CatchUp
) -> None:
    timing = Timing(every_us=2 * UNIT_US, start_us=NOW_US - 40 * UNIT_US)
    timing = replace(timing, overlap=overlap, catch_up=catch_up, catch_up_max=2)
    either = (False, True)
    for since, has_last, lives, is_held in product(range(-16, 4), either, either, either):
        expect_step(
            timing,
            through_us=NOW_US + since * UNIT_US,
            has_last=has_last,
            lives=lives,
            is_held=is_held,
        )


BOUNDS = [
    Timing(every_us=EVERY_US_MIN),
    Timing(at_us=1),
    Timing(cron="* * * * *", until_us=1, times=1),
    Timing(cron="* * * * *", times=1),
    Timing(every_us=EVERY_US_MIN, times=TIMES_MAX),
    Timing(every_us=EVERY_US_MIN, until_us=5),
    *(Timing(every_us=EVERY_US_MIN, overlap=overlap) for overlap in OVERLAPS),
    *(Timing(every_us=EVERY_US_MIN, catch_up=policy) for policy in get_args(definition.CatchUp)),
    *(Timing(every_us=EVERY_US_MIN, catch_up_max=count) for count in (1, CATCH_UP_MAX)),
]
BEYOND = [
    Timing(every_us=EVERY_US_MIN - 1),
    Timing(),
    Timing(at_us=1, every_us=EVERY_US_MIN),
    Timing(at_us=1, cron="* * * * *"),
    Timing(at_us=1, until_us=5),
    Timing(at_us=1, times=1),
    *(Timing(every_us=EVERY_US_MIN, catch_up_max=count) for count in (-1, 0, CATCH_UP_MAX + 1)),
]


@pytest.mark.parametrize("timing", BOUNDS)
def test_values_at_the_bounds_are_allowed(timing: Timing) -> None:
    check(timing)


@pytest.mark.parametrize("timing", BEYOND)
def test_values_beyond_the_bounds_are_refused(timing: Timing) -> None:
    with pytest.raises(BadInput):
        check(timing)


@pytest.mark.parametrize(
    ("timing", "ends_us"),
    [
        (Timing(every_us=UNIT_US, start_us=NOW_US), 0),
        (Timing(every_us=UNIT_US, start_us=NOW_US, times=3), NOW_US + 3 * UNIT_US),
        (Timing(every_us=UNIT_US, start_us=NOW_US, until_us=NOW_US + 25), NOW_US + 25),
        (Timing(every_us=UNIT_US, until_us=NOW_US + UNIT_US, times=1), NOW_US + UNIT_US),
        (Timing(every_us=UNIT_US, until_us=NOW_US + 9 * UNIT_US, times=2), NOW_US + 2 * UNIT_US),
        (Timing(every_us=UNIT_US, until_us=NOW_US + UNIT_US, times=2), NOW_US + UNIT_US),
        (Timing(at_us=NOW_US + 5), NOW_US + 5),
    ],
)
def test_a_timing_is_stored_with_its_begin_and_its_last_time(timing: Timing, ends_us: int) -> None:
    stored = definition.anchored(timing, NOW_US, None)
    assert (stored.start_us, stored.end_us) == (timing.start_us or NOW_US, ends_us)
    assert stored.has_end() == bool(ends_us)
    later_us = NOW_US + 10 * UNIT_US
    assert definition.anchored(timing, later_us, stored) == stored  # it still counts from there
    changed = definition.anchored(replace(timing, catch_up="last"), later_us, stored)
    assert changed.start_us == (timing.start_us or later_us)
    for by_us in (ends_us - 1, ends_us, ends_us + 1):
        schedule = Schedule(TEMPLATE, stored, b"seed", NOW_US)
        times = [us for us in all_times(stored) if us > by_us]
        assert schedule.has_ended(by_us) == (bool(ends_us) and not times)
        assert not replace(schedule, held_us=NOW_US).has_ended(by_us)


def test_a_schedule_that_was_stored_without_optional_fields_means_the_same() -> None:
    """Fields that have their defaults are not stored."""
    schedule = Schedule(TEMPLATE, Timing(cron="0 * * * *"), b"seed", NOW_US)
    explicit = Schedule(
        Template(
            "t", "q", 0, b"[]", priority=0, tenant="", tags=(), expires_us=0, window_us=0,
            limits=(), terms=None, headers=(),
        ),
        Timing(
            "0 * * * *", zone="UTC", every_us=0, start_us=0, catch_up="skip", catch_up_max=100,
            overlap="allow", at_us=0, until_us=0, times=0, last_us=0,
        ),
        b"seed", NOW_US, is_paused=False, is_leaving=False, births=(), sent_us=0, recalled=(),
        stored=0, skipped=0, last=b"", untold=(), held_us=0, ended=b"", is_dynamic=False,
        recalled_us=(), taken_us=(),
    )  # fmt: skip
    assert decode(encode(schedule), Schedule) == schedule == explicit


def test_what_a_schedule_has_unfinished_is_one_of_these() -> None:
    plain = Schedule(TEMPLATE, Timing(every_us=UNIT_US, start_us=NOW_US), b"seed", NOW_US)
    assert not plain.is_sending()
    assert replace(plain, births=(PlannedJob(1, 2, 0, 3),)).is_sending()
    assert replace(plain, untold=(Skip("missed", 1, 2, 2),)).is_sending()


def test_the_jobs_of_a_changed_schedule_are_those_of_times_to_come() -> None:
    timing = Timing(every_us=UNIT_US, start_us=NOW_US)
    plain = Schedule(TEMPLATE, timing, b"seed", NOW_US + 3 * UNIT_US, taken_us=(5,))
    ids = {definition.job_id(plain, NOW_US + n * UNIT_US): NOW_US + n * UNIT_US for n in (1, 2, 3)}
    assert definition.withdrawn(plain, NOW_US) == ids
    recalled = replace(plain, recalled=(b"a", b"b"), recalled_us=(7, 8))
    assert definition.withdrawn(recalled, NOW_US) == {b"a": 7, b"b": 8} | ids
    for idle in (replace(recalled, is_paused=True), replace(recalled, is_leaving=True)):
        assert definition.withdrawn(idle, NOW_US) == {b"a": 7, b"b": 8}
    changed = definition.with_withdrawn(replace(plain, seed=b"new"), plain, NOW_US)
    assert (dict(zip(changed.recalled, changed.recalled_us, strict=True))) == ids
    assert changed.taken_us == plain.taken_us
    after = definition.after_recall(replace(changed, ended=b"e"), {b"x": 9}, b"z")
    assert (after.recalled, after.recalled_us, after.ended) == ((), (), b"")
    assert (after.taken_us, after.last) == ((5, 9), b"z")
    assert definition.after_recall(replace(changed, last=b"old"), {}, b"").last == b"old"


def test_the_next_time_and_its_decision_regard_what_is_handled_held_or_paused() -> None:
    timing = Timing(every_us=UNIT_US, start_us=NOW_US, overlap="wait", last_us=NOW_US + 3 * UNIT_US)
    plain = Schedule(TEMPLATE, timing, b"seed", NOW_US, taken_us=(NOW_US + UNIT_US,))
    next_us = NOW_US + 2 * UNIT_US
    assert definition.next_time(plain) == next_us
    assert definition.next_decision_us(plain, NOW_US) == next_us
    assert definition.next_decision_us(plain, next_us + 5) == next_us + 5
    assert definition.next_decision_us(replace(plain, held_us=NOW_US), NOW_US) == NOW_US
    none = [
        replace(plain, is_paused=True), replace(plain, is_leaving=True),
        replace(plain, timing=replace(timing, overlap="allow")),
        replace(plain, through_us=timing.last_us),
    ]  # fmt: skip
    assert [definition.next_decision_us(schedule, NOW_US) for schedule in none] == [None] * 4
    assert definition.coming(plain, NOW_US, 2) == [NOW_US + UNIT_US, next_us]
    assert definition.coming(none[0], NOW_US, 2) == []


def test_a_removed_schedule_is_needed_until_its_handled_times_are_late() -> None:
    timing = Timing(every_us=UNIT_US, start_us=NOW_US)
    schedule = Schedule(TEMPLATE, timing, b"seed", NOW_US, taken_us=(NOW_US - LATE_US, NOW_US))
    needed = [definition.is_needed(schedule, NOW_US + us) for us in (0, LATE_US - 1, LATE_US)]
    assert needed == [True, True, False]


def test_the_last_job_before_a_change_is_the_one_that_may_still_run() -> None:
    timing = Timing(every_us=UNIT_US, start_us=NOW_US)
    schedule = Schedule(TEMPLATE, timing, b"seed", NOW_US + 9 * UNIT_US, last=LAST_JOB)
    job = definition.job_id(schedule, NOW_US + 2 * UNIT_US)
    assert definition.before_change(schedule, NOW_US + 2 * UNIT_US) == job
    assert definition.before_change(schedule, NOW_US + 3 * UNIT_US - 1) == job
    assert definition.before_change(schedule, NOW_US - 1) == LAST_JOB
    alone = replace(schedule, timing=replace(timing, overlap="skip"))
    assert definition.before_change(alone, NOW_US + 2 * UNIT_US) == LAST_JOB


def test_a_held_time_that_is_given_up_counts_as_skipped() -> None:
    timing = Timing(every_us=UNIT_US, start_us=NOW_US, overlap="wait")
    schedule = Schedule(TEMPLATE, timing, b"seed", NOW_US, skipped=4, ended=b"e")
    assert definition.without_held(schedule) == schedule
    after = definition.without_held(replace(schedule, held_us=NOW_US))
    assert (after.held_us, after.ended, after.skipped) == (0, b"", 5)
    assert after.untold == (Skip("overlap", 1, NOW_US, NOW_US),)
