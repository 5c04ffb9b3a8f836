"""What the maintenance leader of an application does."""

import random
from collections.abc import Sequence
from typing import Final

from dueline.core.engine import Engine
from dueline.core.maintenance import MaintenanceTask, StepResult
from dueline.foresight import alert_monitor, checks, rates
from dueline.jobs.queue import Queues
from dueline.monitor.monitor import TASKS
from dueline.monitor.thread import MaintenanceThreads
from dueline.schedules import scheduler
from dueline.schedules.timetable import Timetable
from dueline.streams import group_health, retention

STREAMS: Final = (
    MaintenanceTask("expire", retention.EVERY_US, retention.trim_streams),
    MaintenanceTask("late groups", group_health.EVERY_US, group_health.report_late_groups),
)


def tasks_of(queues: Queues) -> Sequence[MaintenanceTask]:
    """Return the maintenance tasks."""

    def store_jobs(_: Engine, after: str | None) -> StepResult:
        return scheduler.store_scheduled_jobs(queues, after)

    return (
        MaintenanceTask("recur", scheduler.EVERY_US, store_jobs),
        *TASKS,
        *STREAMS,
        rates.task(),
        checks.task_of(queues, random.random),
        alert_monitor.task_of(queues),
    )


def make_maintenance_threads(
    queues: Queues, worker: str, *, is_monitor: bool = True
) -> MaintenanceThreads:
    """Return the maintenance threads of a worker."""
    return MaintenanceThreads(
        queues.engine,
        worker,
        check_schedules=Timetable(queues, worker).step,
        tasks=tasks_of(queues),
        is_monitor=is_monitor,
    )
