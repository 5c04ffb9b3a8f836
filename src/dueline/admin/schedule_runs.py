"""The last runs of schedules: the job of each, and how it ended."""

from dataclasses import dataclass
from typing import Final

from dueline.admin.search import attempts_of
from dueline.core.clock import DAY_US
from dueline.core.engine import Engine
from dueline.core.errors import NotFound
from dueline.core.job import JobId
from dueline.jobs.history import last_state
from dueline.jobs.queue import Queues
from dueline.schedules.schedule import AHEAD_US, Schedule, job_id, last_times

_BACK_US: Final = (DAY_US, 8 * DAY_US, 32 * DAY_US, 400 * DAY_US)
"""How far back the last occurrence is searched."""

_TRIED: Final = 3
"""Number of occurrences whose jobs are searched: some are skipped."""

_READ_MAX: Final = 2_000
"""Maximum number of events of the history that are read for a job."""


_NOTES_MAX: Final = 10
"""Maximum number of events that are read to find one that is not a note of an operator."""


@dataclass(frozen=True, slots=True)
class ScheduleRun:
    """The job of the last occurrence that has one; state: as of a job, or `unknown`."""

    at_us: int
    job: str
    state: str


def last_run(queues: Queues, schedule: Schedule, now_us: int) -> ScheduleRun | None:
    """Return the last run of a schedule; None if no occurrence has come, or no job is known.

    Jobs that are neither stored nor in the history any more are not known, and neither are those
    of a schedule before it was changed.
    """
    times: list[int] = []
    for back_us in _BACK_US:
        times = last_times(schedule.timing, now_us - back_us, now_us, _TRIED)
        if times:
            break
    for at_us in reversed(times):
        if at_us > schedule.through_us:
            continue
        job = job_id(schedule, at_us)
        if state := _state_of(queues, job, schedule.template.queue, at_us):
            return ScheduleRun(at_us, job.hex(), state)
    return None


def _state_of(queues: Queues, job: JobId, queue: str, at_us: int) -> str:
    try:
        return queues.find(job).status
    except NotFound:
        return _in_history(queues.engine, job, queue, at_us)


def _in_history(engine: Engine, job: JobId, queue: str, at_us: int) -> str:
    try:
        since_us = at_us - AHEAD_US  # an operator may have run it early
        past = attempts_of(engine, job, queue, limit=_NOTES_MAX, most=_READ_MAX, since_us=since_us)
    except NotFound:  # the queue is gone
        return ""
    return last_state(past.attempts).outcome if past.attempts else ""
