"""Names of limits.

A limit is the name of a semaphore or rate, optionally followed by a colon and a key, such as
"host:{host}", where {host} is an argument of the call. Each key is limited by itself.
For the units that jobs take, see `limit_costs`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

from dueline.core.call_options import check_fields, fields_of
from dueline.core.constraints import check_value, integer
from dueline.core.errors import BadInput
from dueline.core.lane import COST_MARK
from dueline.core.limit_costs import UNITS_MAX, CostedLimit, costed, with_units

LIMITS_MAX: Final = 8
KEY_CHARACTERS_MAX: Final = 200
CAPACITY_MAX: Final = UNITS_MAX

_SEMAPHORE: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_WHAT: Final = "limit"
_Capacity = Annotated[int, integer(0, CAPACITY_MAX)]


def semaphore_of(limit: str) -> str:
    """Return the semaphore or rate of a limit: "host" for "host:example.org"."""
    return limit.partition(":")[0].partition(COST_MARK)[0]


def has_key(limit: str) -> bool:
    """Return whether this is one key of a semaphore or rate."""
    return ":" in limit


def check_limit(name: object, capacity: object = 1) -> None:
    """Raise BadInput if the name of a limit, or of one of its keys, or a capacity is invalid."""
    if isinstance(name, str) and has_key(name):
        _check_key(name)
        name = semaphore_of(name)
    check_semaphore(name, capacity)


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

    Args: limits: names, or names and what each job takes of them, see `limit_costs.Cost`.

    Raises: BadInput: a limit is invalid, or there are too many.
    """
    names = tuple(names)
    if isinstance(limits, str) or not isinstance(limits, Iterable):
        raise BadInput(
            f"`limits` must be a list of strings (got {limits!r:.80}).",
            hint='Use limits=["warehouse"], or limits={"gpu": 2}.',
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
    if isinstance(limits, Mapping):
        return tuple(costed(limit, limits[limit], names, task) for limit in read)
    return read


def is_same_for_all(limits: Sequence[str]) -> bool:
    """Return whether all calls have the same limits."""
    return not any(
        fields_of(limit, _WHAT) or (isinstance(limit, CostedLimit) and limit.is_computed)
        for limit in limits
    )


def limits_of_call(limits: Sequence[str], arguments: Mapping[str, object]) -> tuple[str, ...]:
    """Return the limits of one call.

    Raises: BadInput: a key is empty, too long, or has control characters; or a cost is invalid.
    """
    named: list[str] = []
    for limit in limits:
        name = limit.format(**{name: arguments[name] for name in fields_of(limit, _WHAT)})
        _check_key(name)
        if isinstance(limit, CostedLimit):
            name = with_units(name, limit.cost, arguments)
        named.append(name)
    return tuple(named)


def _check_key(name: str) -> None:
    _, colon, key = name.partition(":")
    if (colon and not key) or len(key) > KEY_CHARACTERS_MAX or not key.isprintable():
        raise BadInput(
            f"The limit {name!r:.80} has an invalid key.",
            hint=f"Use a key of 1 to {KEY_CHARACTERS_MAX} printable characters.",
        )
