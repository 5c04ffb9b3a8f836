"""What handlers raise to say what becomes of their jobs."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from dueline.core.clock import asked_span_us
from dueline.core.errors import BadInput, DuelineError
from dueline.core.retry import WAIT_US_MAX
from dueline.core.user_code import text_of


class InvalidWait(BadInput):
    """The wait that a handler asked for is out of range: a failure that is retried as others."""


def asked_wait_us(wait: object, name: str) -> int:
    """Return the wait that a handler asked for, from 0 to ten years."""
    try:
        wait_us = asked_span_us(wait, name)
    except BadInput as error:
        raise InvalidWait(error.message, hint=error.hint) from error
    if wait_us > WAIT_US_MAX:
        raise InvalidWait(
            f"`{name}` must be at most ten years (got {wait!r:.80}).", hint="It is in seconds."
        )
    return wait_us


class Snooze(DuelineError):
    """Raised in a handler: run this job again later; no attempt is spent.

    Raises:
        BadInput: The wait is negative, not a number, or longer than ten years. In a handler, this
            is a failure that is retried as others.
    """

    def __init__(
        self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> None:
        parts = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days}
        try:
            if bool in map(type, parts.values()):
                raise TypeError("a truth value is no number")  # noqa: TRY301  (see below)
            total = timedelta(**parts)
        except (TypeError, ValueError, OverflowError) as error:
            shown = ", ".join(f"{key}={text_of(part)[:40]}" for key, part in parts.items() if part)
            raise InvalidWait(
                f"The wait must be from 0 to ten years (got {shown}).", hint="Use Snooze(30)."
            ) from error
        self.after_us = asked_wait_us(total, "seconds")
        super().__init__(f"Snoozed for {self.after_us / 1e6:g} s.")


class Throttled(Snooze):
    """Raised in a handler: run this job again later, and suspend its limits until then.

    For responses such as "429, retry after 30 seconds": no job with one of these limits starts
    until then, in any worker. No attempt is spent, and running jobs continue. Limits are suspended
    for a day at most: the worker logs a warning if more is asked for. An adaptive limit is lowered.
    """

    @classmethod
    def from_headers(cls, headers: Mapping[str, str], *, default: float = 1) -> Self:
        """Return the exception for a response, with the wait that its Retry-After header asks for.

        The header has seconds or an HTTP date, which counts from the Date header of the response.

        Args: headers: of the response, by name in any case. default: seconds to wait if the header
          is missing or cannot be read. Waits longer than a day are a day.
        """
        lower = {name.lower(): value for name, value in headers.items()}
        wait_s = _header_wait_s(lower.get("retry-after", ""), lower.get("date", ""))
        return cls(min(_WAIT_S_MAX, default if wait_s is None else wait_s))


_WAIT_S_MAX: Final = 86_400


def _header_wait_s(retry_after: str, date: str) -> float | None:
    """Return the seconds of a Retry-After header; None if it cannot be read."""
    with suppress(ValueError, OverflowError):
        if retry_after.strip().isdecimal():
            return float(retry_after)
        from email.utils import parsedate_to_datetime  # noqa: PLC0415  (megabytes, seldom needed)

        until = parsedate_to_datetime(retry_after)
        since = parsedate_to_datetime(date) if date else datetime.now(UTC)
        return max(0.0, until.timestamp() - since.timestamp())
    return None


class RetryRequested(DuelineError):
    """Raised by `ctx.retry`: this attempt failed, and the job runs again later."""

    retry_after: float | timedelta | None = None
    attempts = 0


class Cancel(DuelineError):
    """Raised in a handler: cancel this job, without a result."""
