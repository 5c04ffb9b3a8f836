"""Which limits a call has.

A limit is a semaphore's name, or its name, a colon and a key: jobs of each key are limited by
themselves, as by "host:{host}", where {host} stands for the call's argument of that name.
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
    """Name the semaphore, or the rate, of a limit: "host" of "host:example.org"."""
    return limit.partition(":")[0]


def check_semaphore(name: object, capacity: object = 1) -> None:
    """Let a semaphore's name and capacity pass, or say what is wrong with them."""
    if not isinstance(name, str) or not _SEMAPHORE.fullmatch(name):
        raise BadInput(
            f"{name!r:.80} is no semaphore's name.",
            hint="Use a lower-case letter, then up to 62 of a-z 0-9 _ -.",
        )
    check_value(capacity, _Capacity, "capacity")


def read_limits(limits: object, names: Iterable[str], task: str) -> tuple[str, ...]:
    """Read the limits of a task; their braces name arguments that it has.

    Raises: BadInput: they are no such texts, or too many.
    """
    if isinstance(limits, str) or not isinstance(limits, Iterable):
        raise BadInput(f"limits={limits!r:.80} is no list.", hint='Write limits=["warehouse"].')
    read = tuple(limits)
    if len(read) > LIMITS_MAX:
        raise BadInput(f"These are {len(read)} limits.", hint=f"Use at most {LIMITS_MAX}.")
    for limit in read:
        if not isinstance(limit, str):
            raise BadInput(f"The limit {limit!r:.80} is no text.", hint='Write ["warehouse"].')
        check_semaphore(semaphore_of(limit))
        check_fields(limit, _WHAT, names, task)
    return read


def is_same_for_all(limits: Sequence[str]) -> bool:
    """Tell whether all calls have the very same limits."""
    return not any(fields_of(limit, _WHAT) for limit in limits)


def limits_of_call(limits: Sequence[str], arguments: Mapping[str, object]) -> tuple[str, ...]:
    """Name what limits one call.

    Raises: BadInput: a key comes out empty, too long, or with control characters.
    """
    named = tuple(
        limit.format(**{name: arguments[name] for name in fields_of(limit, _WHAT)})
        for limit in limits
    )
    for name in named:
        _, colon, key = name.partition(":")
        if (colon and not key) or len(key) > KEY_CHARACTERS_MAX or not key.isprintable():
            raise BadInput(
                f"The limit {name!r:.80} cannot be kept.",
                hint=f"Use a key of 1 to {KEY_CHARACTERS_MAX} printable characters.",
            )
    return named
