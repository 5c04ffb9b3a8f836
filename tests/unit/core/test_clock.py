"""Whose time decides."""

import time
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueline.core.clock import (
    DAY_US,
    SECOND_US,
    StoreTime,
    SystemClock,
    duration_us,
    to_datetime,
    to_us,
)
from dueline.core.errors import StoreUnavailable
from tests.harness.clocks import NOW_US, HandClock

ALLOWANCE_US = 1000
"""A job may start so much before its time (invariant 4)."""


class Server:
    """A store on another machine: true time passes there, and calls take a while.

    The machine that asks has a clock of its own, `skew_us` ahead and drifting.
    """

    def __init__(self, *, skew_us: int = 0, drift_ppm: int = 0) -> None:
        self.true = HandClock()
        self.machine = HandClock(NOW_US + skew_us, monotonic_us=12_345, drift_ppm=drift_ppm)
        self.there_us, self.back_us = 0, 0
        self.asked = 0
        self.is_down = False

    def pass_us(self, us: int) -> None:
        """Let time pass everywhere."""
        self.true.advance(us=us)
        self.machine.advance(us=us)

    def read_us(self) -> int:
        """Answer the store's clock, as a call over the network does."""
        self.asked += 1
        if self.is_down:
            raise StoreUnavailable
        self.pass_us(self.there_us)
        answer = self.true.wall_us()
        self.pass_us(self.back_us)
        return answer

    def time(self) -> StoreTime:
        return StoreTime(self.read_us, self.machine)


@pytest.mark.parametrize("skew_s", [-600, 0, 600])
def test_a_machine_ten_minutes_off_knows_the_stores_time(skew_s: int) -> None:
    # T11
    server = Server(skew_us=skew_s * SECOND_US)
    server.there_us, server.back_us = 3000, 1000
    estimate = server.time()
    server.pass_us(5 * SECOND_US)
    earliest_us, latest_us = estimate.earliest_us(), estimate.latest_us()
    assert earliest_us <= server.true.wall_us() <= latest_us
    assert latest_us - earliest_us == 4000
    assert abs(estimate.skew_us() - skew_s * SECOND_US) <= 2000


@given(
    st.integers(-(10**9), 10**9),
    st.lists(
        st.tuples(st.integers(0, 50_001), st.integers(0, 50_001), st.integers(0, 70 * SECOND_US)),
        min_size=1,
        max_size=12,
    ),
)
def test_the_true_time_lies_between_earliest_and_latest_whatever_calls_take(
    skew_us: int, calls: list[tuple[int, int, int]]
) -> None:
    # T11, invariant 4
    server = Server(skew_us=skew_us)
    estimate = server.time()
    for server.there_us, server.back_us, passed_us in calls:
        server.pass_us(passed_us)
        earliest_us = estimate.earliest_us()
        assert earliest_us <= server.true.wall_us()
        assert estimate.latest_us() >= server.true.wall_us()
        estimate.sample()
        assert estimate.earliest_us() <= server.true.wall_us() <= estimate.latest_us()


@pytest.mark.parametrize("drift_ppm", [-100, -10, 10, 100])
def test_a_machine_whose_clock_drifts_is_never_early(drift_ppm: int) -> None:
    # T1, T11: quartz drifts by up to 100 ppm; a reading is renewed before that is 1 ms
    server = Server(drift_ppm=drift_ppm)
    server.there_us = server.back_us = 100
    estimate = server.time()
    for _ in range(2000):
        server.pass_us(333_333)
        assert estimate.earliest_us() <= server.true.wall_us() + ALLOWANCE_US
        assert estimate.latest_us() >= server.true.wall_us() - ALLOWANCE_US


def test_a_jump_of_the_machines_clock_changes_nothing() -> None:
    server = Server()
    estimate = server.time()
    before_us = estimate.earliest_us()
    for seconds in (3600, -7200):
        server.machine.jump(seconds)
        assert estimate.earliest_us() == before_us
    assert estimate.skew_us() == -3600 * SECOND_US


def test_the_reading_with_the_least_delay_is_kept() -> None:
    server = Server()
    estimate = server.time()
    server.there_us, server.back_us = 400, 400
    estimate.sample()
    server.there_us, server.back_us = 0, 90_000
    estimate.sample()
    assert estimate.latest_us() - estimate.earliest_us() == 800
    server.there_us, server.back_us = 10, 10
    estimate.sample()
    assert estimate.latest_us() - estimate.earliest_us() == 20


def test_the_store_is_asked_once_a_while_not_each_time() -> None:
    # O3
    server = Server()
    estimate = server.time()
    for _ in range(1000):
        estimate.earliest_us()
        estimate.latest_us()
        server.pass_us(1000)
    assert server.asked == 1


def test_an_old_reading_is_replaced_even_by_a_worse_one() -> None:
    server = Server()
    estimate = server.time()
    estimate.earliest_us()
    server.pass_us(11 * SECOND_US)
    server.back_us = 5000
    estimate.earliest_us()
    assert server.asked == 2
    assert estimate.latest_us() - estimate.earliest_us() == 5000


# --- instants and spans ----------------------------------------------------------------------


@pytest.mark.slow
@given(st.datetimes(timezones=st.timezones()))
def test_an_instant_keeps_its_microseconds_in_any_zone(instant: datetime) -> None:
    assert to_datetime(to_us(instant)) == instant.astimezone(UTC)


@pytest.mark.parametrize(
    ("instant", "us"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(2026, 1, 1, tzinfo=UTC), NOW_US),
        (datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), NOW_US),
        (datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Vilnius"), fold=0), None),
    ],
)
def test_known_instants(instant: datetime, us: int | None) -> None:
    assert to_us(instant) == (us if us is not None else round(instant.timestamp()) * SECOND_US)


def test_fold_selects_the_repeated_hour() -> None:
    first = datetime(2026, 10, 25, 3, 30, tzinfo=ZoneInfo("Europe/Vilnius"))
    assert to_us(first.replace(fold=1)) - to_us(first) == 3600 * SECOND_US


@pytest.mark.parametrize(
    ("span", "us"),
    [
        (1, SECOND_US),
        (0.25, 250_000),
        (1e-6, 1),
        (-1.5, -1_500_000),
        (timedelta(days=1, microseconds=1), DAY_US + 1),
        (timedelta(microseconds=-1), -1),
    ],
)
def test_spans_are_seconds_or_timedeltas(span: timedelta | float, us: int) -> None:
    assert duration_us(span) == us


def test_the_machines_own_clocks_tell_its_time() -> None:
    clock = SystemClock()
    before_s, before_us = time.time(), clock.monotonic_us()
    clock.sleep(0.001)
    assert abs(clock.wall_us() / SECOND_US - before_s) < 60
    assert 1000 <= clock.monotonic_us() - before_us < 60 * SECOND_US


@pytest.mark.parametrize("drift_ppm", [-100, 0, 100])
def test_time_goes_on_while_the_store_does_not_answer(drift_ppm: int) -> None:
    server = Server(drift_ppm=drift_ppm)
    estimate = server.time()
    estimate.sample()
    server.is_down = True
    for _ in range(60):
        server.pass_us(10 * SECOND_US)
        true_us = server.true.wall_us()
        assert estimate.earliest_us() <= true_us + ALLOWANCE_US
        assert estimate.latest_us() >= true_us - ALLOWANCE_US
    assert estimate.latest_us() - estimate.earliest_us() < SECOND_US
    server.is_down = False
    server.pass_us(2 * SECOND_US)
    assert estimate.latest_us() - estimate.earliest_us() == 0


def test_a_store_that_does_not_answer_is_asked_once_a_second() -> None:
    server = Server()
    estimate = server.time()
    estimate.sample()
    server.is_down = True
    server.pass_us(11 * SECOND_US)
    for _ in range(10):
        estimate.latest_us()
        server.pass_us(SECOND_US // 10)
    assert server.asked == 2


def test_a_store_that_never_answered_has_no_time() -> None:
    server = Server()
    server.is_down = True
    with pytest.raises(StoreUnavailable):
        server.time().latest_us()


@pytest.mark.parametrize(("instant_us", "year"), [(2**63 - 1, 9999), (-(2**63), 1)])
def test_a_time_beyond_the_calendar_is_its_end(instant_us: int, year: int) -> None:
    assert to_datetime(instant_us).year == year


# --- wall clocks that are set ----------------------------------------------------------------


@pytest.mark.parametrize("jump_s", [7200, -7200, 1])
def test_a_clock_that_is_set_and_set_back_counts_only_meanwhile(jump_s: int) -> None:
    clock = HandClock()
    time = StoreTime(clock.wall_us, clock)
    assert time.latest_us() == NOW_US
    clock.jump(jump_s)
    clock.advance(2)
    assert time.latest_us() == clock.wall_us()
    clock.advance(5)
    clock.jump(-jump_s)
    clock.advance(2)
    assert time.earliest_us() == time.latest_us() == clock.wall_us() == NOW_US + 9 * SECOND_US


def test_a_clock_that_is_slewed_is_read_as_often_as_before() -> None:
    server = Server(drift_ppm=500)
    estimate = server.time()
    estimate.earliest_us()
    for _ in range(9):
        server.pass_us(SECOND_US)
        estimate.earliest_us()
    assert server.asked == 1
