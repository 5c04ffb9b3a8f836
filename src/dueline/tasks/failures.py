"""Failures of handlers, from the exceptions that they raise."""

from datetime import timedelta
from typing import Final, cast

from dueline.core.attempt import Failed
from dueline.core.clock import duration_us
from dueline.core.errors import BadInput
from dueline.core.retry import WAIT_US_MAX
from dueline.core.user_code import describe, raise_interrupt
from dueline.tasks.handler import Handler
from dueline.tasks.raised import InvalidWait, RetryRequested

TRACEBACK_CHARACTERS_MAX: Final = 16 * 1024

_NO_EXCEPTION: Final = "exceptions must derive from BaseException"
"""What Python says of `raise Retry(...)`."""


def failure(error: BaseException, handler: Handler) -> Failed:
    """Describe an exception: without local variables, and with the innermost part of the traceback.

    An exception that raises when it is read is described, too.
    """
    # Arguments that do not fit, and results that cannot be encoded, fail on every attempt.
    policy, kind = handler.retry, type(error)
    is_asked = issubclass(kind, RetryRequested)
    retry = is_asked or (policy.wants(error) and not _is_of_its_input(kind))
    cause = error.__cause__ if is_asked else None  # the cause decides on the policy
    case = policy.case_of(error if cause is None else cause) if policy.per_error else 0
    name, text, traceback = describe(error)
    if is_asked:  # where it asked is of no interest, but what it had caught may be
        traceback = describe(cause)[2] if cause is not None else ""
    if kind is TypeError and text == _NO_EXCEPTION:
        text += ". A Retry is a policy: write `ctx.retry(after=30)`, or @app.task(retry=...)"
    wait_us = _retry_after_us(error)
    attempts = cast("RetryRequested", error).attempts if is_asked else 0
    shown = traceback[-TRACEBACK_CHARACTERS_MAX:]
    return Failed(name, text, shown, retry, wait_us, case, attempts=attempts)


def _is_of_its_input(kind: type[BaseException]) -> bool:
    return issubclass(kind, BadInput) and not issubclass(kind, InvalidWait)


def _retry_after_us(error: BaseException) -> int | None:
    """Return how long an error asks to wait; None if it does not, or the value is out of range."""
    try:
        wait = getattr(error, "retry_after", None)
        if isinstance(wait, bool) or not isinstance(wait, (int, float, timedelta)):
            return None
        wait_us = duration_us(wait)
    except BaseException as raised:  # noqa: BLE001  (see `contain`)
        raise_interrupt(raised)
        return None
    return wait_us if 0 <= wait_us <= WAIT_US_MAX else None
