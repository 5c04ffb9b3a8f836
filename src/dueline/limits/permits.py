"""The permits that a worker holds for its jobs.

They are taken before a claim, for as many jobs as it may bring; extended by the heartbeat before
the claims are; and released once the worker holds fewer jobs. For each limit the worker has one
number in one record, which only it changes. So the outcome of a write is never guessed: the next
write repeats it.

Jobs with costs are claimed lane by lane, as many as their costs allow, the first ones first. A job
for which too little is left stands in line, in this worker and in the record of the limit: what it
waits for is reserved (rule N9).
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from dueline.core.attempt import Ended
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt, StoreUnavailable
from dueline.core.job import Claim, Job
from dueline.core.lane import has_costs, limits_of
from dueline.core.limit_costs import costs_of
from dueline.core.logging import log
from dueline.core.wakeup import Wakeup
from dueline.limits import rate, semaphore
from dueline.limits.adapting import AdaptiveCapacities
from dueline.limits.definitions import LimitDefinitions
from dueline.limits.lines import AGED_US, SOON_US, Kind, Lines, ask_us_of
from dueline.limits.needs import ANY, Needs
from dueline.limits.rate_meters import MeterReading, RateMeters
from dueline.limits.semaphore import Hold, PermitRequest, Permits

RETRY_US: Final = SECOND_US // 4
"""How long after a refusal a worker asks again, if no wake-up comes first."""

SLOTS: Final = ""
"""Stands for the slots of the worker: it holds no more jobs with limits than it has slots."""

_ROUNDS_MAX: Final = 20
_WAITS_MAX: Final = 10_000


class Granted(NamedTuple):
    """For how many jobs there are permits, and until when.

    lacking: limits that allow none, and when to ask each again.
    """

    jobs: int
    until_us: int
    lacking: Mapping[str, int]


class PermitSource(Protocol):
    """Where a claim gets permits."""

    def take(
        self,
        limits: Sequence[str],
        count: int,
        *,
        priority: int,
        queue: str,
        lease_us: int,
        needs: Needs = ANY,
    ) -> Granted:
        """Take permits for jobs that are about to be claimed, as many as they need."""
        ...

    def unused(self, limits: Sequence[str], count: int, units: Mapping[str, int] = {}) -> None:
        """Note that a claim brought `count` fewer jobs than there were permits for.

        Args: units: how many permits are not needed, of limits of which jobs take several.
        """
        ...

    def used(self, limits: Sequence[str], jobs: Sequence[Job]) -> None:
        """Note for which jobs the permits of the last take are."""
        ...

    def is_open(self, name: str) -> bool:
        """Return whether a limit allows anything at all, as of the last read."""
        ...

    def is_first_in_line(self, name: str, line: Kind) -> bool:
        """Return whether a line of jobs with costs is the first one that waits for a limit."""
        ...

    def lines(self) -> set[Kind]:
        """Return the lines of jobs with costs that wait for a limit."""
        ...

    def leave_line(self, line: Kind) -> None:
        """Give up what a line of jobs with costs waits for."""
        ...


class _PermitsRead(NamedTuple):
    """A record as it was read."""

    permits: Permits
    version: bytes
    capacity: int
    now_us: int


class HeldPermits:
    """One worker's permits; its loop and its heartbeat share them."""

    def __init__(self, engine: Engine, worker: str) -> None:
        self._engine = engine
        self._worker = worker
        self._lock = threading.Lock()
        self._stored: dict[str, int] = {}  # maximum that the store may hold for this worker
        self._until_us: dict[str, int] = {}
        self._used: Counter[str] = Counter()
        self._raised: Counter[str] = Counter()  # how many of them were just taken
        self._room = 0
        self._is_asked = False
        self._waits: dict[Kind, tuple[int, int]] = {}
        self._waiting: dict[str, set[Kind]] = {}
        self._lines = Lines()
        self._known = LimitDefinitions(engine.store)
        self._meters = RateMeters(engine, worker)
        self._adapting = AdaptiveCapacities(engine, self._known)

    # A claim

    def begin(self, held: Callable[[], Sequence[Job]], most: int) -> Collection[str]:
        """Begin a claim. held: lists the jobs held; most: how many of them may have limits.

        Returns: the limits of which this worker has unused permits.
        """
        self._used, self._room = Counter(), most
        if not self._is_asked:  # then no job that is held has a limit
            return ()
        jobs = held()
        self._used = used_by(jobs)
        self._room -= sum(1 for job in jobs if limits_of(job.lane))
        with self._lock:
            freed = [name for name, count in self._stored.items() if count > self._used[name]]
        return [*freed, SLOTS] if self._room > 0 else freed

    def take(
        self,
        limits: Sequence[str],
        count: int,
        *,
        priority: int,
        queue: str,
        lease_us: int,
        needs: Needs = ANY,
    ) -> Granted:
        """Take permits for jobs that are about to be claimed, as many as they need.

        All limits are read before any permits are taken, and permits are taken in order. If one
        limit then refuses, `settle` releases the permits of the others (rule N2).

        Raises: StoreUnavailable: `settle` releases what was taken.
        """
        self._is_asked = True
        now_us = self._engine.time.latest_us()
        count = min(count, self._room)
        if count <= 0:
            return Granted(0, now_us, {SLOTS: now_us + RETRY_US})
        self._known.refresh(now_us)
        rates = {name: known for name in limits if (known := self._known.rate(name)) is not None}
        names = [name for name in limits if name not in rates]
        kind = needs.line or (tuple(limits), priority)
        wish = PermitRequest(count, priority, self._since(kind, now_us), queue)
        readings = {name: self._meters.read(name, setting) for name, setting in rates.items()}
        jobs = {
            name: needs.jobs(
                name, seen.left - self._reserved(name, seen, wish, kind), rates[name].most
            )
            for name, seen in readings.items()
        }
        if lacking := [name for name in rates if jobs[name] <= 0]:
            return Granted(0, now_us, self._wait_for_rates(lacking, readings, wish, kind, needs))
        wish = wish._replace(more=min([count, *jobs.values()]))
        least, refusing = self._take_permits(names, wish, lease_us, kind, needs)
        most: dict[str, int] = {}
        for name, setting in rates.items() if least else ():
            units = needs.units(name, least)
            most[name], next_us = self._meters.take(name, setting, readings[name], units, wish)
            least = min(least, needs.jobs(name, most[name], setting.most))
            if not least:
                refusing = {name: next_us}
        for name, taken in most.items():
            self._meters.unused(name, taken - needs.units(name, least))
        if least:
            del self._waits[kind]
            self._used.update({name: needs.units(name, least) for name in names})
            self._room -= least
            if needs.line:
                self._lines.leave(limits, kind)
        with self._lock:
            until_us = min([now_us + lease_us, *(self._until_us.get(name, 0) for name in names)])
        return Granted(least, until_us, refusing)

    def _take_permits(
        self, names: Sequence[str], wish: PermitRequest, lease_us: int, kind: Kind, needs: Needs
    ) -> tuple[int, dict[str, int]]:
        """Take permits of semaphores; return for how many jobs, and when to ask refusing ones."""
        if not names:
            return wish.more, {}
        with self._lock:
            seen = {name: self._see(name) for name in names}
            jobs: dict[str, int] = {}
            for name, read in seen.items():
                wanted = wish._replace(more=needs.units(name, wish.more))
                jobs[name] = needs.jobs(name, self._more(name, read, wanted, kind), read.capacity)
            lacking = [name for name in names if not jobs[name]]
            if lacking:
                self._wait_for(lacking, seen, wish, kind, needs)
                return 0, {name: _again_us(seen[name]) for name in lacking}
            least = min(jobs.values())
            for name in names:
                wanted = wish._replace(more=needs.units(name, least))
                units = self._ask(name, seen[name], wanted, lease_us, kind)
                least = min(least, needs.jobs(name, units, seen[name].capacity))
                if not least:
                    return 0, {name: _again_us(seen[name])}
        return least, {}

    def _since(self, kind: Kind, now_us: int) -> int:
        """Return when permits were first requested for a kind; a long pause resets that."""
        since_us, asked_us = self._waits.get(kind, (now_us, now_us))
        if now_us - asked_us > max(semaphore.WAIT_US, 2 * SOON_US):
            since_us = now_us
        if len(self._waits) > _WAITS_MAX:
            self._waits.clear()
        self._waits[kind] = (since_us, now_us)
        return since_us

    # Lines of jobs with costs (rule N9)

    def _reserved(self, name: str, seen: MeterReading, wish: PermitRequest, kind: Kind) -> int:
        """Return how many tokens of a rate are reserved for jobs whose turn comes first."""
        kept = semaphore.kept_before(seen.meter.waiting, self._worker, wish, seen.now_us)
        return kept + self._lines.before(name, wish, kind, seen.now_us)

    def _give_up(self, name: str) -> None:
        """Remove the wait of this worker from the record of a limit, if it has one."""
        if (setting := self._known.rate(name)) is not None:
            self._meters.give_up(name, setting)
            return
        with self._lock:
            seen = self._see(name)
            if self._worker in seen.permits.waiting:
                waiting = semaphore.waits_without(seen.permits.waiting, {self._worker}, seen.now_us)
                permits = replace(seen.permits, waiting=waiting)
                semaphore.write(
                    self._engine.store, name, permits, expect=seen.version, ids=self._engine.ids
                )
            self._waiting.pop(name, None)

    def _wait_for_rates(
        self,
        lacking: Collection[str],
        readings: Mapping[str, MeterReading],
        wish: PermitRequest,
        kind: Kind,
        needs: Needs,
    ) -> dict[str, int]:
        """Record the wait of a line; return when to ask the rates that refused."""
        ask_us: dict[str, int] = {}
        for name, seen in readings.items():
            setting = self._known.rate(name)
            assert setting is not None, "it was read for it"
            units = min(needs.units(name, 1), setting.most)
            reserved = self._reserved(name, seen, wish, kind)
            next_us = seen.next_us
            if units + reserved > 1:
                next_us = rate.next_us(seen.meter, setting, seen.now_us, units + reserved)
                next_us = ask_us_of(next_us, seen.now_us)
            if name in lacking:
                ask_us[name] = next_us
            is_aged = seen.now_us - wish.since_us > AGED_US
            if needs.line and (name in lacking or is_aged):
                self._meters.wait(
                    name, setting, seen, self._lines.stand(name, units, wish, kind, next_us)
                )
        return ask_us

    def unused(self, limits: Sequence[str], count: int, units: Mapping[str, int] = {}) -> None:
        """Note that a claim brought `count` fewer jobs than there were permits for."""
        for name in limits:
            if self._known.rate(name) is not None:
                self._meters.unused(name, units.get(name, count))
            else:
                self._used[name] -= units.get(name, count)
        self._room += count

    def used(self, limits: Sequence[str], jobs: Sequence[Job]) -> None:
        """Note for which jobs the permits of the last take are."""
        for name in limits:
            if (setting := self._known.rate(name)) is not None:
                self._meters.used(name, setting, jobs)

    @property
    def start_by_us(self) -> Mapping[Claim, int]:
        """Until when jobs with rates may still start, by the store's time (rule N5)."""
        return self._meters.start_by_us

    def started(self, claims: Iterable[Claim], now_us: int) -> None:
        """Note that jobs started by now."""
        self._meters.started(claims, now_us)

    def answered(self, ended: Sequence[Ended]) -> None:
        """Note how attempts ended, for the limits that adapt to that."""
        self._adapting.note(ended)

    def spent(self, spent: Mapping[Claim, Sequence[tuple[str, int]]]) -> None:
        """Note how much jobs that have started really take of rates."""
        for claim, costs in spent.items():
            for name, units in costs:
                self._meters.spent(claim, name, units)

    def is_open(self, name: str) -> bool:
        """Return whether a limit allows anything at all, as of the last read."""
        return self._known.most(name) > 0

    def is_first_in_line(self, name: str, line: Kind) -> bool:
        """Return whether a line of jobs with costs is the first one that waits for a limit."""
        return self._lines.is_first(name, line, self._engine.time.latest_us())

    def lines(self) -> set[Kind]:
        """Return the lines of jobs with costs that wait for a limit."""
        return self._lines.all()

    def leave_line(self, line: Kind) -> None:
        """Give up what a line of jobs with costs waits for; `settle` removes it from the store."""
        self._lines.leave([*self._lines.by_limit], line)
        self._waits.pop(line, None)

    def _more(self, name: str, seen: _PermitsRead, wish: PermitRequest, kind: Kind) -> int:
        """Return how many permits beyond the used ones may be held, up to the request."""
        free = semaphore.spare(
            seen.permits, seen.capacity, self._worker, wish, seen.now_us,
            has_unused=self._stored.get(name, 0) > self._used[name],
        )  # fmt: skip
        if self._lines.by_limit:
            free -= self._lines.before(name, wish, kind, seen.now_us)
        return max(0, min(wish.more, free - self._used[name]))

    def _ask(
        self, name: str, seen: _PermitsRead, wish: PermitRequest, lease_us: int, kind: Kind
    ) -> int:
        """Hold more permits than are used, as far as available; return how many more."""
        for _ in range(_ROUNDS_MAX):
            more = self._more(name, seen, wish, kind)
            if not more:
                break
            permits = semaphore.after_turn(seen.permits, self._worker, wish, seen.now_us)
            total, before = self._used[name] + more, self._stored.get(name, 0)
            if self._hold(name, seen, permits, total, lease_us):
                self._raised[name] += max(0, total - before)
                self._waiting.pop(name, None)
                return more
            seen = self._see(name)
        return 0

    def _wait_for(
        self,
        lacking: Collection[str],
        seen: Mapping[str, _PermitsRead],
        wish: PermitRequest,
        kind: Kind,
        needs: Needs,
    ) -> None:
        """Record the wait, so that released permits are reserved for the workers whose turn it is.

        Where the worker waited for a limit and now lacks another, it gives up its place, so that
        others can have these permits. Where only this worker holds permits, nothing is recorded.
        """
        for name, read in seen.items():
            waits = self._waiting.setdefault(name, set())
            permits: Permits | None = None
            is_aged = needs.line and read.now_us - wish.since_us > AGED_US
            if needs.line and (name in lacking or is_aged):
                units = min(needs.units(name, 1), read.capacity)
                wish = self._lines.stand(name, units, wish, kind, _again_us(read))
            if name not in lacking and not is_aged:
                waits.discard(kind)
                if not waits and self._worker in read.permits.waiting:
                    permits = semaphore.after_turn(read.permits, self._worker, wish, read.now_us)
            elif read.permits.in_use(read.now_us) > read.permits.held(self._worker, read.now_us):
                waits.add(kind)
                permits = semaphore.with_wait(read.permits, self._worker, wish, read.now_us)
            if permits is not None:  # if that fails, the next request repeats it
                semaphore.write(
                    self._engine.store, name, permits, expect=read.version, ids=self._engine.ids
                )
            if not waits:
                del self._waiting[name]

    # Afterwards

    def settle(self, held: Callable[[], Sequence[Job]]) -> None:
        """Release permits that no job needs any more, and wake the workers that wait for them.

        No worker is woken for permits that were just taken for a lane in which nothing was due:
        two workers would wake each other for ever. Workers refused meanwhile ask again.

        Args: held: lists all jobs that the worker holds.
        """
        self._meters.keep(held)
        self._meters.settle(self._known.rate)
        for name in self._lines.without_asking(self._engine.time.latest_us()):
            with suppress(StoreUnavailable, StoreCorrupt):  # otherwise the wait expires
                self._give_up(name)
        self._adapting.adapt()
        raised, self._raised = self._raised, Counter()
        if not self._stored:
            return
        used = used_by(held())
        with self._lock:
            for name, count in [*self._stored.items()]:
                if count <= used[name]:
                    continue
                try:
                    self._lower(name, used[name], wakes=count - used[name] > raised[name])
                except StoreCorrupt as error:  # the permits expire instead
                    log.warning("permits of %s cannot be released: %s", name, error)
                    del self._stored[name]

    def close(self) -> None:
        """Release all permits, and give up all waits."""
        self.settle(list)
        for name in {**self._waiting, **self._lines.by_limit}:
            with suppress(StoreCorrupt):  # the wait expires by itself
                self._give_up(name)
        self._lines.by_limit.clear()

    def _lower(self, name: str, count: int, *, wakes: bool) -> None:
        for _ in range(_ROUNDS_MAX):
            seen = self._see(name)
            if self._hold(name, seen, seen.permits, count, 0):
                permits, _, capacity, now_us = seen
                others = permits.in_use(now_us) - permits.held(self._worker, now_us)
                free = capacity - others - count
                workers = semaphore.next_in_turn(permits, free, self._worker, now_us)
                if wakes and workers:
                    self._engine.wakeups.wake(list(map(Wakeup, workers)))
                return

    # The heartbeat

    def keep(self, held: Sequence[Job]) -> list[Job]:
        """Extend permits for another lease; return the jobs that have lost theirs (rule N4)."""
        if not self._stored:
            return []
        used = used_by(held)
        lost: list[Job] = []
        with self._lock:
            for name in [*self._stored]:
                mine = [job for job in held if name in limits_of(job.lane)]
                if not mine:
                    continue
                lease_us = max(self._lease_us(job) for job in mine)
                before = self._stored[name]  # less than is used if a cost is above the capacity
                try:
                    kept = self._renew(name, lease_us)
                except StoreCorrupt as error:  # the permits last as long as was last written
                    log.warning("permits of %s cannot be extended: %s", name, error)
                    continue
                lost += _beyond(mine, name, kept) if kept < min(before, used[name]) else []
        return list(dict.fromkeys(lost))

    def _renew(self, name: str, lease_us: int) -> int:
        """Extend the held permits; return how many remain: others may have taken expired ones."""
        for _ in range(_ROUNDS_MAX):
            seen = self._see(name)
            count = self._stored[name]
            if seen.permits.held(self._worker, seen.now_us) < count:
                free = seen.capacity - seen.permits.in_use(seen.now_us)
                free += seen.permits.held(self._worker, seen.now_us)
                count = max(0, min(count, free))
            if self._hold(name, seen, seen.permits, count, lease_us, always=True):
                return count
        return self._stored.get(name, 0)

    def ends_us(self, jobs: Sequence[Job]) -> dict[Claim, int]:
        """Return until when claims may last that have permits: no longer than these (rule N4)."""
        ends_us: dict[Claim, int] = {}
        for job in jobs if self._until_us else ():
            ends = [end for name in limits_of(job.lane) if (end := self._until_us.get(name))]
            if ends:
                ends_us[job.claim()] = min(ends)
        return ends_us

    def _lease_us(self, job: Job) -> int:
        return self._engine.catalog.settings(job.lane.queue).lease_us

    # Records

    def _see(self, name: str) -> _PermitsRead:
        now_us = self._engine.time.earliest_us()  # no hold of another worker expires early
        self._known.refresh(now_us)
        permits, version = semaphore.read(self._engine.store, name)
        capacity = semaphore.capacity_now(permits, self._known.semaphore(name))
        return _PermitsRead(permits, version, capacity, now_us)

    def _hold(
        self,
        name: str,
        seen: _PermitsRead,
        permits: Permits,
        count: int,
        lease_us: int,
        *,
        always: bool = False,
    ) -> bool:
        """Write how many permits are held from now on; False: the record has changed.

        Nothing is written if the record is the same and lasts for at least two thirds of a lease.

        Args: permits: the record to write it to. always: extend them for the whole lease.

        Raises: Unknown: the old or the new number is stored; the next write repeats it.
        """
        mine = seen.permits.holders.get(self._worker, Hold(0, 0))
        until_us = max(self._engine.time.latest_us() + lease_us, mine.until_us)
        is_stored = mine.count == count and permits == seen.permits
        if is_stored and not always and mine.until_us >= until_us - lease_us // 3:
            until_us = mine.until_us
        else:
            held = semaphore.with_hold(permits, self._worker, Hold(count, until_us), seen.now_us)
            self._stored[name] = max(count, self._stored.get(name, 0))
            if not semaphore.write(
                self._engine.store, name, held, expect=seen.version, ids=self._engine.ids
            ):
                return False
        self._stored[name], self._until_us[name] = count, until_us
        if not count:
            del self._stored[name], self._until_us[name]
        return True


def _again_us(seen: _PermitsRead) -> int:
    """Return when to ask a limit again that allows nothing."""
    return max(seen.now_us + RETRY_US, seen.permits.closed_us)


def _beyond(jobs: Sequence[Job], name: str, units: int) -> list[Job]:
    """Return the jobs for which `units` of a limit do not suffice, after those before them."""
    lost: list[Job] = []
    for job in jobs:
        units -= costs_of(job).get(name, 1)
        if units < 0:
            lost.append(job)
    return lost


def used_by(jobs: Iterable[Job]) -> Counter[str]:
    """Count the permits that jobs need, by limit."""
    used: Counter[str] = Counter()
    with_costs: list[Job] = []
    for job in jobs:
        if has_costs(job.lane):
            with_costs.append(job)
        else:
            used.update(limits_of(job.lane))
    for job in with_costs:
        costs = costs_of(job)
        used.update({name: costs.get(name, 1) for name in limits_of(job.lane)})
    return used
