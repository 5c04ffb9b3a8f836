"""Who worked, and what a start costs, learned from what really happened."""

from array import array
from collections.abc import Mapping, MutableSequence, Sequence
from heapq import heappop, heappush
from typing import Final

from dueline.core.clock import SECOND_US
from dueline.foresight.record import UNKNOWN, Record
from dueline.foresight.scenario import Overheads, SimulatedWorker

SAMPLES_MAX: Final = 2_000
"""Maximum number of delays that are kept of each sort."""

LONG_US: Final = 2 * SECOND_US
"""A longer delay of a job with a free slot has another cause, such as a pause."""

STAY_US: Final = 30 * SECOND_US
"""How long a worker stays after its last job: other delays may let that job start later."""

SKEW_US: Final = 10_000
"""A job that ended at most this long after the start of another one may have had its slot: a worker
corrects its clock between two jobs.
"""

_KINDS: Final = ("idle_us", "early_us", "turn_us", "next_us")


def learned(record: Record) -> tuple[list[SimulatedWorker], Overheads]:
    """Return the workers of a period, and the delays of their starts.

    A worker has as many slots as it ran jobs at once, and is there from its first claim to some
    time after its last end. It may have had more, and longer, but then they were not needed.
    """
    starts = sorted(range(len(record.kind)), key=record.started_us.__getitem__)
    ends: list[list[int]] = [[] for _ in record.workers]  # of the slots, since when each is free
    slots = [0] * len(record.workers)
    busy: list[list[int]] = [[] for _ in record.workers]
    since_us = [0] * len(record.workers)
    until_us = [0] * len(record.workers)
    samples: dict[str, MutableSequence[int]] = {name: array("q") for name in _KINDS}
    limited = [bool(kind.limits) for kind in record.kinds]
    for place in starts:
        worker, started_us = record.worker[place], record.started_us[place]
        running, free = busy[worker], ends[worker]
        while running and running[0] <= started_us:
            heappush(free, heappop(running))
        if not free and running and running[0] - started_us <= SKEW_US:
            heappush(free, heappop(running))
        heappush(running, record.ended_us[place])
        until_us[worker] = max(until_us[worker], record.ended_us[place] + STAY_US)
        claimed_us = record.claimed_us[place]
        since_us[worker] = min(since_us[worker] or claimed_us, claimed_us)
        free_us = heappop(free) if free else UNKNOWN
        if free_us == UNKNOWN:
            slots[worker] += 1
        ready_us = record.ready_us[place]
        if ready_us == UNKNOWN or limited[record.kind[place]]:
            continue
        if free_us > ready_us:
            name = "next_us" if claimed_us < free_us else "turn_us"
            delay_us = started_us - free_us
        else:
            name = "early_us" if record.is_early[place] else "idle_us"
            delay_us = started_us - ready_us
        if delay_us <= LONG_US:
            samples[name].append(max(0, delay_us))
    fleet = [SimulatedWorker(*one) for one in zip(slots, since_us, until_us, strict=True) if one[0]]
    return fleet, _overheads(samples)


def _overheads(samples: Mapping[str, Sequence[int]]) -> Overheads:
    """Return delays; where one sort was never seen, that of another."""
    default = Overheads()
    thin = {name: _thinned(some) for name, some in samples.items()}
    idle_us = thin["idle_us"] or thin["early_us"] or default.idle_us
    turn_us = thin["turn_us"] or idle_us
    return Overheads(
        idle_us, thin["early_us"] or idle_us, turn_us, thin["next_us"] or default.next_us
    )


def _thinned(some: Sequence[int]) -> Sequence[int]:
    step = max(1, len(some) // SAMPLES_MAX)
    return some[::step]
