"""Estimates of starts, and the intervals that their errors make (V10)."""

import heapq
import random

import pytest
from hypothesis import given, strategies

from dueline.core.clock import SECOND_US
from dueline.foresight.forecast import (
    CHECKED_MIN,
    NEAREST,
    Error,
    Forecast,
    Line,
    error_of,
    estimate,
    forecast_of,
)

NOW_US = 1_000 * SECOND_US


def simulated(servers: int, busy: int, rows: list[tuple[int, int]], due_us: int) -> int:
    """Start jobs of one second one by one, as real servers do."""
    free = [NOW_US] * (servers - busy) + [NOW_US + SECOND_US] * busy
    heapq.heapify(free)
    for at_us, took_us in sorted(rows):
        heapq.heappush(free, max(at_us, NOW_US, heapq.heappop(free)) + took_us)
    return max(free[0], due_us, NOW_US)


@given(
    strategies.integers(1, 6),
    strategies.data(),
    strategies.lists(strategies.integers(-5, 40), max_size=40),
)
def test_an_estimate_is_close_to_what_servers_do(
    servers: int, data: strategies.DataObject, ats: list[int]
) -> None:
    busy = data.draw(strategies.integers(0, servers))
    due_us = NOW_US + max([0, *ats]) * SECOND_US
    rows = [(NOW_US + at_s * SECOND_US, SECOND_US) for at_s in ats]
    line = Line(servers, busy, SECOND_US, rows)
    expected_us = simulated(servers, busy, rows, due_us)
    assert abs(line.start_us(NOW_US, due_us) - expected_us) <= SECOND_US


def test_the_slowest_line_decides() -> None:
    slots = Line(8, 8, SECOND_US, [(0, SECOND_US)] * 8)
    permits = Line(1, 1, SECOND_US, [(0, SECOND_US)] * 8)
    found = estimate([slots, permits], now_us=NOW_US, due_us=0)
    assert (found.base_us, found.wait_us, found.kind) == (NOW_US, 9 * SECOND_US, "limited")


def test_a_closed_limit_lets_nothing_start_before_it_opens() -> None:
    line = Line(4, 0, SECOND_US, [], NOW_US + 60 * SECOND_US)
    assert line.start_us(NOW_US, 0) == NOW_US + 60 * SECOND_US


def test_few_errors_make_no_forecast() -> None:
    one = estimate([Line(1, 1, SECOND_US, [])], now_us=NOW_US, due_us=0)
    exact = Error(SECOND_US, 1.0)
    assert forecast_of(one, {one.kind: [exact] * (CHECKED_MIN - 1)}) is None
    assert forecast_of(one, {"ready": [exact] * 10, "later": [exact] * 10}) is None
    start_us = NOW_US + SECOND_US
    assert forecast_of(one, {"ready": [exact] * 20}) == Forecast(start_us, start_us, start_us, 20)


def test_the_interval_covers_four_fifths_of_starts() -> None:
    chance = random.Random(4)
    one = estimate([Line(1, 1, 30 * SECOND_US, [])], now_us=NOW_US, due_us=0)
    covered = 0
    for _ in range(1_000):
        waits = [round(chance.lognormvariate(0, 0.6) * one.wait_us) for _ in range(61)]
        errors = [Error(one.wait_us, error_of(one.wait_us, wait)) for wait in waits[:-1]]
        found = forecast_of(one, {one.kind: errors})
        assert found is not None
        covered += found.earliest_us <= NOW_US + waits[-1] <= found.latest_us
    assert 770 < covered < 830


def test_errors_of_similar_waits_count() -> None:
    short, long = (Error(wait_us, error) for wait_us, error in ((SECOND_US, 3.0), (10**9, 1.0)))
    one = estimate([Line(1, 1, SECOND_US, [])], now_us=NOW_US, due_us=0)
    found = forecast_of(one, {one.kind: [short, long] * NEAREST})
    assert found is not None
    assert found.expected_us == found.earliest_us > NOW_US + 2 * SECOND_US


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (0, "expected start 14:03:20, between 14:02:50 and 14:05:11 (80 %)"),
        (
            1,
            (
                "expected start 2026-01-02 14:03:20, between 2026-01-02 14:02:50 and "
                "2026-01-02 14:05:11 (80 %)"
            ),
        ),
    ],
)
def test_a_forecast_reads_as_times(days: int, text: str) -> None:
    noon_us = 1_767_268_800 * SECOND_US
    base_us = noon_us + days * 86_400 * SECOND_US + 2 * 3600 * SECOND_US
    start_us, first_us, last_us = (base_us + us for us in (200_400_000, 170_900_000, 310_200_000))
    found = Forecast(start_us, first_us, last_us, checked=50)
    assert found.text(noon_us) == text
