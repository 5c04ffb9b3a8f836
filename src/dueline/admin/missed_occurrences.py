"""What became of the occurrences of schedules, for alerts."""

from typing import Final

from dueline.core.clock import DAY_US
from dueline.core.engine import Engine
from dueline.core.job import JobId
from dueline.core.job_status import status_of
from dueline.foresight.missed_occurrences import Occurrences
from dueline.jobs import results
from dueline.schedules.schedule import Schedule, all_stored, job_id, last_times

_BACK_US: Final = DAY_US
"""How far back the last occurrence whose deadline has passed is searched."""


def occurrences_of(engine: Engine) -> dict[str, list[Occurrences]]:
    """Return what became of the occurrences of all schedules, by queue.

    Expired jobs are known while their results are kept, or while no worker has ended them.
    """
    by_queue: dict[str, list[Occurrences]] = {}
    stored, now_us = all_stored(engine.store), engine.time.earliest_us()
    expired = _expired(engine, [schedule for _, schedule, _ in stored], now_us)
    for (name, schedule, _), at_us in zip(stored, expired, strict=True):
        occurrences = Occurrences(name, schedule.skipped, at_us)
        by_queue.setdefault(schedule.template.queue, []).append(occurrences)
    return by_queue


def _expired(engine: Engine, schedules: list[Schedule], now_us: int) -> list[int]:
    """Return the time of the last occurrence of each schedule if its job expired, otherwise 0."""
    times = [_last_us(schedule, now_us) for schedule in schedules]
    ids = {
        job_id(schedule, at_us): at_us
        for schedule, at_us in zip(schedules, times, strict=True)
        if at_us
    }
    if not ids:
        return [0] * len(schedules)
    asked = list(ids)
    rows = dict(zip(asked, engine.store.find(asked), strict=True))
    ended = results.read_many(engine.store, [job for job, row in rows.items() if row is None])

    def has_expired(job: JobId) -> bool:
        row, outcome = rows[job], ended.get(job)
        if row is not None:
            return status_of(row, now_us) == "expired"
        return outcome is not None and outcome.state == "expired"

    return [
        at_us if at_us and has_expired(job_id(schedule, at_us)) else 0
        for schedule, at_us in zip(schedules, times, strict=True)
    ]


def _last_us(schedule: Schedule, now_us: int) -> int:
    """Return the last occurrence whose deadline has passed; 0 without one."""
    if not schedule.template.expires_us:
        return 0
    until_us = min(now_us - schedule.template.expires_us, schedule.through_us)
    return next(iter(last_times(schedule.timing, until_us - _BACK_US, until_us, 1)), 0)
