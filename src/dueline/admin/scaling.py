"""How many workers a backlog needs, for KEDA and scripts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil

from dueline.admin.search import history_of
from dueline.coordination.worker_registry import live_workers
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.jobs.counts import count

JOBS_MAX = 10_000
"""Maximum number of jobs of each queue that are read."""

MEASURED_US = 300 * SECOND_US
ATTEMPTS_MAX = 1_000
"""How far back, and how many attempts, the run time is measured from."""

RUN_S_DEFAULT = 1.0
"""Run time of jobs that were not measured yet, in seconds."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How many workers the jobs of some queues need.

    Attributes:
      desired_workers: Workers that start all due jobs within the wanted time, and never fewer than
        the running jobs need.
      due_backlog: Jobs that are due, or will be soon; those of paused queues do not count.
      running: Jobs whose leases workers hold.
      lateness_seconds: Age of the oldest due job.
      run_seconds: Mean run time of recent attempts.
      slots: Slots of one worker.
      is_capped: There are more jobs than were read.
    """

    desired_workers: int
    due_backlog: int
    running: int
    lateness_seconds: float
    run_seconds: float
    slots: int
    is_capped: bool


def desired_workers(
    due: int, running: int, *, run_s: float, slots: int, within_s: float
) -> int:  # fmt: skip
    """Return how many workers start `due` jobs within a time, besides those that run."""
    return ceil((running + due * run_s / within_s) / slots)


def scale_of(
    engine: Engine,
    queues: Sequence[str],
    *,
    slots: int,
    within_us: int,
    ahead_us: int,
    measured_s: Callable[[], float | None] = lambda: None,
) -> Scale:
    """Return how many workers some queues need.

    Args:
        engine: The store.
        queues: Names of the queues.
        slots: Slots of one worker.
        within_us: Time within which all due jobs should start.
        ahead_us: Jobs that will be due within this time count as due.
        measured_s: Returns the mean run time where the history is off.
    """
    now_us, workers = engine.time.latest_us(), live_workers(engine)
    counts = [count(engine, name, workers, most=JOBS_MAX, ahead_us=ahead_us) for name in queues]
    active = [one for one in counts if not engine.catalog.settings(one.queue).is_paused]
    due, running = sum(one.ready for one in active), sum(one.running for one in counts)
    since = [one.oldest_ready_us for one in active if one.oldest_ready_us is not None]
    past = history_of(engine, queues, now_us - MEASURED_US, everything=False)
    took_us = [
        one.ended_us - one.started_us for one in islice(past, ATTEMPTS_MAX) if one.started_us
    ]
    run_s = sum(took_us) / len(took_us) / SECOND_US if took_us else measured_s() or RUN_S_DEFAULT
    return Scale(
        desired_workers(
            due, running, run_s=run_s, slots=slots, within_s=within_us / SECOND_US
        ),
        due,
        running,
        max(0, now_us - min(since, default=now_us)) / SECOND_US,
        run_s,
        slots,
        any(one.is_capped for one in counts),
    )  # fmt: skip
