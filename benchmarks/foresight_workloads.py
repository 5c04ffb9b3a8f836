"""The recorded workloads of `benchmarks.foresight`."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dueline.foresight.scenario import Changes


class Call(NamedTuple):
    """A call: when it is made and due, in seconds from the beginning."""

    at: float
    due: float
    task: str
    ms: float
    failures: int = 0
    tenant: str = ""


@dataclass(frozen=True)
class Setting:
    """Workers, their slots, and what else differs from the recorded run."""

    name: str
    workers: int
    slots: int
    weights: str = ""
    warehouse: int = 3

    def changes(self, like: "Setting") -> Changes:
        """Return what it changes."""
        pairs = (one.partition("=") for one in self.weights.split(",") if one)
        return Changes(
            self.name,
            self.workers if self.workers != like.workers else None,
            capacities={"warehouse": self.warehouse} if self.warehouse != like.warehouse else {},
            weights={name: int(count) for name, _, count in pairs}
            if self.weights != like.weights
            else {},
        )


@dataclass(frozen=True)
class Workload:
    """Calls, the setting that is recorded, and those that are run afterwards."""

    name: str
    queue: str
    calls: Sequence[Call]
    recorded: Setting
    others: Sequence[Setting] = field(default_factory=tuple)


def steady(seconds: float) -> Workload:
    """Return calls at random times, of which some fail and are retried."""
    chance = random.Random(1)
    calls, at = [], 1.0
    while at < seconds:
        failures = chance.choices((0, 1, 2), (85, 10, 5))[0]
        calls.append(Call(at, at, "steady.mail", 20 + chance.expovariate(1 / 80), failures))
        at += chance.expovariate(32)
    recorded = Setting("2 workers", 2, 4)
    others = (Setting("4 workers", 4, 4), Setting("3 workers", 3, 4))
    return Workload("steady with retries", "steady", calls, recorded, others)


def bursts(seconds: float) -> Workload:
    """Return bursts of four tenants at each tenth second, and a trickle between them."""
    chance = random.Random(2)
    calls = []
    for second in range(5, int(seconds), 10):
        for n in range(220):
            tenant = chance.choices("abcd", (6, 2, 1, 1))[0]
            ms = 15 + chance.expovariate(1 / 35)
            calls.append(Call(second - 3 + n / 200, second, "bursts.report", ms, 0, tenant))
    at = 1.0
    while at < seconds:
        calls.append(Call(at, at, "bursts.report", 40, 0, chance.choice("abcd")))
        at += chance.expovariate(8)
    recorded = Setting("2 workers, a=2", 2, 4, "a=2")
    others = (Setting("4 workers, a=2", 4, 4, "a=2"), Setting("a=1,b=6", 2, 4, "a=1,b=6"))
    return Workload("bursts with tenants", "bursts", sorted(calls), recorded, others)


def limits(seconds: float) -> Workload:
    """Return long jobs with a semaphore of 3, and short ones with a rate of 12 in a second."""
    chance = random.Random(3)
    calls, at = [], 1.0
    while at < seconds:
        calls.append(Call(at, at, "limits.pack", chance.uniform(300, 1100)))
        at += chance.expovariate(2.8)
    at = 1.0
    while at < seconds:
        calls.append(Call(at, at, "limits.call", chance.uniform(20, 60)))
        at += chance.expovariate(8)
    recorded = Setting("2 workers", 2, 4)
    others = (Setting("4 workers", 4, 4), Setting("warehouse=5", 2, 4, warehouse=5))
    return Workload("limits with long jobs", "limits", sorted(calls), recorded, others)


WORKLOADS: Mapping[str, Callable[[float], Workload]] = {
    "steady": steady,
    "bursts": bursts,
    "limits": limits,
}
"""By queue."""
