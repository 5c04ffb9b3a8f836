"""Durations and timestamps as strings."""

import re

from dueline.core.clock import DAY_US, SECOND_US, SPAN_US_MAX, to_datetime
from dueline.core.errors import BadInput, ConfigError

_UNITS_US = {
    "ms": 1000,
    "s": SECOND_US,
    "m": 60 * SECOND_US,
    "h": 3600 * SECOND_US,
    "d": DAY_US,
    "w": 7 * DAY_US,
}
_TIMEOUT_US_MIN = SECOND_US // 10
_TIMEOUT_US_MAX = 600 * SECOND_US
"""Bounds of the option `timeout=` of a store's URL, in microseconds."""

_LEASE_TIMEOUT_US_MIN = SECOND_US

_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d|w)")
_SPAN = re.compile(rf"(?:{_PART.pattern}){{1,6}}")


def parse_span(text: str) -> int:
    """Return a duration such as 90s, 10m, 2h, 3d or 1h30m in microseconds.

    A number without a unit counts seconds.

    Raises: BadInput: the string is not a duration, or longer than a million days.
    """
    spelt = text if text[-1:].isalpha() else f"{text}s"
    if not _SPAN.fullmatch(spelt):
        raise BadInput(f"{text!r:.80} is not a duration.", hint="Use 90s, 10m, 2h, 3d or 1h30m.")
    span_us = sum(round(float(number) * _UNITS_US[unit]) for number, unit in _PART.findall(spelt))
    if span_us > SPAN_US_MAX:
        raise BadInput(f"The duration {text!r} is too long.", hint="Use at most a million days.")
    return span_us


def timeout_us(text: str) -> int:
    """Return the option `timeout=` of a store's URL, in microseconds.

    Raises: ConfigError: the string is not a duration, or not from 100 ms to 10 minutes.
    """
    try:
        span_us = parse_span(text)
    except BadInput as error:
        raise ConfigError(
            f"timeout={text!r} is not a duration.", hint="Use timeout=10s."
        ) from error
    if not _TIMEOUT_US_MIN <= span_us <= _TIMEOUT_US_MAX:
        raise ConfigError(
            f"timeout={text!r} is out of range.", hint="Use a duration from 100ms to 10m."
        )
    return span_us


def lease_timeout_us(lease_us: int, most_us: int) -> int:
    """Return the time limit of a store's calls that follows a lease, in microseconds: a third.

    Args:
      lease_us: The shortest lease of the process, in microseconds.
      most_us: The time limit without a lease; no lease makes it longer.
    """
    return min(most_us, max(_LEASE_TIMEOUT_US_MIN, lease_us // 3))


def span_text(span_us: int, *, units: int = 2) -> str:
    """Return a duration in its largest units: 1h30m, 12s, 40ms."""
    span_us = abs(span_us)
    if span_us < SECOND_US:
        return f"{span_us // 1000}ms"
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        number, span_us = divmod(span_us, _UNITS_US[unit])
        if number:
            parts.append(f"{number}{unit}")
        elif parts:
            break
    return "".join(parts[:units])


def distance_text(instant_us: int, now_us: int, *, units: int = 2) -> str:
    """Return a timestamp relative to now: in 5m, 3s ago, now."""
    if abs(instant_us - now_us) < SECOND_US // 2:
        return "now"
    span = span_text(instant_us - now_us, units=units)
    return f"in {span}" if instant_us > now_us else f"{span} ago"


def instant_text(instant_us: int) -> str:
    """Return a timestamp as ISO 8601 in UTC, to the second: 2027-01-01T00:00:00Z."""
    return to_datetime(instant_us).strftime("%Y-%m-%dT%H:%M:%SZ")


def exact_text(instant_us: int) -> str:
    """Return a timestamp as ISO 8601 in UTC, to the microsecond."""
    return to_datetime(instant_us).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
