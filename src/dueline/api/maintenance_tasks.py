"""What the maintenance leader of an application does. Only the leader loads this module."""

import random
from collections.abc import Sequence
from typing import Final

from dueline.admin.missed_occurrences import occurrences_of
from dueline.core.engine import Engine
from dueline.core.maintenance import MaintenanceTask, StepResult
from dueline.foresight import alert_monitor, checks, rates, trends
from dueline.jobs.queue import Queues
from dueline.monitor.tasks import TASKS
from dueline.schedules import scheduler
from dueline.streams import group_health, retention
from dueline.worker.tally import Tally

STREAMS: Final = (
    MaintenanceTask("expire", retention.EVERY_US, retention.trim_streams),
    MaintenanceTask("late groups", group_health.EVERY_US, group_health.report_late_groups),
)


def tasks_of(queues: Queues, tally: Tally | None = None) -> Sequence[MaintenanceTask]:
    """Return the maintenance tasks.

    Args: tally: counts the jobs of schedules, for metrics.
    """
    counts, recorder = tally or Tally(), trends.TrendRecorder()

    def store_jobs(_: Engine, after: str | None) -> StepResult:
        result = scheduler.store_scheduled_jobs(queues, after)
        counts.scheduled(result.skews_us)
        return result

    return (
        MaintenanceTask("recur", scheduler.EVERY_US, store_jobs),
        *TASKS,
        *STREAMS,
        rates.task(recorder.counted),
        trends.task(recorder),
        checks.task_of(queues, random.random),
        alert_monitor.task_of(queues, occurrences_of),
    )
