"""When to look for work again."""

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.errors import Conflict, StoreReplaced, StoreUnavailable
from dueline.core.wakeup import FALLBACK_US, GAP_US_MAX_WITHOUT_WAKEUPS
from dueline.worker.backoff import (
    BACK_OFF_S,
    BUSY_AGE_US_MIN,
    BUSY_SHARE,
    DO_ALL_US,
    GAP_US_MIN,
    JITTER,
    LISTING_AGE_US_MAX,
    LISTING_SHARE,
    PollTimer,
    StoreBackoff,
)
from tests.harness.clocks import HandClock

NOW_US = 10**12


def gaps_us(pace: PollTimer, looks: int, now_us: int = NOW_US) -> list[int]:
    """Look as soon as it is time to, so many times; answer the gaps."""
    gaps = []
    for _ in range(looks):
        assert pace.is_due(now_us)
        pace.polled(now_us, now_us)
        gaps.append(pace.wait_us(now_us))
        assert not pace.is_due(now_us + gaps[-1] - 1)
        now_us += gaps[-1]
    return gaps


def test_looks_that_find_nothing_grow_rarer_up_to_the_most() -> None:
    # O4
    assert gaps_us(PollTimer(GAP_US_MAX_WITHOUT_WAKEUPS, lambda: 0.0), 5) == [
        50_000, 100_000, 200_000, 250_000, 250_000,
    ]  # fmt: skip
    assert gaps_us(PollTimer(FALLBACK_US, lambda: 0.0), 10)[-3:] == [FALLBACK_US] * 3


@pytest.mark.parametrize("chance", [0.0, 0.3, 0.999])
def test_chance_cuts_a_gap_short_and_never_makes_it_longer(chance: float) -> None:
    # O4: workers do not look all at once
    for gap_us in gaps_us(PollTimer(FALLBACK_US, lambda: chance), 12)[7:]:
        assert gap_us == round(FALLBACK_US * (1 - JITTER * chance))


def test_the_mean_gap_keeps_a_hundred_idle_workers_below_25_looks_a_second() -> None:
    # O3
    mean_s = FALLBACK_US * (1 - JITTER / 2) / 1e6
    assert 100 / mean_s < 25
    assert FALLBACK_US < 5_000_000


@pytest.mark.parametrize(
    ("took_us", "age_us"),
    [
        (0, BUSY_AGE_US_MIN),
        (1_000, BUSY_SHARE * 1_000),
        (8_000, LISTING_AGE_US_MAX),
        (LISTING_AGE_US_MAX, LISTING_SHARE * LISTING_AGE_US_MAX),
    ],
)
def test_where_work_was_found_the_next_look_is_soon(took_us: int, age_us: int) -> None:
    # T3: a more urgent job is seen within a listing age
    pace = PollTimer(FALLBACK_US, lambda: 0.0)
    gaps_us(pace, 10)
    now_us = NOW_US + 10**9
    pace.polled(now_us, now_us + took_us)
    pace.found()
    assert pace.wait_us(now_us) == age_us
    now_us += age_us
    assert gaps_us(pace, 2, now_us) == [GAP_US_MIN, 2 * GAP_US_MIN]


def test_long_polls_stay_rare_when_the_worker_is_woken_meanwhile() -> None:
    # T3: of lists that take two seconds to read, however old the last poll is
    pace = PollTimer(FALLBACK_US, lambda: 0.0)
    pace.polled(NOW_US, NOW_US + 2_000_000)
    assert not pace.is_due(NOW_US + LISTING_SHARE * 2_000_000 - 1)
    assert pace.is_due(NOW_US + LISTING_SHARE * 2_000_000)


def test_who_has_work_and_is_told_of_more_looks_soon_and_not_at_once() -> None:
    # T3
    pace = PollTimer(FALLBACK_US, lambda: 0.0)
    pace.polled(NOW_US, NOW_US + 1_000)
    pace.found()
    pace.notified_while_busy()
    assert pace.wait_us(NOW_US) == BUSY_AGE_US_MIN
    pace.polled(NOW_US, NOW_US + BUSY_AGE_US_MIN)
    pace.found()
    pace.notified_while_busy()
    assert pace.wait_us(NOW_US) == 5 * BUSY_AGE_US_MIN  # a fifth of the time
    pace.polled(NOW_US, NOW_US)
    pace.notified()
    pace.notified_while_busy()
    assert pace.is_due(NOW_US)


def test_who_is_called_looks_at_once_and_again_if_that_fails() -> None:
    pace = PollTimer(FALLBACK_US, lambda: 0.0)
    gaps_us(pace, 10)
    pace.polled(NOW_US, NOW_US)
    pace.notified()
    assert pace.is_due(NOW_US)
    assert pace.wait_us(NOW_US) == 0
    pace.polled(NOW_US, NOW_US)
    assert not pace.is_due(NOW_US)


@pytest.mark.parametrize("took_us", [200_000, 2_000_000])
def test_looks_that_take_long_do_not_take_all_the_time(took_us: int) -> None:
    # 100,000 lanes
    pace = PollTimer(FALLBACK_US, lambda: 0.0)
    ended_us = NOW_US + took_us
    pace.polled(NOW_US, ended_us)
    pace.found()
    assert pace.wait_us(ended_us) == 4 * took_us
    pace.notified()
    assert pace.wait_us(ended_us) == took_us


def test_a_look_in_which_the_process_stood_still_does_not_put_off_the_next() -> None:
    # found by a simulated life: after 60 s of it, the next look was 300 s away
    pace = PollTimer(FALLBACK_US, lambda: 0.0)
    ended_us = NOW_US + 60_000_000
    pace.polled(NOW_US, ended_us)
    assert pace.wait_us(ended_us) == 0


# --- while the store is unavailable ----------------------------------------------------------


def fail() -> None:
    raise StoreUnavailable("away")


def test_the_pauses_grow_while_steps_fail_and_start_again_after_one_that_succeeds() -> None:
    clock, done = HandClock(), list[str]()
    backoff = StoreBackoff(clock)
    for _ in range(8):
        assert not backoff.do(fail)
    assert clock.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    assert BACK_OFF_S == (0.1, 2.0)
    assert backoff.do(lambda: done.append("done"))
    assert done == ["done"]
    assert not backoff.do(fail)
    assert clock.slept[8:] == [0.1]


def test_a_step_within_a_failing_one_does_not_start_the_pauses_again() -> None:
    clock = HandClock()
    backoff = StoreBackoff(clock)

    def step() -> None:
        assert backoff.do(lambda: None)
        raise Conflict("it keeps changing")

    assert [backoff.do(step), backoff.do(step)] == [False, False]
    assert clock.slept == [0.1, 0.2]


def test_a_store_that_was_replaced_ends_the_loop() -> None:
    clock = HandClock()
    backoff = StoreBackoff(clock)

    def step() -> None:
        raise StoreReplaced("another file")

    with pytest.raises(StoreReplaced):
        backoff.do(step)
    assert clock.slept == []
    assert backoff.do(lambda: None)
    assert not backoff.do(fail)
    assert backoff.do(lambda: None)
    assert not backoff.do(fail)
    assert clock.slept == [0.1, 0.1]


@pytest.mark.parametrize(
    ("takes_us", "fails", "runs"),
    [
        (2 * DO_ALL_US, False, True),
        (0, True, True),
        (DO_ALL_US - SECOND_US // 10, True, True),  # with the pause after it
        (DO_ALL_US - SECOND_US // 10 + 1, True, False),
    ],
)
def test_the_last_steps_are_run_unless_the_store_has_failed_for_long(
    takes_us: int, *, fails: bool, runs: bool
) -> None:
    clock, done = HandClock(), list[int]()

    def first() -> None:
        clock.advance(us=takes_us)
        if fails:
            fail()

    StoreBackoff(clock).do_all([first, lambda: done.append(2), lambda: done.append(3)])
    assert done == ([2, 3] if runs else [])
