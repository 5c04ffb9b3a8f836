"""Calls that are wrong."""

from collections.abc import Callable

from dueline import BadInput


def refusal(call: Callable[..., object], *args: object) -> BadInput | None:
    """Return the error of a call, or none when the call is accepted."""
    try:
        call(*args)
    except BadInput as error:
        return error
    return None
