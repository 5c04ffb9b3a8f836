"""A schedule of another library, and cron expressions of it."""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from dueline.core.errors import BadInput
from dueline.schedules.schedule import CatchUp, Overlap

RANGES: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
"""First and last value of the fields of a cron expression."""

_INVALID: Final = re.compile(r"[^A-Za-z0-9_.:-]+")
_NAME_CHARACTERS_MAX: Final = 128
_SHORT: Final = 2
_ZONES: Final = "zoneinfo/"


@dataclass(frozen=True, slots=True)
class ForeignSchedule:
    """A schedule with the words of `app.schedules.set`.

    options: for `task.using(...)`. is_paused: to pause it again. refused: why it cannot be
    imported; empty if it can. note: what differs.
    """

    name: str
    task: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    cron: str | None = None
    every: timedelta | None = None
    at: datetime | None = None
    tz: str = "UTC"
    start: datetime | None = None
    until: datetime | None = None
    jitter: float | None = None
    catch_up: CatchUp = "skip"
    overlap: Overlap = "allow"
    options: Mapping[str, Any] = field(default_factory=dict)
    is_paused: bool = False
    refused: str = ""
    note: str = ""


def valid_name(text: str) -> str:
    """Return a name of a schedule for any text."""
    return _INVALID.sub("-", text).lstrip("_.:-")[:_NAME_CHARACTERS_MAX]


def check_started(start: datetime | None) -> None:
    """Raise BadInput if a schedule that is no interval starts later."""
    if start is not None and start > datetime.now(start.tzinfo):
        raise BadInput(f"It starts on {start}.", hint="Import it then.")


def cron_of(fields: Sequence[Collection[int]]) -> str:
    """Return the cron expression of sets of values.

    Args: fields: minutes, hours, days of the month, months, days of the week (0 is Sunday); all of
      them must hold.

    Raises: BadInput: days of the month and of the week are both restricted.
    """
    texts = [_text_of(values, *bounds) for values, bounds in zip(fields, RANGES, strict=True)]
    check_days(texts[2], texts[4])
    return " ".join(texts)


def check_days(day: str, weekday: str) -> None:
    """Raise BadInput if cron would run on either day, where both are meant."""
    if not day.startswith("*") and not weekday.startswith("*"):
        raise BadInput(
            f"It runs on days {day} that are weekdays {weekday}; cron would run on either.",
            hint='Use one of both in dueline, such as "mon#1" for the first Monday.',
        )


def _text_of(values: Collection[int], first: int, last: int) -> str:
    numbers = sorted(values)
    if len(numbers) == last - first + 1:
        return "*"
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 0
    if step > 1 and numbers == [*range(first, last + 1, step)]:
        return f"*/{step}"
    if step == 1 and len(numbers) > _SHORT and numbers == [*range(numbers[0], numbers[-1] + 1)]:
        return f"{numbers[0]}-{numbers[-1]}"
    return ",".join(map(str, numbers))


def local_zone() -> str:
    """Return the name of this machine's time zone, "UTC" if it has none."""
    place = os.environ.get("TZ") or str(Path("/etc/localtime").resolve())
    return place.rpartition(_ZONES)[2].removeprefix(":") if place != "/etc/localtime" else "UTC"
