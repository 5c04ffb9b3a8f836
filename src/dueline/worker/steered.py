"""Keeps a worker's hands off jobs of paused tasks."""

import threading
from collections.abc import Sequence
from typing import Final

from dueline.aside import bring_back, clear, set_aside
from dueline.clock import SECOND_US
from dueline.lane import Lane
from dueline.queue import Queues
from dueline.tuples import field
from dueline.worker.claimer import Taken
from dueline.worker.triage import queues_of

LATE_US: Final = 60 * SECOND_US
"""Who sees the end of a pause brings back what it set aside in so long before, when others had
seen the end and it had not."""

LANES_MAX: Final = 1_000

_job_of = field(Taken, "job")


class Steered:
    """One worker's part in pauses of tasks."""

    def __init__(self, queues: Queues, news: threading.Event) -> None:
        """Take the engine, and what has the worker's loop go on; nothing was set aside yet."""
        self._queues = queues
        self._news = news
        self._touched: dict[tuple[str, str], dict[Lane, int]] = {}

    def sort(self, taken: list[Taken]) -> tuple[list[Taken], list[Taken]]:
        """Tell the jobs that are run from those of paused tasks."""
        settings = self._queues.catalog.settings
        queues = queues_of(map(_job_of, taken))
        paused = {queue: settings(queue).paused_tasks for queue in queues}
        if not any(paused.values()):
            return taken, []
        fit: list[Taken] = []
        waiting: list[Taken] = []
        for one in taken:
            (waiting if one.job.task in paused[one.job.lane.queue] else fit).append(one)
        return fit, waiting

    def set_aside(self, taken: Sequence[Taken]) -> None:
        """Put claimed jobs of paused tasks out of the way, with more that wait beside them."""
        if not taken:
            return
        self._news.set()  # what stood behind them may be due
        now_us = self._queues.time.latest_us()
        for job, _ in taken:
            self._touch(job.lane, job.task, now_us)
        set_aside(self._queues, [job for job, _ in taken])
        for lane in {one.job.lane for one in taken}:
            paused = self._queues.catalog.settings(lane.queue).paused_tasks
            for task in paused:
                self._touch(lane, task, now_us)
            clear(self._queues, lane, paused)

    def _touch(self, lane: Lane, task: str, now_us: int) -> None:
        """Remember that jobs of a lane were set aside; what is long past matters no more."""
        lanes = self._touched.setdefault((lane.queue, task), {})
        if len(lanes) >= LANES_MAX:
            lanes = {one: us for one, us in lanes.items() if us >= now_us - LATE_US}
            self._touched[lane.queue, task] = lanes
        lanes[lane] = now_us

    def bring_back(self) -> None:
        """Bring back what was set aside though its pause was over: this worker knew it late."""
        for queue, task in [*self._touched]:
            if task not in self._queues.catalog.settings(queue).paused_tasks:
                since_us = self._queues.time.earliest_us() - LATE_US
                lanes = [lane for lane, us in self._touched[queue, task].items() if us >= since_us]
                bring_back(self._queues, lanes, {task}, since_us)
                del self._touched[queue, task]
