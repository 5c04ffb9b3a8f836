"""What the simulation assumes: settings, workers, and what a start costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dueline.core.clock import DAY_US
from dueline.limits.rate import Rate


class SimulatedWorker(NamedTuple):
    """A worker: its slots, and when it is there."""

    slots: int
    since_us: int
    until_us: int


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of queues and limits that decide what starts when.

    Attributes:
      capacities: Of semaphores, by name; those that are not set have one permit.
      rates: Rates, by name.
      weights: Of tenants.
      aging_us: Of queues with aging.
      width_us: Of buckets, by queue.
      is_far: The store is on the network, so that workers claim more at once.
    """

    capacities: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, Rate] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    aging_us: Mapping[str, int] = field(default_factory=dict)
    width_us: Mapping[str, int] = field(default_factory=dict)
    is_far: bool = False

    def width_of(self, queue: str) -> int:
        """Return the width of a queue's buckets."""
        return self.width_us.get(queue, DAY_US)


@dataclass(frozen=True, slots=True)
class Changes:
    """What a setting changes; nothing by default.

    Attributes:
      name: What it is called in tables.
      workers, slots: How many, for the whole period; None for those that really ran.
      priorities: Of tasks.
      capacities, rates, weights: As in `Rules`, in addition to those in force.
      shards: Number of shards; None for the shards that jobs really had.
    """

    name: str = "in force"
    workers: int | None = None
    slots: int | None = None
    priorities: Mapping[str, int] = field(default_factory=dict)
    capacities: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, Rate] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    shards: int | None = None


@dataclass(frozen=True, slots=True)
class Overheads:
    """Measured delays in microseconds, as samples in no order; each has at least one.

    Attributes:
      idle_us: From the time at which a job is ready to its claim, if a slot is free.
      early_us: From that time to the start, for jobs that workers prefetch.
      turn_us: From the end of a job to the next claim.
      start_us: From a claim to the start, if a slot is free.
      next_us: From the end of a job to the start of one that the worker had claimed before.
      permit_us: From the end of a job with a limit to the claim of the next one.
    """

    idle_us: Sequence[int] = (1_000,)
    early_us: Sequence[int] = (500,)
    turn_us: Sequence[int] = (1_000,)
    start_us: Sequence[int] = (1_000,)
    next_us: Sequence[int] = (200,)
    permit_us: Sequence[int] = (2_000,)


class Scenario(NamedTuple):
    """All that a simulation assumes."""

    rules: Rules
    workers: Sequence[SimulatedWorker]
    overheads: Overheads
    priorities: Mapping[str, int] = {}
    shards: int | None = None


def scenario_of(
    changes: Changes, rules: Rules, fleet: Sequence[SimulatedWorker], overheads: Overheads
) -> Scenario:
    """Return the scenario of a setting."""
    merged = Rules(
        {
            name: capacity
            for name, capacity in {**rules.capacities, **changes.capacities}.items()
            if name not in changes.rates
        },
        {
            name: rate
            for name, rate in {**rules.rates, **changes.rates}.items()
            if name not in changes.capacities
        },
        {**rules.weights, **changes.weights},
        rules.aging_us,
        rules.width_us,
        rules.is_far,
    )
    workers = list(fleet)
    if changes.slots is not None:
        workers = [worker._replace(slots=changes.slots) for worker in workers]
    if changes.workers is not None:
        slots = max(worker.slots for worker in workers)
        since_us = min(worker.since_us for worker in workers)
        until_us = max(worker.until_us for worker in workers)
        workers = [SimulatedWorker(slots, since_us, until_us)] * changes.workers
    return Scenario(merged, workers, overheads, changes.priorities, changes.shards)
