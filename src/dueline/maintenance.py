"""What the maintenance leader of an application does."""

from collections.abc import Sequence
from typing import Final

from dueline.chores import expire, late_groups, recur
from dueline.chores.chore import Chore, Report
from dueline.engine import Engine
from dueline.monitor import CHORES
from dueline.queue import Queues
from dueline.timetable import Timetable
from dueline.watch import Watch

STREAMS: Final = (
    Chore("expire", expire.EVERY_US, expire.expire),
    Chore("late groups", late_groups.EVERY_US, late_groups.report_late_groups),
)


def tasks_of(queues: Queues) -> Sequence[Chore]:
    """Return the tasks of the monitor."""

    def store_jobs(_: Engine, after: str | None) -> Report:
        return recur.recur(queues, after)

    return (Chore("recur", recur.EVERY_US, store_jobs), *CHORES, *STREAMS)


def make_watch(queues: Queues, worker: str, *, is_monitor: bool = True) -> Watch:
    """Return the threads of maintenance next to a worker, as `Watch`."""
    return Watch(
        queues.engine,
        worker,
        check_schedules=Timetable(queues, worker).step,
        tasks=tasks_of(queues),
        is_monitor=is_monitor,
    )
