"""Dead letters that grow: by how many jobs became dead-letter jobs, and by what was usual.

What is counted while an alert is raised is not usual, as for tasks that fail (`failing_tasks`).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import sqrt
from operator import attrgetter
from shlex import quote
from typing import Final

from dueline.core.attempt import read_epitaph
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.engine import Engine
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane, bucket_of, dead_queue
from dueline.core.retry import is_uncertain
from dueline.core.text import one_line
from dueline.foresight.alerts import Condition
from dueline.foresight.rates import WINDOWS_US, Sums

DEAD_MIN: Final = 10.0
"""Minimum number of new dead-letter jobs of the last five minutes."""

JUMP: Final = 3.0
DEVIATIONS: Final = 4.0
"""There must be JUMP times as many as usual, and by this number of standard deviations more."""

HELD_SHARE: Final = 0.1
"""Part of the rate that raised an alert, from which newer ones hold it."""

SETTLED_US: Final = 2 * SECOND_US
"""Rows of the last moments are counted later: they are stored after the time of the death."""

LANES_MAX: Final = 500
ROWS_MAX: Final = 1_000
"""Maximum number of lanes of a queue, and of rows of a lane, that are counted at a time."""

UNCERTAIN_US: Final = 300 * SECOND_US
"""How long the last job that is uncertain holds the alert."""

_WINDOW: Final = 1
_ERROR_CHARACTERS_MAX: Final = 120


@dataclass(frozen=True, slots=True)
class DeadPast:
    """The dead-letter jobs of a queue before now.

    Attributes:
      at_us: Until when they are counted.
      sums: How many became dead; by the day, those while no alert was raised.
      rate: Number in a second that raised the present alert; 0 while none is raised.
      grows: Whether the alert is held by what was counted last.
      tasks: Number of the last ones, by task.
      error: Of the last one.
      uncertain: Number of those that ended in sections that must not repeat, while the alert for
        them is raised. uncertain_us: When the last one of them was counted.
    """

    at_us: int
    sums: Sums = field(default_factory=Sums)
    rate: float = 0.0
    grows: bool = False
    tasks: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    uncertain: int = 0
    uncertain_us: int = 0


def look_at(
    engine: Engine, queue: str, before: DeadPast | None, *, is_raised: bool, now_us: int
) -> tuple[DeadPast, list[Condition]]:
    """Count the new dead-letter jobs of a queue; return what to keep, and the condition if any."""
    until_us = now_us - SETTLED_US
    if before is None or until_us <= before.at_us:
        return before or DeadPast(until_us), []
    rows = _counted(engine, queue, before.at_us, until_us)
    tasks = Counter(row.task for row in rows)
    last = max(rows, key=attrgetter("at_us")).error if rows else ""
    error = one_line(read_epitaph(last)[0])[:_ERROR_CHARACTERS_MAX] or before.error
    past = after(before, tasks, error, until_us, is_raised=is_raised)
    past = _with_uncertain(past, before, sum(is_uncertain(row.error) for row in rows))
    return past, [
        *([_condition(queue, past)] if past.grows else []),
        *([_of_uncertain(queue, past)] if past.uncertain else []),
    ]


def _with_uncertain(past: DeadPast, before: DeadPast, more: int) -> DeadPast:
    """Count jobs that are uncertain, until none was counted for UNCERTAIN_US."""
    last_us = past.at_us if more else before.uncertain_us
    is_held = past.at_us - last_us <= UNCERTAIN_US
    return replace(past, uncertain=before.uncertain + more if is_held else 0, uncertain_us=last_us)


def _of_uncertain(queue: str, past: DeadPast) -> Condition:
    what = "job ended in a section that must not repeat, and waits"
    if past.uncertain > 1:
        what = "jobs ended in sections that must not repeat, and wait"
    return Condition(
        "uncertain",
        queue,
        "",
        f"{past.uncertain} {what} for an operator.",
        f"dueline jobs list --state uncertain --queue {quote(queue)}",
        {"uncertain": past.uncertain},
    )


def after(
    before: DeadPast, tasks: Mapping[str, int], error: str, at_us: int, *, is_raised: bool
) -> DeadPast:
    """Return the past with what was counted since."""
    passed_us, more = at_us - before.at_us, sum(tasks.values())
    sums = before.sums.after(passed_us, more)
    past = DeadPast(at_us, sums, tasks=tasks or before.tasks, error=error)
    if is_raised:
        held = more >= max(1.0, HELD_SHARE * before.rate * passed_us / SECOND_US)
        return replace(past, sums=sums._replace(day=before.sums.day), rate=before.rate, grows=held)
    number = sums[_WINDOW]
    day = max(0.0, sums.day - number)
    usual = day * WINDOWS_US[_WINDOW] / DAY_US
    if number < max(DEAD_MIN, JUMP * usual, usual + DEVIATIONS * sqrt(usual + 1)):
        return past
    rate = number * SECOND_US / WINDOWS_US[_WINDOW]
    return replace(past, sums=sums._replace(day=day), rate=rate, grows=True)


def _counted(engine: Engine, queue: str, since_us: int, until_us: int) -> list[Job]:
    """Return the rows of the jobs that became dead-letter jobs in a period."""
    jobs: list[Job] = []
    seen = set[Lane]()
    name, width_us = dead_queue(queue), engine.catalog.settings(queue).width_us
    first, position = bucket_of(since_us, width_us), (since_us, JobId(b"\xff" * 16))
    for page in engine.pages_of(name, bucket_of(until_us, width_us)):
        for _, lane in page.pointers:
            if lane.bucket < first or lane in seen or len(seen) >= LANES_MAX:
                continue
            seen.add(lane)
            rows = engine.store.scan(lane, after=position, until_us=until_us, limit=ROWS_MAX)
            jobs += rows.jobs
    return jobs


def _condition(queue: str, past: DeadPast) -> Condition:
    task, _ = max(past.tasks.items(), key=lambda item: item[1], default=("", 0))
    number = round(past.sums[_WINDOW])
    sentence = f"{number} jobs became dead-letter jobs in the last five minutes"
    sentence += f", most of them of {one_line(task)}" if task else ""
    return Condition(
        "dead",
        queue,
        "",
        f"{sentence}; the last error: {past.error.rstrip('.')}." if past.error else f"{sentence}.",
        f"dueline dead list --queue {quote(queue)}",
        {"dead": number, "task": task},
    )
