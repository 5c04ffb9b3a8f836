"""How many workers some queues need: `/scale`, and `dueline workers wanted`."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from dueline.coordination.run_times import Histogram, add
from dueline.coordination.worker_registry import live_workers
from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.readable_records import value_at
from dueline.core.store import Put
from dueline.foresight.rates import after_counting, rates_of
from dueline.foresight.run_times import run_times
from dueline.foresight.staffing import slots_for_backlog, slots_for_rate, variation_of
from dueline.foresight.target import Target
from dueline.jobs.counts import count

JOBS_MAX: Final = 10_000
"""Maximum number of jobs of each queue that are read."""

RUN_US_DEFAULT: Final = SECOND_US
"""Run time of jobs that were not measured yet."""

CALM_US: Final = 300 * SECOND_US
"""How long fewer workers must have been enough before fewer are wanted."""

PARTITION: Final = "scales"


@dataclass(frozen=True, slots=True)
class Scale:
    """How many workers the jobs of some queues need.

    Attributes:
      desired_workers: Workers that start all due jobs within the wanted time and keep the target at
        the present rate; never fewer than the running jobs need, or were wanted in the last five
        minutes.
      needed_workers: The same without what was wanted before.
      due_backlog: Jobs that are due, or will be soon; those of paused queues do not count.
      running: Jobs whose leases workers hold.
      lateness_seconds: Age of the oldest due job.
      run_seconds: Mean time for which a job takes a slot.
      ended_per_second: Attempts that end in a second.
      slots: Slots of one worker.
      is_capped: There are more jobs than were read.
    """

    desired_workers: int
    needed_workers: int
    due_backlog: int
    running: int
    lateness_seconds: float
    run_seconds: float
    ended_per_second: float
    slots: int
    is_capped: bool


def scale_of(
    engine: Engine, queues: Sequence[str], *, slots: int, target: Target, ahead_us: int
) -> Scale:
    """Return how many workers some queues need.

    Args:
        engine: The store.
        queues: Names of the queues.
        slots: Slots of one worker.
        target: The start latency to keep; all due jobs should start within it.
        ahead_us: Jobs that will be due within this time count as due.
    """
    now_us, workers = engine.time.latest_us(), live_workers(engine)
    counts = [count(engine, name, workers, most=JOBS_MAX, ahead_us=ahead_us) for name in queues]
    active = [count.queue for count in counts if not engine.catalog.settings(count.queue).is_paused]
    due = sum(count.ready for count in counts if count.queue in active)
    running = sum(count.running for count in counts)
    since = [
        count.oldest_ready_us for count in counts if count.queue in active and count.oldest_ready_us
    ]
    times, runs = run_times(engine.store), Histogram()
    for name in queues:
        add(runs, times.queues.get(name, {}))
    known = [cost for name in queues if (cost := times.cost_us(name, "")) is not None]
    cost_us = sum(known) / len(known) if known else RUN_US_DEFAULT
    measured = [rates for name in active if (rates := rates_of(engine, name)) is not None]
    per_s = sum(after_counting(queue_rates, None, now_us).per_s() for queue_rates in measured)
    steady = slots_for_rate(per_s, cost_us, target, variation=variation_of(runs) if runs else 1.0)
    needed = max(
        ceil(slots_for_backlog(due, running, cost_us, target.most_us) / slots), ceil(steady / slots)
    )
    return Scale(
        _calmed(engine, f"{','.join(sorted(queues))} {target} {slots}", needed, now_us),
        needed,
        due,
        running,
        max(0, now_us - min(since, default=now_us)) / SECOND_US,
        cost_us / SECOND_US,
        round(per_s, 3),
        slots,
        any(count.is_capped for count in counts),
    )


def _calmed(engine: Engine, key: str, needed: int, now_us: int) -> int:
    """Return the largest number that was needed in the last minutes, and note this one.

    Of the numbers before, only those are kept that are larger than all later ones.
    """
    before = value_at(engine.store, PARTITION, key, list[tuple[int, int]])[0] or []
    kept = [demand for demand in before if demand[0] > now_us - CALM_US and demand[1] > needed]
    wanted = [*kept, (now_us, needed)]
    if kept or needed:
        put = Put(key, engine.ids.token(), encode(wanted), expires_us=now_us + CALM_US,
                  at_us=now_us)  # fmt: skip
        engine.store.commit(PARTITION, (put,))
    return wanted[0][1]
