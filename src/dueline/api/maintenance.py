"""What the maintenance leader of an application does."""

from collections.abc import Sequence
from typing import Final

from dueline.core.chore import Chore, Report
from dueline.core.engine import Engine
from dueline.jobs.queue import Queues
from dueline.monitor.monitor import CHORES
from dueline.monitor.thread import Watch
from dueline.schedules import enqueue
from dueline.schedules.timetable import Timetable
from dueline.streams import expiry, late_groups

STREAMS: Final = (
    Chore("expire", expiry.EVERY_US, expiry.expire),
    Chore("late groups", late_groups.EVERY_US, late_groups.report_late_groups),
)


def tasks_of(queues: Queues) -> Sequence[Chore]:
    """Return the tasks of the monitor."""

    def store_jobs(_: Engine, after: str | None) -> Report:
        return enqueue.recur(queues, after)

    return (Chore("recur", enqueue.EVERY_US, store_jobs), *CHORES, *STREAMS)


def make_watch(queues: Queues, worker: str, *, is_monitor: bool = True) -> Watch:
    """Return the threads of maintenance next to a worker, as `Watch`."""
    return Watch(
        queues.engine,
        worker,
        check_schedules=Timetable(queues, worker).step,
        tasks=tasks_of(queues),
        is_monitor=is_monitor,
    )
