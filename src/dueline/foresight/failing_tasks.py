"""Tasks that fail: by how many do, and by what was usual for each before.

Pure functions, which `alert_engine` applies. What is counted while an alert is raised is not usual:
otherwise a failure that goes on would end its own alert, and the next one would raise none.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import exp, sqrt
from shlex import quote
from typing import Final

from dueline.core.clock import SECOND_US
from dueline.foresight.alerts import Condition
from dueline.foresight.rates import WINDOWS_US, QueueRates, Sums

FAILED_MIN: Final = 5
"""Minimum number of failures in a window."""

SHARE_MIN: Final = 0.1
JUMP: Final = 3.0
SHARE_MAX: Final = 0.3
"""The share of failures of a task is too large from JUMP times its usual share on, but not below
SHARE_MIN. SHARE_MAX is always too large, also for a new task.
"""

DEVIATIONS: Final = 4.0
"""Number of standard deviations by which there must be more failures than usual."""

HELD_SHARE: Final = 0.5
"""Part of the share that raised an alert, from which newer attempts hold it."""

FRESH_US: Final = 30 * SECOND_US
"""Nothing that was counted longer ago holds an alert."""

UNSEEN_MIN: Final = 20
"""Number of attempts of a task below which nothing is usual."""

_MINUTE, _FEW_MINUTES = range(2)
_SOME: Final = 0.5
"""A number of attempts that sums give is rounded."""

WINDOWS: Final = (_MINUTE, _FEW_MINUTES)
"""Windows in which failures are counted: frequent tasks are named sooner, rare ones at all."""


@dataclass(frozen=True, slots=True)
class TaskPast:
    """What a task did before now.

    Attributes:
      at_us: Until when it is counted.
      seen_ended, seen_failed: Attempts of the minute before `at_us`, as the rates say.
      ended, failed: Attempts since the last alert ended; by the day, those while none was raised.
      share: The share of failures that raised the present alert; 0 while none is raised.
      fails: Whether the alert is held by what was counted last.
    """

    at_us: int
    seen_ended: float
    seen_failed: float
    ended: Sums
    failed: Sums
    share: float = 0.0
    fails: bool = False


def look_at(
    before: Mapping[str, TaskPast],
    rates: QueueRates,
    raised: Collection[str],
    *,
    queue: str,
    now_us: int,
) -> tuple[dict[str, TaskPast], list[Condition]]:
    """Return what to keep of the tasks of a queue, and the conditions of those that fail.

    Args:
      before: What the last call kept.
      rates: What the queue did.
      raised: The tasks of which an alert is raised.
      queue: The queue.
      now_us: The time.
    """
    is_fresh = now_us - rates.at_us <= FRESH_US
    kept: dict[str, TaskPast] = {}
    conditions: list[Condition] = []
    for task, ended in rates.ended.items():
        failed = rates.failed.get(task, Sums())
        past = before.get(task)
        if past is None:
            past = TaskPast(rates.at_us, ended.minute, failed.minute, ended, failed)
        elif rates.at_us > past.at_us:
            past = _counted(
                past, ended.minute, failed.minute, rates.at_us, is_raised=task in raised
            )
        window = _MINUTE
        if not past.share and (failing := _failing_in(past)) is not None:
            window, past = failing, _without(past, failing)
        if past.fails and is_fresh:
            conditions.append(_condition(queue, task, past, window))
        kept[task] = past
    return kept, conditions


def _counted(
    past: TaskPast, ended: float, failed: float, at_us: int, *, is_raised: bool
) -> TaskPast:
    """Return the past of a task with what was counted since, by the sums of the last minute."""
    passed_us = at_us - past.at_us
    left = exp(-passed_us / WINDOWS_US[_MINUTE])
    more = max(0.0, ended - left * past.seen_ended)
    more_failed = max(0.0, failed - left * past.seen_failed)
    sums, failures = past.ended.after(passed_us, more), past.failed.after(passed_us, more_failed)
    if is_raised:
        sums, failures = sums._replace(day=past.ended.day), failures._replace(day=past.failed.day)
        fails = more_failed >= max(_SOME, HELD_SHARE * past.share * more)
        return TaskPast(at_us, ended, failed, sums, failures, past.share, fails)
    if past.share:  # the alert has ended
        sums, failures = Sums(day=past.ended.day + more), Sums(day=past.failed.day + more_failed)
    return TaskPast(at_us, ended, failed, sums, failures)


def _failing_in(past: TaskPast) -> int | None:
    """Return the window in which a task of which nothing is raised fails too often."""
    for window in WINDOWS:
        number, most = _of_window(past, window)
        before = max(0.0, past.ended.day - most)
        failed = max(0.0, past.failed.day - number)
        usual = failed / before if before >= UNSEEN_MIN else SHARE_MIN
        expected = min(usual, SHARE_MIN) * most
        spread = sqrt(expected * (1 - min(usual, SHARE_MIN)) + 1)
        is_large = number >= most * max(SHARE_MIN, min(SHARE_MAX, JUMP * usual))
        if is_large and number >= max(FAILED_MIN, expected + DEVIATIONS * spread):
            return window
    return None


def _without(past: TaskPast, window: int) -> TaskPast:
    """Return the past of a task that fails, without the attempts that raise the alert."""
    number, most = _of_window(past, window)
    return replace(
        past,
        ended=past.ended._replace(day=max(0.0, past.ended.day - most)),
        failed=past.failed._replace(day=max(0.0, past.failed.day - number)),
        share=number / most,
        fails=True,
    )


def _of_window(past: TaskPast, window: int) -> tuple[float, float]:
    """Return the failures and the attempts of a window; a job may fail before it starts."""
    return past.failed[window], max(past.ended[window], past.failed[window])


def _condition(queue: str, task: str, past: TaskPast, window: int) -> Condition:
    number, most = _of_window(past, window)
    share = round(number / most, 3) if most else 0.0
    usual = past.failed.day / past.ended.day if past.ended.day >= UNSEEN_MIN else None
    words = "minute" if window == _MINUTE else "five minutes"
    sentence = f"{share:.0%} of the attempts of {task} failed in the last {words}"
    return Condition(
        "failures",
        queue,
        task,
        f"{sentence}." if usual is None else f"{sentence}; usually {usual:.0%} do.",
        f"dueline jobs list --queue {quote(queue)} --state retrying --task {quote(task)}",
        {"failed": round(number, 1), "share": share, "usual": round(usual or 0.0, 3)},
    )
