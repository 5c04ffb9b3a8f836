"""What workers measure: run times by task, start latencies by queue.

Each worker keeps histograms and writes them into one record of its own, so that any process can
read those of all workers. The record expires: the longer a worker has run, the later.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from dueline.core.attempt import Crashed, Ended, Failed
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.lane import tenant_of
from dueline.core.readable_records import readable
from dueline.core.store import Put, Record, Records

PARTITION: Final = "runtimes"

WRITTEN_EVERY_US: Final = 10 * SECOND_US
"""Maximum frequency of writes; a worker that has just started writes more often."""

SAMPLES: Final = 8
"""Maximum number of attempts of one settlement that are measured; the others count like these."""

KEPT_US_MIN: Final = 600 * SECOND_US
"""Time that the record of a worker that has ended is kept, at least; ten times as long as it ran,
up to a day.
"""

RECENT: Final = 20_000
"""Number of run times of a task, and twice the seconds at full load, after which older ones count
half.
"""

TASKS_MAX: Final = 500
"""Maximum number of tasks that one worker measures."""

TENANTS_MAX: Final = 200
"""Maximum number of tenants of a queue that one worker counts."""

RECORDS_MAX: Final = 1_000
"""Maximum number of workers whose records are read."""

_SUB: Final = 4
_FULL_US: Final = 600 * SECOND_US

Histogram = dict[int, int]
"""Numbers of durations by step, see `step_of`; histograms are added step by step."""


def step_of(span_us: int) -> int:
    """Return the step of a duration: a quarter of an octave, so that its width is up to 25 %."""
    shift = span_us.bit_length() - 3
    return max(0, span_us) if shift <= 0 else shift * _SUB + (span_us >> shift)


def middle_of(step: int) -> int:
    """Return a duration in the middle of a step, in microseconds."""
    shift, rest = divmod(step - _SUB, _SUB)
    return step if shift <= 0 else (2 * (_SUB + rest) + 1 << shift) // 2


def bounds_of(step: int) -> tuple[int, int]:
    """Return the first duration of a step and of the next one, in microseconds."""
    shift, rest = divmod(step - _SUB, _SUB)
    return (step, step + 1) if shift <= 0 else (_SUB + rest << shift, _SUB + rest + 1 << shift)


def add(total: Histogram, more: Mapping[int, int]) -> None:
    """Add a histogram to another."""
    for step, number in more.items():
        total[step] = total.get(step, 0) + number


@dataclass(slots=True)
class TaskTimes:
    """The attempts of a task.

    Attributes:
      ended, failed: How many ended and how many failed since the worker started.
      runs: Run times, where older ones count less.
    """

    ended: int = 0
    failed: int = 0
    runs: Histogram = field(default_factory=dict)

    def run(self, span_us: int, weight: int) -> None:
        """Count attempts of one duration."""
        step = step_of(span_us)
        self.runs[step] = self.runs.get(step, 0) + weight
        if self.ended % RECENT < weight and self.ended >= RECENT:
            self.runs = {step: number // 2 for step, number in self.runs.items() if number > 1}


@dataclass(slots=True)
class QueueTimes:
    """The attempts of a queue by task, and the start latencies of first attempts.

    Attributes:
      shards, tenants: Attempts of each, since the worker started.
    """

    tasks: dict[str, TaskTimes] = field(default_factory=dict)
    latencies: Histogram = field(default_factory=dict)
    shards: dict[int, int] = field(default_factory=dict)
    tenants: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class WorkerTimes:
    """What a worker measured.

    Attributes:
      since_us: When the worker started.
      at_us: When the record was written.
      full_us: Time of all slots while all were taken; of it, `run_us` were run times.
      full_ended: Attempts that ended in this time.
    """

    since_us: int
    at_us: int = 0
    queues: dict[str, QueueTimes] = field(default_factory=dict)
    full_us: int = 0
    run_us: int = 0
    full_ended: int = 0


class RunTimes:
    """Measures the attempts of one worker, and writes its record."""

    def __init__(self, worker: str, *, slots: int, now_us: int) -> None:
        self._worker = worker
        self._slots = slots
        self._lock = threading.Lock()
        self._times = WorkerTimes(now_us)
        self._tasks = 0
        self._turn = 0
        self._settled_us: int | None = None
        self._is_changed = False
        self._written_us = now_us

    def ended(self, ended: Sequence[Ended], *, is_full: bool, now_us: int) -> None:
        """Measure attempts of one settlement.

        Args:
          ended: The attempts.
          is_full: Whether all slots were taken since the last settlement.
          now_us: The time by the monotonic clock.
        """
        step = -(-len(ended) // SAMPLES)
        self._turn += 1
        run_us = 0
        with self._lock:
            for place in range(self._turn % step, len(ended), step):
                run_us += step * self._measure(ended[place], step)
            times = self._times
            if is_full and self._settled_us is not None:
                times.full_us += (now_us - self._settled_us) * self._slots
                times.run_us += run_us
                times.full_ended += len(ended)
                if times.full_us > _FULL_US * self._slots:
                    times.full_us //= 2
                    times.run_us //= 2
                    times.full_ended //= 2
            self._is_changed = True
        self._settled_us = now_us

    def _measure(self, attempt: Ended, weight: int) -> int:
        """Count one attempt `weight` times; return its run time."""
        job, ending, started_us, ended_us = attempt
        if not started_us:
            return 0
        queues = self._times.queues
        queue = queues.get(job.lane.queue)
        if queue is None:
            queue = queues[job.lane.queue] = QueueTimes()
        task = queue.tasks.get(job.task)
        if task is None:
            if self._tasks >= TASKS_MAX:
                return 0
            self._tasks += 1
            task = queue.tasks[job.task] = TaskTimes()
        run_us = max(0, ended_us - started_us)
        task.ended += weight
        if isinstance(ending, Failed | Crashed):
            task.failed += weight
        task.run(run_us, weight)
        shard, tenant = job.lane.shard, tenant_of(job.lane)
        queue.shards[shard] = queue.shards.get(shard, 0) + weight
        if tenant in queue.tenants or len(queue.tenants) < TENANTS_MAX:
            queue.tenants[tenant] = queue.tenants.get(tenant, 0) + weight
        if job.fence == 1:
            step = step_of(max(0, started_us - job.due_us))
            queue.latencies[step] = queue.latencies.get(step, 0) + weight
        return run_us

    def write(self, engine: Engine, *, is_last: bool = False) -> None:
        """Write the record if something was measured, and the last write was long enough ago."""
        if not self._is_changed:  # an idle worker does not read the store's clock for this
            return
        now_us = engine.time.latest_us()
        gap_us = min(WRITTEN_EVERY_US, (now_us - self._times.since_us) // 4)
        if not (is_last or now_us - self._written_us >= gap_us):
            return
        with self._lock:
            self._times.at_us = now_us
            value = encode(self._times)
            self._is_changed = False
        self._written_us = now_us
        age_us = now_us - self._times.since_us
        kept_us = min(max(KEPT_US_MIN, 10 * age_us), DAY_US)
        put = Put(
            self._worker, engine.ids.token(), value, expires_us=now_us + kept_us, at_us=now_us
        )
        engine.store.commit(PARTITION, (put,))


def worker_times(records: Records) -> Mapping[str, WorkerTimes]:
    """Return what workers measured, by worker; of some that have ended, too."""
    return {record.key: times for record, times in islice(_all(records), RECORDS_MAX)}


def _all(records: Records) -> Iterator[tuple[Record, WorkerTimes]]:
    return readable(records, PARTITION, WorkerTimes)
