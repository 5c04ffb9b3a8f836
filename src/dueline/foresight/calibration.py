"""Who worked, and what a start costs, learned from what really happened."""

from array import array
from collections.abc import Collection, Mapping, MutableSequence, Sequence
from heapq import heappop, heappush
from typing import Final

from dueline.core.clock import SECOND_US
from dueline.core.limit_names import semaphore_of
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

_KINDS: Final = ("idle_us", "early_us", "turn_us", "start_us", "next_us", "permit_us")

_Samples = Mapping[str, MutableSequence[int]]


class _Worker:
    """What was seen of a worker so far, or of a limit.

    A claim has one delay, whatever number of jobs it brings: from its cause, the first free slot
    with a ready job, or from the end of the claim before.
    """

    __slots__ = ("begun_us", "cause_us", "claimed_us", "ends", "free", "is_turn", "ready_by_us",
                 "since_us", "slots", "until_us")  # fmt: skip

    def __init__(self) -> None:
        self.slots = 0
        self.since_us = self.until_us = 0
        self.ends: list[int] = []  # of running jobs, a heap
        self.free: list[int] = []  # since when each slot is free, a heap
        self.claimed_us = self.ready_by_us = self.begun_us = self.cause_us = 0
        self.is_turn = False

    def slot_for(self, started_us: int, ended_us: int) -> int:
        """Take a slot; return since when it was free, UNKNOWN for a new one."""
        while self.ends and self.ends[0] <= started_us:
            heappush(self.free, heappop(self.ends))
        if not self.free and self.ends and self.ends[0] - started_us <= SKEW_US:
            heappush(self.free, heappop(self.ends))
        heappush(self.ends, ended_us)
        self.until_us = max(self.until_us, ended_us + STAY_US)
        if self.free:
            return heappop(self.free)
        self.slots += 1
        return UNKNOWN

    def claim(self, claimed_us: int, begun_us: int, cause: tuple[int, bool], to: _Samples) -> None:
        """Note a job that started with its claim."""
        if claimed_us != self.claimed_us:
            self.flush(to)
            self.ready_by_us = self.begun_us
            self.claimed_us, self.begun_us = claimed_us, begun_us
            self.cause_us, self.is_turn = cause
        elif cause[0] < self.cause_us:
            self.cause_us, self.is_turn = cause

    def flush(self, to: _Samples) -> None:
        """Record the delays of the last claim."""
        if self.claimed_us:
            delay_us = self.claimed_us - max(self.cause_us, self.ready_by_us)
            _add(to["turn_us" if self.is_turn else "idle_us"], delay_us)
            _add(to["start_us"], self.begun_us - self.claimed_us)


def learned(record: Record, rates: Collection[str] = ()) -> tuple[list[SimulatedWorker], Overheads]:
    """Return the workers of a period, and the delays of their starts.

    A worker has as many slots as it ran jobs at once, and is there from its first claim to some
    time after its last end. It may have had more, and longer, but then they were not needed.

    Args:
        record: The attempts.
        rates: Limits that are rates: when they allow the next start is not known.
    """
    workers = [_Worker() for _ in record.workers]
    samples: _Samples = {name: array("q") for name in _KINDS}
    limits: dict[str, _Worker] = {}  # whose slots are permits
    for kind in record.kinds:
        limits |= {name: _Worker() for name in kind.limits}
    for place in sorted(range(len(record.kind)), key=record.started_us.__getitem__):
        worker, started_us = workers[record.worker[place]], record.started_us[place]
        claimed_us, ready_us = record.claimed_us[place], record.ready_us[place]
        free_us = worker.slot_for(started_us, record.ended_us[place])
        worker.since_us = min(worker.since_us or claimed_us, claimed_us)
        names = record.kinds[record.kind[place]].limits
        permitted = [limits[name].slot_for(started_us, record.ended_us[place]) for name in names]
        if ready_us == UNKNOWN:
            continue
        if names:
            permit_us = max(permitted)
            is_rated = any(semaphore_of(name) in rates for name in names)
            if is_rated or permit_us > max(ready_us, free_us):
                if claimed_us >= free_us:
                    _add(samples["start_us"], started_us - claimed_us)
                if claimed_us > permit_us and not is_rated:
                    _add(samples["permit_us"], claimed_us - permit_us)
                continue
        if claimed_us < ready_us and free_us <= ready_us:
            _add(samples["early_us"], started_us - ready_us)
        elif claimed_us < free_us:
            _add(samples["next_us"], started_us - free_us)
        else:
            cause = (max(free_us, ready_us), free_us > ready_us)
            worker.claim(claimed_us, started_us, cause, samples)
    for worker in workers:
        worker.flush(samples)
    fleet = [
        SimulatedWorker(worker.slots, worker.since_us, worker.until_us)
        for worker in workers
        if worker.slots
    ]
    return fleet, _overheads(samples)


def _add(samples: MutableSequence[int], delay_us: int) -> None:
    if delay_us <= LONG_US:
        samples.append(max(0, delay_us))


def _overheads(samples: _Samples) -> Overheads:
    """Return delays; where one sort was never seen, that of another."""
    default = Overheads()
    thin = {name: delays[:: max(1, len(delays) // SAMPLES_MAX)] for name, delays in samples.items()}
    idle_us: Sequence[int] = thin["idle_us"] or thin["turn_us"] or default.idle_us
    return Overheads(
        idle_us, thin["early_us"] or idle_us, thin["turn_us"] or idle_us,
        thin["start_us"] or default.start_us, thin["next_us"] or default.next_us,
        thin["permit_us"] or thin["turn_us"] or idle_us,
    )  # fmt: skip
