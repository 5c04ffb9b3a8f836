"""The maintenance threads of an application."""

from collections.abc import Sequence

from dueline.core.maintenance import MaintenanceTask
from dueline.jobs.queue import Queues
from dueline.monitor.interval import set_interval
from dueline.monitor.thread import MaintenanceThreads
from dueline.schedules.timetable import Timetable
from dueline.worker.tally import Tally


def make_maintenance_threads(
    queues: Queues,
    worker: str,
    *,
    is_monitor: bool = True,
    tally: Tally | None = None,
    interval_us: int | None = None,
) -> MaintenanceThreads:
    """Return the maintenance threads of a worker.

    Args:
        queues: The queues.
        worker: Name of the worker.
        is_monitor: Whether it is a candidate for maintenance leader.
        tally: Counts the jobs of schedules, for metrics.
        interval_us: As in `set_interval`; None leaves it as it is.
    """
    if interval_us is not None:
        set_interval(queues.engine, interval_us)
    timetable, counts = Timetable(queues, worker), tally or Tally()

    def check_schedules() -> int:
        checked = timetable.step()
        counts.scheduled(checked.skews_us)
        return checked.rest_us

    def load_tasks() -> Sequence[MaintenanceTask]:
        from dueline.api.maintenance_tasks import tasks_of  # noqa: PLC0415  (only for the leader)

        return tasks_of(queues, counts)

    return MaintenanceThreads(
        queues.engine,
        worker,
        check_schedules=check_schedules,
        load_tasks=load_tasks,
        is_monitor=is_monitor,
    )
