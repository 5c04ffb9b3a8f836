"""A simulation of workers by the rules that they use, event by event.

It takes recorded attempts with their run times, failures and retries, and answers when each would
have started with other settings. Claim order, aging, turns and weights of tenants, limits, the
buffer of claimed jobs and its release are the functions that workers call. Delays between a claim
and a start are drawn from those that were measured.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from dueline.core.claim_buffer import (
    WAIT_US_MAX,
    buffer_size,
    is_room_worth_claiming,
    learn_run_us,
)
from dueline.core.queue_settings import shard_of_hash
from dueline.foresight.ready_jobs import Claimant, ReadyJobs
from dueline.foresight.record import UNKNOWN, Kind, Record
from dueline.foresight.scenario import Scenario, SimulatedWorker
from dueline.foresight.simulated_limits import SimulatedLimits
from dueline.limits.permits import RETRY_US

_END, _CLAIM, _READY, _OVERDUE, _LEAVE = range(5)
_ARRIVED, _PREFETCHED = 1, 2
"""How a claim begins: with the worker, or with a job that it has claimed already."""

_STRIDE: Final = 7_919
"""A prime: samples of delays are drawn in steps of it, so that a simulation can be repeated."""


class Simulated(NamedTuple):
    """When each attempt was ready and started, in microseconds; UNKNOWN if it never did."""

    ready_us: Sequence[int]
    started_us: Sequence[int]


class _Draws:
    """Draws from samples, the same in each run."""

    __slots__ = ("_many", "_place", "_samples")

    def __init__(self, samples: Sequence[int]) -> None:
        self._samples = list(samples)
        self._many = len(samples)
        self._place = 0

    def next(self) -> int:
        self._place = (self._place + _STRIDE) % self._many
        return self._samples[self._place]


class _Worker:
    """A worker of the simulation."""

    __slots__ = (
        "asks_us", "blocked", "busy_us", "claimant", "is_checked", "is_full", "is_here", "is_woken",
        "limited", "name", "run_us", "running", "slots", "waiting",
    )  # fmt: skip

    def __init__(self, name: str, simulated: SimulatedWorker, claimant: Claimant) -> None:
        self.name = name
        self.slots = simulated.slots
        self.claimant = claimant
        self.running = 0
        self.limited = 0
        self.run_us = 0.0
        self.is_checked = False  # an event for its waiting jobs is pending
        self.is_full = False
        self.is_here = False
        self.is_woken = False
        self.busy_us = 0  # until when its last claim takes
        self.asks_us = 0  # when it asks limits again
        self.blocked: dict[str, int] = {}
        self.waiting: deque[tuple[int, int]] = deque()  # attempts, and when each was claimed


class Simulation:
    """One run; see `simulate`."""

    def __init__(self, record: Record, scenario: Scenario) -> None:
        rules = scenario.rules
        self._record = record
        self._kinds, self._kind = _placed(record, scenario)
        widths_us = [rules.width_of(kind.queue) for kind in self._kinds]
        self._limits = [kind.limits for kind in self._kinds]
        self._ready = ReadyJobs(self._kinds, widths_us, rules.aging_us)
        self._held = SimulatedLimits(rules)
        self._is_far = rules.is_far
        self._workers = [
            _Worker(str(number), worker, Claimant(rules.weights))
            for number, worker in enumerate(scenario.workers)
        ]
        delays = scenario.overheads
        self._idle, self._early = _Draws(delays.idle_us), _Draws(delays.early_us)
        self._turn, self._next = _Draws(delays.turn_us), _Draws(delays.next_us)
        self._begin, self._permit = _Draws(delays.start_us), _Draws(delays.permit_us)
        self._events: list[tuple[int, int, int, int]] = []
        self._idle_workers: deque[int] = deque()
        self._claiming = (0, 0, self._workers[0])
        many = len(record.kind)
        self._ready_us = array("q", [UNKNOWN]) * many
        self._started_us = array("q", [UNKNOWN]) * many
        for number, worker in enumerate(scenario.workers):
            heappush(self._events, (worker.since_us, _CLAIM, number, _ARRIVED))
            heappush(self._events, (worker.until_us + 1, _LEAVE, number, 0))

    def run(self) -> Simulated:
        """Process all events in the order of their times."""
        events, ready_us, nth = self._events, self._record.ready_us, self._record.nth
        firsts = (place for place, number in enumerate(nth) if number == 1)
        place = next(firsts, None)
        while True:
            if place is not None and (not events or ready_us[place] <= events[0][0]):
                self._arrive(ready_us[place], place)
                place = next(firsts, None)
            elif events:
                self._happen(*heappop(events))
            else:
                break
        return Simulated(self._ready_us, self._started_us)

    def _happen(self, now_us: int, event: int, number: int, attempt: int) -> None:
        if event == _END:
            self._end(now_us, number, attempt)
        elif event == _READY:
            self._arrive(now_us, attempt)
        else:
            worker = self._workers[number]
            if event == _CLAIM:
                worker.is_here |= attempt == _ARRIVED
                worker.is_woken = False
                self._claim(now_us, number, worker, is_early=attempt == _PREFETCHED)
            elif event == _OVERDUE:
                self._release(now_us, number, worker)
            else:
                worker.is_here = False
                self._return(now_us, worker)

    def _arrive(self, now_us: int, attempt: int) -> None:
        """Add a ready job, and wake a worker with room for it."""
        self._ready_us[attempt] = now_us
        self._ready.add(self._kind[attempt], now_us, attempt)
        while self._idle_workers:
            number = self._idle_workers.popleft()
            worker = self._workers[number]
            if not worker.is_woken and self._room(worker):
                if self._record.is_early[attempt]:
                    self._wake(number, now_us, self._early.next(), _PREFETCHED)
                else:
                    self._wake(number, now_us, self._idle.next())
                break

    def _wake(self, number: int, now_us: int, delay_us: int, how: int = 0) -> None:
        """Let a worker claim, when it has finished the claim before."""
        worker = self._workers[number]
        if not worker.is_woken:
            worker.is_woken = True
            wait_us = max(0, worker.busy_us - now_us)
            heappush(self._events, (now_us + wait_us + delay_us, _CLAIM, number, how))

    def _end(self, now_us: int, number: int, attempt: int) -> None:
        """End an attempt; its slot gets the next job."""
        record, worker = self._record, self._workers[number]
        worker.running -= 1
        worker.is_full = False
        run_us = record.ended_us[attempt] - record.started_us[attempt]
        worker.run_us = learn_run_us(worker.run_us, (run_us,))
        limits = self._limits[self._kind[attempt]]
        if limits:
            worker.limited -= 1
            worker.blocked.clear()
            for name in self._held.release(worker.name, limits, now_us):
                other = self._workers[int(name)]
                other.blocked.clear()
                if other.running < other.slots:
                    self._wake(int(name), now_us, self._permit.next())
        following = attempt + 1
        if following < len(record.nth) and record.nth[following] > 1:
            self._retry(now_us, attempt, following)
        if worker.waiting:
            waiting, _ = worker.waiting.popleft()
            self._start(now_us + self._next.next(), number, worker, waiting)
        if not worker.is_woken and self._room(worker):
            if self._ready.count:
                self._wake(number, now_us, (self._permit if limits else self._turn).next())
            elif worker.is_here:
                self._note_idle(number)

    def _retry(self, now_us: int, attempt: int, following: int) -> None:
        """Let the next attempt be ready as long after the end as it really was."""
        record = self._record
        again_us = record.ready_us[following]
        if again_us == UNKNOWN:
            again_us = record.claimed_us[following]
        wait_us = max(0, again_us - record.ended_us[attempt])
        heappush(self._events, (now_us + wait_us, _READY, 0, following))

    def _room(self, worker: _Worker) -> int:
        """Return for how many jobs a worker has room; 0 if that is not worth a claim."""
        more = 0 if worker.is_full else buffer_size(worker.run_us, worker.slots)
        most = worker.slots + more
        room = most - worker.running - len(worker.waiting)
        is_worth = room > 0 and is_room_worth_claiming(
            room, most, is_far=self._is_far, has_waiting=bool(worker.waiting)
        )
        return room if is_worth else 0

    def _note_idle(self, number: int) -> None:
        """Note that a worker with room, be it only in its buffer, waits for jobs."""
        if number not in self._idle_workers:
            self._idle_workers.append(number)

    def _claim(self, now_us: int, number: int, worker: _Worker, *, is_early: bool) -> None:
        """Claim as many jobs as there is room for, and start those that have a slot."""
        ready = self._ready
        self._claiming = (now_us, number, worker)
        while ready.count and worker.is_here:
            room = self._room(worker)
            if not room:
                break
            blocked = self._blocked(now_us, worker)
            taken = ready.claim(worker.claimant, room, now_us, blocked, self._grant)
            if not taken and len(worker.blocked) == len(blocked):
                break
            if now_us >= worker.busy_us:
                worker.busy_us = now_us if is_early else now_us + self._begin.next()
            for attempt in taken:
                if worker.running < worker.slots:
                    self._start(worker.busy_us, number, worker, attempt)
                else:
                    if not worker.is_checked:
                        worker.is_checked = True
                        heappush(self._events, (now_us + WAIT_US_MAX, _OVERDUE, number, 0))
                    worker.waiting.append((attempt, now_us))
        if worker.is_here and not worker.is_woken and self._room(worker):
            self._note_idle(number)

    def _blocked(self, now_us: int, worker: _Worker) -> frozenset[str]:
        if not worker.blocked:
            return _NONE
        worker.blocked = {name: at_us for name, at_us in worker.blocked.items() if at_us > now_us}
        return frozenset(worker.blocked)

    def _grant(self, limits: Sequence[str], count: int, priority: int, queue: str) -> int:
        now_us, number, worker = self._claiming
        count = min(count, worker.slots - worker.limited)
        if any(name in worker.blocked for name in limits):
            return 0
        granted, lacking, at_us = 0, limits, now_us + RETRY_US
        if count > 0:
            wish = (count, priority, queue)
            granted, lacking, at_us = self._held.take(worker.name, limits, wish, now_us)
        if granted:
            worker.limited += granted
            return granted
        worker.blocked |= dict.fromkeys(lacking, at_us)
        if not now_us < worker.asks_us <= at_us:
            worker.asks_us = at_us
            heappush(self._events, (at_us + self._idle.next(), _CLAIM, number, 0))
        return 0

    def _start(self, at_us: int, number: int, worker: _Worker, attempt: int) -> None:
        worker.running += 1
        self._started_us[attempt] = at_us
        record = self._record
        run_us = record.ended_us[attempt] - record.started_us[attempt]
        heappush(self._events, (at_us + run_us, _END, number, attempt))

    def _release(self, now_us: int, number: int, worker: _Worker) -> None:
        """Release the jobs that wait, if the first of them has waited too long."""
        worker.is_checked = bool(worker.waiting)
        if not worker.waiting:
            return
        at_us = worker.waiting[0][1] + WAIT_US_MAX
        if at_us > now_us:
            heappush(self._events, (at_us, _OVERDUE, number, 0))
            return
        worker.is_checked = False
        worker.is_full = True
        self._return(now_us, worker)
        while self._idle_workers:
            self._wake(self._idle_workers.popleft(), now_us, self._idle.next())

    def _return(self, now_us: int, worker: _Worker) -> None:
        """Put waiting jobs back in their places."""
        kinds = [self._kinds[self._kind[attempt]] for attempt, _ in worker.waiting]
        worker.claimant.weights.returned((kind.priority, kind.tenant) for kind in kinds)
        for attempt, _ in worker.waiting:
            limits = self._limits[self._kind[attempt]]
            if limits:
                worker.limited -= 1
                self._held.release(worker.name, limits, now_us)
            self._ready.add(self._kind[attempt], self._ready_us[attempt], attempt)
        worker.waiting.clear()


_NONE: Final[frozenset[str]] = frozenset()


def _placed(record: Record, scenario: Scenario) -> tuple[Sequence[Kind], Sequence[int]]:
    """Return the kinds with their priorities and shards in a scenario, and each attempt's."""
    kinds = [
        kind._replace(priority=scenario.priorities.get(kind.task, kind.priority))
        for kind in record.kinds
    ]
    if scenario.shards is None:
        return kinds, record.kind
    spread = [kind._replace(shard=shard) for kind in kinds for shard in range(scenario.shards)]
    many = scenario.shards
    placed = array(
        "q",
        (
            kind * many + shard_of_hash(digest, many)
            for kind, digest in zip(record.kind, record.hashes, strict=True)
        ),
    )
    return spread, placed


def simulate(record: Record, scenario: Scenario) -> Simulated:
    """Return when each recorded attempt would have been ready, and started."""
    return Simulation(record, scenario).run()
