"""Clocks, and the estimate of the store's time."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Final, NamedTuple, Protocol

from dueline.core.errors import BadInput, StoreUnavailable
from dueline.core.user_code import text_of

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
DRIFT = 5_000  # a bad quartz is off by 1/10,000; twice that, for both clocks
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

BEHIND_US: Final = 5 * SECOND_US
"""Maximum time that a producer's clock may be behind, such that its rows are found soon."""

_WAIT_S = (0.005, 0.25)  # the first pause between two polls, and the longest


class Clock(Protocol):
    """A machine's clock; passed in, so that tests and the simulation can replace it."""

    def wall_us(self) -> int:
        """Read the wall clock: microseconds UTC since 1970."""
        ...

    def monotonic_us(self) -> int:
        """Read the monotonic clock, in microseconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Sleep for some seconds."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def wall_us(self) -> int:
        """Read the wall clock: microseconds UTC since 1970."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        """Read the monotonic clock, in microseconds."""
        return time.monotonic_ns() // 1000

    def sleep(self, seconds: float) -> None:
        """Sleep for some seconds."""
        time.sleep(seconds)


ROUGH_US: Final = 60 * SECOND_US
"""How long a reading serves what may be some milliseconds off: a quartz drifts 6 ms meanwhile."""

JUMP_US_MIN: Final = 50_000
"""A wall clock that moved more than this against the monotonic one was set, not slewed."""


class StoreTime:
    """The store's time as this process estimates it.

    Keeps the difference (store - own monotonic) from the round trip with the least delay, so that
    a machine whose wall clock is minutes off neither starts a job early nor loses one (rule L3).
    A reading is replaced when it is older than `renew_us`, since clocks drift: 100 ppm, bad for a
    quartz, are 1 ms in 10 s, the allowance of invariant 4. It is replaced at once when this
    machine's wall clock was set, since that may be the store's clock too. While the store does
    not answer, the last reading stays in use with a growing error.

    `about_us` and `skew_us` use a reading for ROUGH_US: they serve reports, which may be a few
    milliseconds off.
    """

    def __init__(
        self, read_store_us: Callable[[], int], clock: Clock, *, renew_us: int = 10 * SECOND_US
    ) -> None:
        self._read_store_us = read_store_us
        self._clock = clock
        self._renew_us = renew_us
        self._kept: _Reading | None = None  # replaced as one: threads share this
        self._again_us = 0

    def sample(self) -> None:
        """Read the store's clock once; keep the reading if it is the most accurate."""
        sent = self._clock.monotonic_us()
        store_us = self._read_store_us()
        came = self._clock.monotonic_us()
        error_us = (came - sent + 1) // 2
        wall_us = self._clock.wall_us() - came
        kept = self._kept
        if (
            kept is None
            or error_us <= kept.error_us
            or came - kept.taken_us > self._renew_us
            or abs(wall_us - kept.wall_us) > JUMP_US_MIN
        ):
            self._kept = _Reading(store_us - (sent + came) // 2, error_us, came, wall_us)

    def _reading(self, renew_us: int | None = None) -> tuple[int, "_Reading"]:
        """Return the own monotonic time, and the reading with its present error.

        renew_us: Maximum age of the reading, if it is not the usual one.
        """
        renew_us, kept = renew_us or self._renew_us, self._kept
        if kept is None:
            self.sample()
            kept = self._kept
            assert kept is not None
            return self._clock.monotonic_us(), kept
        now_us = self._clock.monotonic_us()
        has_jumped = abs(self._clock.wall_us() - now_us - kept.wall_us) > JUMP_US_MIN
        if now_us - kept.taken_us <= renew_us and not has_jumped:
            return now_us, kept
        if now_us >= self._again_us:
            self._again_us = now_us + SECOND_US  # other threads need not wait for the same answer
            with suppress(StoreUnavailable):
                self.sample()
                kept = self._kept or kept
        overdue_us = max(0, now_us - kept.taken_us - self._renew_us)
        error_us = kept.error_us + overdue_us // DRIFT
        return self._clock.monotonic_us(), kept._replace(error_us=error_us)

    def earliest_us(self) -> int:
        """Return the earliest possible time of the store; claims use it."""
        now_us, kept = self._reading()
        return now_us + kept.offset_us - kept.error_us

    def latest_us(self) -> int:
        """Return the latest possible time of the store; deadlines count from it."""
        now_us, kept = self._reading()
        return now_us + kept.offset_us + kept.error_us

    def about_us(self) -> int:
        """Return the most likely time of the store, to a few milliseconds."""
        now_us, kept = self._reading(ROUGH_US)
        return now_us + kept.offset_us

    def skew_us(self) -> int:
        """Return how far this wall clock is ahead of the store's (negative: behind)."""
        now_us, kept = self._reading(ROUGH_US)
        return self._clock.wall_us() - now_us - kept.offset_us


class _Reading(NamedTuple):
    """The store's time minus the monotonic clock, with an error, at `taken_us`.

    wall_us: this machine's wall clock minus its monotonic clock at that time.
    """

    offset_us: int
    error_us: int
    taken_us: int
    wall_us: int


def to_us(instant: datetime) -> int:
    """Return an aware datetime as microseconds UTC, without rounding through a float."""
    return (instant - EPOCH) // timedelta(microseconds=1)


def to_datetime(instant_us: int) -> datetime:
    """Return microseconds UTC as an aware datetime, clamped to the range of datetime.

    A stored row can hold any number, and showing the row must not fail on it.
    """
    try:
        return EPOCH + timedelta(microseconds=instant_us)
    except OverflowError:
        end, start = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
        return end if instant_us > 0 else start


SPAN_US_MAX = 1_000_000 * DAY_US
"""Maximum duration; stores keep 64-bit timestamps."""


def duration_us(span: timedelta | float) -> int:
    """Return a timedelta or a number of seconds as microseconds.

    Raises: BadInput: the value is of another type, not finite, or longer than a million days.
    """
    seconds: object = span
    if isinstance(seconds, timedelta):
        span_us = seconds // timedelta(microseconds=1)
    elif isinstance(seconds, int | float) and not isinstance(seconds, bool):
        try:
            span_us = round(seconds * SECOND_US)
        except (ValueError, OverflowError) as error:
            raise BadInput(
                f"{span!r:.80} is not a duration.", hint="Use a finite number of seconds."
            ) from error
    else:
        raise BadInput(
            f"{span!r:.80} is not a duration.", hint="Use a timedelta, or a number of seconds."
        )
    if abs(span_us) > SPAN_US_MAX:
        text = text_of(span)[:80]
        raise BadInput(f"The duration {text} is too long.", hint="Use at most a million days.")
    return span_us


def asked_instant_us(instant: object, name: str) -> int:
    """Return the aware datetime of the argument `name` as microseconds UTC."""
    if not isinstance(instant, datetime) or instant.tzinfo is None or instant.utcoffset() is None:
        raise BadInput(
            f"`{name}` must be a datetime with a time zone (got {instant!r:.80}).",
            hint="Use datetime.now(UTC), or datetime(2027, 1, 1, tzinfo=ZoneInfo(...)).",
        )
    return to_us(instant)


def asked_span_us(span: object, name: str) -> int:
    """Return the duration of the argument `name`, a timedelta or seconds, as microseconds."""
    if isinstance(span, bool) or not isinstance(span, (int, float, timedelta)):
        raise BadInput(
            f"`{name}` must be a timedelta or a number of seconds (got {span!r:.80}).",
            hint="Use 30, or timedelta(minutes=5).",
        )
    text = text_of(span)[:80]
    try:
        span_us = duration_us(span)
    except BadInput as error:
        raise BadInput(
            f"`{name}` must be from 0 to a million days (got {text}).", hint=error.hint
        ) from error
    if span_us < 0:
        raise BadInput(f"`{name}` must be 0 or more (got {text}).", hint="Use 0 or more.")
    return span_us


def pauses(clock: Clock, timeout: timedelta | float | None) -> Iterator[float]:
    """Yield the seconds to wait before each poll: 0 before the first, then until the time is over.

    Args: timeout: total duration; None for no limit.

    Raises: BadInput: the timeout is of another type, or not finite.
    """
    give_up_us = inf if timeout is None else clock.monotonic_us() + duration_us(timeout)
    pause_s, most_s = _WAIT_S
    yield 0.0
    while (left_us := give_up_us - clock.monotonic_us()) > 0:
        yield min(pause_s, left_us / SECOND_US)
        pause_s = min(pause_s * 1.5, most_s)
