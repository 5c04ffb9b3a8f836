"""What jobs need of the worker that runs them, and what workers have.

A need is a label, such as region=eu, or a number of units of a resource, such as gpu=1. The jobs of
a lane have the same needs, so a worker claims from a lane only if it has them (rule Y1).
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from dueline.core.errors import BadInput
from dueline.core.job import Job
from dueline.core.lane import NEEDS_MARK, Lane, needs_text

NEEDS_MAX: Final = 8
HAS_MAX: Final = 32
UNITS_MAX: Final = 2**53
RESERVE_S: Final = 30
"""How long smaller jobs pass one that needs more of a worker's resources than is free."""

ENVIRONMENT: Final = "DUELINE_HAS"
"""Variable with what a worker has, as in `gpu=1,region=eu`, if its options name nothing."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_.-]{0,62}")
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@+-]{0,62}")
_UNITS: Final = re.compile(r"[0-9]{1,16}")
_SIZE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?([KMGT]i?)B")
_BYTES: Final = {
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGT", 1)},
    **{letter: 1000**power for power, letter in enumerate("KMGT", 1)},
}

Pairs = tuple[tuple[str, str], ...]
"""Names and values, sorted; a value of digits is a number of units."""

Has = Mapping[str, int | str]
"""What a worker has: numbers of units of resources and labels, by name."""


class Needed(NamedTuple):
    """What each job of a lane needs: labels, and units of resources, by name."""

    labels: Mapping[str, str]
    units: Mapping[str, int]


def read_needs(needs: object) -> Pairs:
    """Return the needs of a task or call.

    Raises:
        BadInput: A name or value is invalid, or there are none or too many.
    """
    pairs = _read(needs, "needs", 'Use needs={"gpu": 1, "region": "eu", "memory": "2 GiB"}.')
    if not 0 < len(pairs) <= NEEDS_MAX:
        raise BadInput(
            f"`needs` must have 1 to {NEEDS_MAX} items (got {len(pairs)}).",
            hint="Leave it out if any worker may run the job.",
        )
    if none := [name for name, value in pairs if value.strip("0") == ""]:
        raise BadInput(f"A job cannot need 0 of {none[0]}.", hint="Leave it out.")
    return pairs


def read_has(has: object) -> Has:
    """Return what a worker has.

    Raises:
        BadInput: A name or value is invalid, or there are too many.
    """
    pairs = _read(has, "has", 'Use has={"gpu": 1, "region": "eu", "memory": "64 GiB"}.')
    if len(pairs) > HAS_MAX:
        raise BadInput(
            f"`has` must have at most {HAS_MAX} items (got {len(pairs)}).",
            hint=f"Use at most {HAS_MAX}.",
        )
    return shown(pairs)


def _read(given: object, what: str, hint: str) -> Pairs:
    if not isinstance(given, Mapping):
        raise BadInput(f"`{what}` must be a dict (got {given!r:.80}).", hint=hint)
    read: dict[str, str] = {}
    for name, value in given.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadInput(
                f"{name!r:.80} is not a valid name in `{what}`.",
                hint="Use a lower-case letter, then up to 62 of a-z 0-9 _ . -",
            )
        read[name] = _value(name, value, what)
    return tuple(sorted(read.items()))


def _value(name: str, value: object, what: str) -> str:
    units: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        units = value
    elif isinstance(value, str) and _UNITS.fullmatch(value):
        units = int(value)
    elif isinstance(value, str) and (size := _SIZE.fullmatch(value)):
        units = round(float(size[1]) * _BYTES[size[2]])
    elif isinstance(value, str) and _LABEL.fullmatch(value):
        return value
    if units is None or not 0 <= units <= UNITS_MAX:
        raise BadInput(
            f"`{what}` has an invalid value of {name} (got {value!r:.80}).",
            hint='Use a whole number such as 1, a size such as "2 GiB", or a word such as "eu".',
        )
    return str(units)


def text_of(pairs: Pairs) -> str:
    """Return needs as a lane names them, and as people read them: gpu=1,region=eu."""
    return ",".join(f"{name}={value}" for name, value in pairs)


def pairs_of(text: str) -> Pairs:
    """Return needs from their text."""
    parts = (part.partition("=") for part in text.split(",") if part)
    return tuple((name, value) for name, _, value in parts)


def shown(pairs: Pairs) -> dict[str, int | str]:
    """Return needs by name, as callers write them."""
    return {name: int(value) if value.isdigit() else value for name, value in pairs}


def words_of(has: Has) -> tuple[str, ...]:
    """Return what a worker has as words, such as gpu=1."""
    return tuple(f"{name}={value}" for name, value in sorted(has.items()))


@lru_cache(1024)
def needed_in(text: str) -> Needed:
    """Return the needs that a lane names."""
    needs = shown(pairs_of(text))
    return Needed(
        {name: value for name, value in needs.items() if isinstance(value, str)},
        {name: value for name, value in needs.items() if isinstance(value, int)},
    )


def needed_by(lane: Lane) -> Needed:
    """Return what each job of a lane needs."""
    return needed_in(needs_text(lane))


def lacking(lane: Lane, has: Has) -> tuple[str, ...]:
    """Return the needs of a lane that a worker does not have, even when it runs nothing."""
    if NEEDS_MARK not in lane.tenant:
        return ()
    labels, units = needed_by(lane)
    return (
        *(f"{name}={value}" for name, value in labels.items() if has.get(name) != value),
        *(f"{name}={count}" for name, count in units.items() if _units(has, name) < count),
    )


def covers(has: Has, other: Has) -> bool:
    """Return whether a worker has all that another one has, or more."""
    return all(
        has.get(name) == value if isinstance(value, str) else _units(has, name) >= value
        for name, value in other.items()
    )


def _units(has: Has, name: str) -> int:
    value = has.get(name, 0)
    return 0 if isinstance(value, str) else value


def used_by(jobs: Iterable[Job]) -> Counter[str]:
    """Return how many units of resources jobs use together."""
    used: Counter[str] = Counter()
    for job in jobs:
        if NEEDS_MARK in job.lane.tenant:
            used.update(needed_by(job.lane).units)
    return used
