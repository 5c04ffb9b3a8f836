"""How many jobs may start in a span of time."""

import random
from bisect import bisect_right
from dataclasses import replace

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput
from dueline.core.ids import Ids
from dueline.core.store import NO_VERSION
from dueline.limits.rate import (
    COUNT_MAX,
    GRAINS,
    KEEP_US,
    Meter,
    Rate,
    after_returning,
    after_start,
    after_taking,
    check_rate,
    define,
    forget,
    left,
    next_us,
    rates,
    read,
    write,
)
from dueline.stores.memory.store import MemoryStore
from tests.harness.clocks import HandClock

WINDOW = Rate(10, SECOND_US)
BUCKET = Rate(10, SECOND_US, burst=3)
NOW_US = 1_000 * SECOND_US
HOUR_US = 3600 * SECOND_US


def lead(rate: Rate, until_us: int, chance: random.Random, asked_max: int) -> list[int]:
    """Take what there is at random instants; give the instants, one for each that was taken."""
    meter, now_us, taken = Meter(), NOW_US, list[int]()
    while now_us < until_us:
        count = min(left(meter, rate, now_us), 1 + chance.randrange(asked_max))
        if count > 0:
            meter = after_taking(meter, rate, count, now_us)
            taken += [now_us] * count
            now_us += chance.randrange(rate.per_us // 50)
        else:
            assert next_us(meter, rate, now_us) > now_us  # or nobody would ever come further
            now_us = next_us(meter, rate, now_us)
            assert left(meter, rate, now_us) >= 1
    return taken


def most_within(taken: list[int], span_us: int) -> int:
    """Count the most that lie in a span of this length."""
    return max(bisect_right(taken, us + span_us - 1) - place for place, us in enumerate(taken))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_no_window_sees_more_and_an_hour_sees_all(seed: int) -> None:
    # F5: at most 1 % off over an hour
    taken = lead(WINDOW, NOW_US + HOUR_US, random.Random(seed), 12)
    assert most_within(taken, WINDOW.per_us) <= WINDOW.count
    assert len(taken) >= 36_000 * (1 - 1 / GRAINS - 0.01)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_a_bucket_lets_jobs_start_evenly_but_for_its_burst(seed: int) -> None:
    # F5
    taken = lead(BUCKET, NOW_US + HOUR_US, random.Random(seed), 2)
    assert most_within(taken, BUCKET.per_us) <= BUCKET.count + BUCKET.burst
    assert most_within(taken, BUCKET.per_us // BUCKET.count) <= BUCKET.burst
    assert 36_000 * 0.99 <= len(taken) <= 36_000 + BUCKET.burst


@pytest.mark.parametrize("rate", [WINDOW, BUCKET])
def test_what_is_given_back_can_be_taken_again(rate: Rate) -> None:
    all_of_it = left(Meter(), rate, NOW_US)
    meter = after_taking(Meter(), rate, all_of_it, NOW_US)
    assert left(meter, rate, NOW_US) == 0
    back = after_returning(meter, rate, 2, NOW_US, NOW_US)
    assert left(back, rate, NOW_US) == 2


def test_what_is_given_back_late_makes_no_room_where_others_took() -> None:
    # rule N5: what was taken first goes, and not what another took a moment ago.
    first = after_taking(Meter(), WINDOW, 4, NOW_US)
    then_us = NOW_US + WINDOW.per_us - 50_000
    both = after_taking(first, WINDOW, 6, then_us)
    back = after_returning(both, WINDOW, 4, NOW_US, then_us)
    assert left(back, WINDOW, then_us) == 4
    assert left(back, WINDOW, NOW_US + WINDOW.per_us + 10_000) == 4
    assert after_returning(back, WINDOW, 4, NOW_US, then_us) == back


@pytest.mark.parametrize("per_us", [10_000, SECOND_US, HOUR_US])
def test_a_window_has_a_bounded_number_of_parts_with_starts(per_us: int) -> None:
    """However often starts are taken, returned and counted anew."""
    rate, meter, chance = Rate(1000, per_us), Meter(), random.Random(3)
    now_us = NOW_US
    for _ in range(1_000):
        now_us += chance.randrange(per_us // 100)
        if left(meter, rate, now_us):
            before = sum(count for _, count in meter.taken)
            meter = after_taking(meter, rate, 1, now_us)
            lost = before + 1 - sum(count for _, count in meter.taken)
            assert 0 <= lost <= before
        late_us = now_us + chance.randrange(per_us // 2)
        taken = sum(count for _, count in meter.taken)
        if chance.random() < 0.3:
            meter = after_returning(meter, rate, 1, now_us, late_us)
            assert sum(count for _, count in meter.taken) == taken - 1
        elif chance.random() < 0.5:
            meter = after_start(meter, rate, now_us, late_us)
            assert sum(count for _, count in meter.taken) == taken
            now_us = late_us
        assert all(count > 0 for _, count in meter.taken)
        assert all(at_us % (per_us // GRAINS) == 0 for at_us, _ in meter.taken)
        assert len(meter.taken) <= GRAINS + GRAINS // 2 + 2


def test_a_take_counts_until_its_part_is_a_period_old() -> None:
    meter = after_taking(Meter(), WINDOW, 10, NOW_US)
    end_us = NOW_US + WINDOW.per_us
    assert [left(meter, WINDOW, us) for us in (end_us - 1, end_us)] == [0, 10]
    assert next_us(meter, WINDOW, NOW_US) == end_us
    closed = replace(meter, closed_us=end_us + 5)
    assert [left(closed, WINDOW, us) for us in (end_us + 4, end_us + 5)] == [0, 10]
    assert next_us(closed, WINDOW, NOW_US) == end_us + 5


def test_who_does_not_know_the_time_well_forgets_nothing_for_others() -> None:
    # rule N5: what a worker writes is read by those who know that it is earlier.
    then_us = NOW_US + WINDOW.per_us - 20_000
    first = after_taking(Meter(), WINDOW, 4, NOW_US)
    both = after_taking(first, WINDOW, 1, then_us + 100_000, earliest_us=then_us - 100_000)
    assert left(both, WINDOW, then_us) == 5


def test_a_bucket_is_given_back_less_by_what_would_have_flowed_over() -> None:
    # rule N5: without what was taken it would have been full until another took.
    first = after_taking(Meter(), BUCKET, 2, NOW_US)
    then_us = NOW_US + SECOND_US
    both = after_taking(first, BUCKET, 3, then_us)
    assert after_returning(both, BUCKET, 2, NOW_US, then_us) == both
    soon_us = NOW_US + 20_000
    both = after_taking(first, BUCKET, 1, soon_us)
    back = after_returning(both, BUCKET, 2, NOW_US, soon_us)
    assert back == after_taking(Meter(), BUCKET, 1, soon_us)


def test_a_bucket_holds_no_more_than_its_burst_however_long_it_rests() -> None:
    assert left(Meter(), BUCKET, NOW_US) == 3
    assert left(Meter(full_us=NOW_US - HOUR_US), BUCKET, NOW_US) == 3


def test_a_meter_is_kept_as_long_as_it_says_something() -> None:
    clock, ids = HandClock(), Ids()
    store = MemoryStore(clock)
    now_us = store.clock_us()
    meter = after_taking(Meter(), WINDOW, 4, now_us)
    assert write(store, "mail:a", meter, WINDOW, expect=NO_VERSION, ids=ids)
    assert not write(store, "mail:a", Meter(), WINDOW, expect=NO_VERSION, ids=ids)
    assert read(store, "mail:a")[0] == meter
    clock.advance(us=2 * SECOND_US)
    assert read(store, "mail:a")[0] == meter  # for those who read it earlier
    clock.advance(us=KEEP_US)
    assert read(store, "mail:a") == (Meter(), NO_VERSION)


def test_nothing_is_taken_on_a_reading_from_before_another_took() -> None:
    # rule N5
    clock, ids = HandClock(), Ids()
    store = MemoryStore(clock)
    now_us = store.clock_us()
    nothing, version = read(store, "mail:a")
    other = after_taking(Meter(), WINDOW, 4, now_us)
    assert write(store, "mail:a", other, WINDOW, expect=version, ids=ids)
    clock.advance(us=WINDOW.per_us * 3 // 4)
    mine = after_taking(nothing, WINDOW, 4, store.clock_us())
    clock.advance(us=WINDOW.per_us // 2)  # the write takes long, and what the other took is over
    assert not write(store, "mail:a", mine, WINDOW, expect=version, ids=ids)


def test_a_rate_is_set_and_forgotten() -> None:
    store, ids = MemoryStore(HandClock()), Ids()
    define(store, "mail", WINDOW, ids=ids)
    define(store, "mail", BUCKET, ids=ids)
    assert rates(store) == {"mail": BUCKET}
    forget(store, "mail")
    assert rates(store) == {}


@pytest.mark.parametrize(
    ("count", "per_us", "burst"),
    [(0, 1_000_000, None), (1.5, 1_000_000, None), (COUNT_MAX + 1, 1_000_000, None), (1, 1, None),
     (1, 10**12, None), (1, 1_000_000, 0), (True, 1_000_000, None)],
)  # fmt: skip
def test_a_rate_that_cannot_be_is_refused(count: object, per_us: int, burst: object) -> None:
    with pytest.raises(BadInput):
        check_rate("mail", count, per_us, burst)
    with pytest.raises(BadInput):
        check_rate("Mail", 1, SECOND_US)
