"""Names of limits.

A limit is the name of a semaphore or rate, optionally followed by a colon and a key, such as
"host:{host}", where {host} is an argument of the call. Each key is limited by itself.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

from dueline.core.call_options import check_fields, fields_of
from dueline.core.constraints import check_value, integer
from dueline.core.errors import BadInput

LIMITS_MAX: Final = 8
KEY_CHARACTERS_MAX: Final = 200
CAPACITY_MAX: Final = 1_000_000

_SEMAPHORE: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_WHAT: Final = "limit"
_Capacity = Annotated[int, integer(0, CAPACITY_MAX)]


def semaphore_of(limit: str) -> str:
    """Return the semaphore or rate of a limit: "host" for "host:example.org"."""
    return limit.partition(":")[0]


def check_semaphore(name: object, capacity: object = 1) -> None:
    """Raise BadInput if a semaphore's name or capacity is invalid."""
    if not isinstance(name, str) or not _SEMAPHORE.fullmatch(name):
        raise BadInput(
            f"{name!r:.80} is not a valid limit name.",
            hint="Use a lower-case letter, then up to 62 of a-z 0-9 _ -.",
        )
    check_value(capacity, _Capacity, "capacity")


def read_limits(limits: object, names: Iterable[str], task: str) -> tuple[str, ...]:
    """Return the limits of a task; their braces name its arguments.

    Raises: BadInput: a limit is invalid, or there are too many.
    """
    if isinstance(limits, str) or not isinstance(limits, Iterable):
        raise BadInput(
            f"`limits` must be a list of strings (got {limits!r:.80}).",
            hint='Use limits=["warehouse"].',
        )
    read = tuple(limits)
    if len(read) > LIMITS_MAX:
        raise BadInput(
            f"`limits` must have at most {LIMITS_MAX} items (got {len(read)}).",
            hint=f"Use at most {LIMITS_MAX}.",
        )
    for limit in read:
        if not isinstance(limit, str):
            raise BadInput(
                f"A limit must be a string (got {limit!r:.80}).", hint='Use limits=["warehouse"].'
            )
        check_semaphore(semaphore_of(limit))
        check_fields(limit, _WHAT, names, task)
    return read


def is_same_for_all(limits: Sequence[str]) -> bool:
    """Return whether all calls have the same limits."""
    return not any(fields_of(limit, _WHAT) for limit in limits)


def limits_of_call(limits: Sequence[str], arguments: Mapping[str, object]) -> tuple[str, ...]:
    """Return the limits of one call.

    Raises: BadInput: a key is empty, too long, or has control characters.
    """
    named = tuple(
        limit.format(**{name: arguments[name] for name in fields_of(limit, _WHAT)})
        for limit in limits
    )
    for name in named:
        _, colon, key = name.partition(":")
        if (colon and not key) or len(key) > KEY_CHARACTERS_MAX or not key.isprintable():
            raise BadInput(
                f"The limit {name!r:.80} has an invalid key.",
                hint=f"Use a key of 1 to {KEY_CHARACTERS_MAX} printable characters.",
            )
    return named
