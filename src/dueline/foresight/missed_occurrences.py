"""Schedules whose occurrences were skipped, or whose last job expired before it started.

Pure functions, which `alert_engine` applies.
"""

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import NamedTuple

from dueline.core.durations import instant_text
from dueline.foresight.alerts import Condition


class Occurrences(NamedTuple):
    """What became of the occurrences of a schedule.

    Attributes:
      name: The schedule.
      skipped: Number of skipped ones since it exists.
      expired_us: Time of the last one whose deadline has passed, if its job expired; otherwise 0.
    """

    name: str
    skipped: int
    expired_us: int = 0


def look_at(
    before: Mapping[str, int] | None, schedules: Sequence[Occurrences], queue: str
) -> tuple[dict[str, int], list[Condition]]:
    """Return what to keep of the schedules of a queue, and the conditions of those that missed.

    Args:
      before: What the last call kept; None if there was none.
      schedules: The schedules whose jobs are in the queue.
      queue: The queue.
    """
    known = before or {}
    missed = [
        _condition(queue, schedule, more)
        for schedule in schedules
        if (more := schedule.skipped - known.get(schedule.name, schedule.skipped)) > 0
        or schedule.expired_us
    ]
    return {schedule.name: schedule.skipped for schedule in schedules}, missed


def _condition(queue: str, schedule: Occurrences, more: int) -> Condition:
    sentences = []
    if more > 0:
        times = "1 occurrence" if more == 1 else f"{more} occurrences"
        sentences.append(f"{times} of the schedule {schedule.name} ran no job.")
    if schedule.expired_us:
        at = instant_text(schedule.expired_us)
        sentences.append(f"The job of {schedule.name} of {at} expired before it started.")
    return Condition(
        "schedule",
        queue,
        schedule.name,
        " ".join(sentences),
        f"dueline schedules show {quote(schedule.name)}",
        {"skipped": max(0, more), "expired_us": schedule.expired_us},
    )
