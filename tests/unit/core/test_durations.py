"""Time as people write it."""

import pytest

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.durations import distance_text, exact_text, instant_text, parse_span, span_text
from dueline.core.errors import BadInput


@pytest.mark.parametrize(
    ("text", "span_us"),
    [
        ("90s", 90 * SECOND_US),
        ("10m", 600 * SECOND_US),
        ("2h", 7200 * SECOND_US),
        ("3d", 3 * DAY_US),
        ("1w", 7 * DAY_US),
        ("1h30m", 5400 * SECOND_US),
        ("250ms", SECOND_US // 4),
        ("1.5s", 1_500_000),
        ("30", 30 * SECOND_US),
        ("1m30", 90 * SECOND_US),
        ("0", 0),
    ],
)
def test_a_length_of_time_is_read(text: str, span_us: int) -> None:
    assert parse_span(text) == span_us


@pytest.mark.parametrize(
    "text", ["", "x", "10x", "-5s", "5 s", "1h 30m", "s", "1e3s", "٣s", "9" * 400]
)
def test_what_is_no_length_of_time_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not a duration"):
        parse_span(text)


def test_a_time_beyond_all_calendars_is_refused() -> None:
    assert parse_span("1000000d") == 1_000_000 * DAY_US
    with pytest.raises(BadInput, match="is too long"):
        parse_span("999999999999w999999999999w")


@pytest.mark.parametrize(
    ("span_us", "text"),
    [
        (0, "0ms"),
        (40_000, "40ms"),
        (SECOND_US, "1s"),
        (90 * SECOND_US, "1m30s"),
        (3600 * SECOND_US, "1h"),
        (3601 * SECOND_US, "1h"),
        (DAY_US + 3600 * SECOND_US + 5, "1d1h"),
        (-90 * SECOND_US, "1m30s"),
    ],
)
def test_a_length_of_time_is_written_in_two_units(span_us: int, text: str) -> None:
    assert span_text(span_us) == text


def test_one_unit_is_enough_in_a_table() -> None:
    assert span_text(90 * SECOND_US, units=1) == "1m"


def test_a_distance_has_a_direction() -> None:
    assert distance_text(100 * SECOND_US, 10 * SECOND_US) == "in 1m30s"
    assert distance_text(10 * SECOND_US, 100 * SECOND_US) == "1m30s ago"
    assert distance_text(10 * SECOND_US, 10 * SECOND_US + 9) == "now"


def test_instants_are_written_in_utc() -> None:
    assert instant_text(SECOND_US + 5) == "1970-01-01T00:00:01Z"
    assert exact_text(SECOND_US + 5) == "1970-01-01T00:00:01.000005Z"
