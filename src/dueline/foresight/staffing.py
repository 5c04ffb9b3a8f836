"""How many slots keep a target of start latencies."""

from collections.abc import Mapping
from math import ceil, exp
from typing import Final

from dueline.coordination.run_times import middle_of
from dueline.foresight.run_times import mean_us
from dueline.foresight.target import Target

SLOTS_MAX: Final = 100_000
"""Maximum number of slots that are wanted."""


def slots_for_rate(
    starts_per_s: float, cost_us: float, target: Target, *, variation: float = 1.0
) -> int:
    """Return the fewest slots with which jobs that arrive at a rate keep a target.

    Arrivals are taken to be independent of each other. The waiting time is that of a queue with
    exponential run times (Erlang C), scaled by their real variation (Allen and Cunneen).

    Args:
      starts_per_s: The rate.
      cost_us: Mean time for which a job takes a slot.
      target: The target.
      variation: Squared coefficient of variation of run times.
    """
    busy = starts_per_s * cost_us / 1e6
    if busy <= 0:
        return 0
    scale = (1 + variation) / 2
    slots = min(SLOTS_MAX, ceil(busy) + (busy == ceil(busy)))
    refused = _erlang_b(busy, slots)
    while slots < SLOTS_MAX:
        waits = refused / (1 - busy / slots * (1 - refused))  # Erlang C
        if waits * exp(-(slots - busy) / cost_us * target.most_us / scale) <= 1 - target.share:
            break
        slots += 1
        refused = busy * refused / (slots + busy * refused)
    return slots


def _erlang_b(busy: float, slots: int) -> float:
    refused = 1.0
    for number in range(1, slots + 1):
        refused = busy * refused / (number + busy * refused)
    return refused


def variation_of(times: Mapping[int, int]) -> float:
    """Return the squared coefficient of variation of run times."""
    mean, number = mean_us(times), sum(times.values())
    squares = sum(middle_of(step) ** 2 * count for step, count in times.items()) / number
    return max(0.0, squares / mean**2 - 1)


def slots_for_backlog(due: int, running: int, cost_us: float, within_us: int) -> float:
    """Return how many slots start `due` jobs within a time, besides those that run."""
    return running + due * cost_us / within_us
