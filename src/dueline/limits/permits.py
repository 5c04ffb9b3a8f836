"""The permits that a worker holds for its jobs.

They are taken before a claim, for as many jobs as it may bring; extended by the heartbeat before
the claims are; and released once the worker holds fewer jobs. For each limit the worker has one
number in one record, which only it changes. So the outcome of a write is never guessed: the next
write repeats it.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import Conflict, StoreCorrupt
from dueline.core.job import Claim, Job
from dueline.core.lane import limits_of
from dueline.core.limit_names import semaphore_of
from dueline.core.logging import log
from dueline.core.wakeup import Wakeup
from dueline.limits import rate, semaphore
from dueline.limits.rate import Rate
from dueline.limits.rate_meters import RateMeters
from dueline.limits.semaphore import CAPACITY_DEFAULT, Hold, PermitRequest, Permits

RETRY_US: Final = SECOND_US // 4
"""How long after a refusal a worker asks again, if no wake-up comes first."""

SLOTS: Final = ""
"""Stands for the slots of the worker: it holds no more jobs with limits than it has slots."""

DEFINITIONS_AGE_US: Final = 2 * SECOND_US

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
        self, limits: Sequence[str], count: int, *, priority: int, queue: str, lease_us: int
    ) -> Granted:
        """Take permits for jobs that are about to be claimed, the same number of each limit."""
        ...

    def unused(self, limits: Sequence[str], count: int) -> None:
        """Note that a claim brought `count` fewer jobs than there were permits for."""
        ...

    def used(self, limits: Sequence[str], claims: Sequence[Claim]) -> None:
        """Note for which claims the permits of the last take are."""
        ...

    def is_open(self, name: str) -> bool:
        """Return whether a limit allows anything at all, as of the last read."""
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
        self._waits: dict[tuple[tuple[str, ...], int], tuple[int, int]] = {}
        self._waiting: dict[str, set[tuple[tuple[str, ...], int]]] = {}
        self._capacities: Mapping[str, int] = {}
        self._rates: Mapping[str, Rate] = {}
        self._meters = RateMeters(engine)
        self._read_us: int | None = None

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
        self, limits: Sequence[str], count: int, *, priority: int, queue: str, lease_us: int
    ) -> Granted:
        """Take permits for jobs that are about to be claimed, the same number of each limit.

        All limits are read before any permits are taken, and permits are taken in order. If one
        limit then refuses, `settle` releases the permits of the others (rule N2).

        Raises: StoreUnavailable: `settle` releases what was taken.
        """
        self._is_asked = True
        now_us = self._engine.time.latest_us()
        count = min(count, self._room)
        if count <= 0:
            return Granted(0, now_us, {SLOTS: now_us + RETRY_US})
        self._read_definitions(now_us)
        rates = {
            name: one for name in limits if (one := self._rates.get(semaphore_of(name))) is not None
        }
        names = [name for name in limits if name not in rates]
        readings = {name: self._meters.read(name, one) for name, one in rates.items()}
        lacking = {name: seen.next_us for name, seen in readings.items() if seen.left <= 0}
        count = min([count, *(reading.left for reading in readings.values())])
        if lacking:
            return Granted(0, now_us, lacking)
        wish = PermitRequest(count, priority, self._since(limits, priority, now_us), queue)
        least, lacking = self._take_permits(names, wish, lease_us)
        most: dict[str, int] = {}
        for name, one in rates.items() if least else ():
            most[name], next_us = self._meters.take(name, one, readings[name], least)
            least = min(least, most[name])
            if not least:
                lacking = {name: next_us}
        for name, taken in most.items():
            self._meters.unused(name, taken - least)
        if least:
            del self._waits[tuple(limits), priority]
            self._used.update(dict.fromkeys(names, least))
            self._room -= least
        with self._lock:
            until_us = min([now_us + lease_us, *(self._until_us.get(name, 0) for name in names)])
        return Granted(least, until_us, lacking)

    def _take_permits(
        self, names: Sequence[str], wish: PermitRequest, lease_us: int
    ) -> tuple[int, dict[str, int]]:
        """Take permits of semaphores; return for how many jobs, and when to ask refusing ones."""
        if not names:
            return wish.more, {}
        with self._lock:
            seen = {name: self._see(name) for name in names}
            more = {name: self._more(name, one, wish) for name, one in seen.items()}
            lacking = [name for name in names if not more[name]]
            if lacking:
                self._wait_for(lacking, seen, wish)
                return 0, {name: _again_us(seen[name]) for name in lacking}
            least = min(more.values())
            for name in names:
                least = min(least, self._ask(name, seen[name], wish._replace(more=least), lease_us))
                if not least:
                    return 0, {name: _again_us(seen[name])}
        return least, {}

    def _since(self, limits: Sequence[str], priority: int, now_us: int) -> int:
        """Return when permits of these limits were first requested; a long pause resets that."""
        kind = (tuple(limits), priority)
        since_us, asked_us = self._waits.get(kind, (now_us, now_us))
        if now_us - asked_us > semaphore.WAIT_US:
            since_us = now_us
        if len(self._waits) > _WAITS_MAX:
            self._waits.clear()
        self._waits[kind] = (since_us, now_us)
        return since_us

    def unused(self, limits: Sequence[str], count: int) -> None:
        """Note that a claim brought `count` fewer jobs than there were permits for."""
        for name in limits:
            if semaphore_of(name) in self._rates:
                self._meters.unused(name, count)
            else:
                self._used[name] -= count
        self._room += count

    def used(self, limits: Sequence[str], claims: Sequence[Claim]) -> None:
        """Note for which claims the permits of the last take are."""
        for name in limits:
            if (one := self._rates.get(semaphore_of(name))) is not None:
                self._meters.used(name, one, claims)

    @property
    def start_by_us(self) -> Mapping[Claim, int]:
        """Until when jobs with rates may still start, by the store's time (rule N5)."""
        return self._meters.start_by_us

    def started(self, claims: Iterable[Claim], now_us: int) -> None:
        """Note that jobs started by now."""
        self._meters.started(claims, now_us)

    def is_open(self, name: str) -> bool:
        """Return whether a limit allows anything at all, as of the last read."""
        return semaphore_of(name) in self._rates or self._capacity(name) > 0

    def _more(self, name: str, seen: _PermitsRead, wish: PermitRequest) -> int:
        """Return how many permits beyond the used ones may be held, up to the request."""
        free = semaphore.spare(
            seen.permits, seen.capacity, self._worker, wish, seen.now_us,
            has_unused=self._stored.get(name, 0) > self._used[name],
        )  # fmt: skip
        return max(0, min(wish.more, free - self._used[name]))

    def _ask(self, name: str, seen: _PermitsRead, wish: PermitRequest, lease_us: int) -> int:
        """Hold more permits than are used, as far as available; return how many more."""
        for _ in range(_ROUNDS_MAX):
            more = self._more(name, seen, wish)
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
        self, lacking: Collection[str], seen: Mapping[str, _PermitsRead], wish: PermitRequest
    ) -> None:
        """Record the wait, so that released permits are reserved for the workers whose turn it is.

        Where the worker waited for a limit and now lacks another, it gives up its place, so that
        others can have these permits. Where only this worker holds permits, nothing is recorded.
        """
        kind = (tuple(seen), wish.priority)
        for name, one in seen.items():
            waits = self._waiting.setdefault(name, set())
            permits: Permits | None = None
            if name not in lacking:
                waits.discard(kind)
                if not waits and self._worker in one.permits.waiting:
                    permits = semaphore.after_turn(one.permits, self._worker, wish, one.now_us)
            elif one.permits.in_use(one.now_us) > one.permits.held(self._worker, one.now_us):
                waits.add(kind)
                permits = semaphore.with_wait(one.permits, self._worker, wish, one.now_us)
            if permits is not None:  # if that fails, the next request repeats it
                semaphore.write(
                    self._engine.store, name, permits, expect=one.version, ids=self._engine.ids
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
        self._meters.settle(self._rates)
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
        with self._lock:
            for name in [*self._waiting]:
                try:
                    seen = self._see(name)
                except StoreCorrupt:  # the wait expires by itself
                    continue
                nothing = PermitRequest(0, 0, seen.now_us, "")
                permits = semaphore.after_turn(seen.permits, self._worker, nothing, seen.now_us)
                semaphore.write(  # if that fails, the wait expires by itself
                    self._engine.store, name, permits, expect=seen.version, ids=self._engine.ids
                )
                del self._waiting[name]

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
                try:
                    kept = self._renew(name, lease_us)
                except StoreCorrupt as error:  # the permits last as long as was last written
                    log.warning("permits of %s cannot be extended: %s", name, error)
                    continue
                lost += mine[kept:] if kept < used[name] else []
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
        self._read_definitions(now_us)
        permits, version = semaphore.read(self._engine.store, name)
        return _PermitsRead(permits, version, self._capacity(name), now_us)

    def _read_definitions(self, now_us: int) -> None:
        if self._read_us is None or now_us - self._read_us > DEFINITIONS_AGE_US:
            store = self._engine.store
            self._rates = rate.rates(store)
            # A rate that cannot be read allows nothing: its count is not known.
            self._capacities = {
                **semaphore.capacities(store),
                **dict.fromkeys(rate.damaged(store), 0),
            }
            self._read_us = now_us

    def _capacity(self, name: str) -> int:
        return self._capacities.get(semaphore_of(name), CAPACITY_DEFAULT)

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


def used_by(jobs: Iterable[Job]) -> Counter[str]:
    """Count the permits that jobs need, by limit."""
    return Counter(name for job in jobs for name in limits_of(job.lane))


# Limits that allow nothing for a while, because a handler asked for it


def suspend(engine: Engine, limits: Iterable[str], until_us: int) -> None:
    """Let no job of these limits start before a timestamp, or before a later one already set.

    Raises: Conflict: a limit keeps changing. Unknown: some may be suspended; repeating is safe.
    """
    rates = rate.rates(engine.store)
    for name in limits:
        one = rates.get(semaphore_of(name))
        for _ in range(_ROUNDS_MAX):
            is_suspended = (
                _suspend_semaphore(engine, name, until_us)
                if one is None
                else _suspend_rate(engine, name, one, until_us)
            )
            if is_suspended:
                break
        else:
            raise Conflict(f"The limit {name} keeps changing.", hint="Try again.")


def _suspend_semaphore(engine: Engine, name: str, until_us: int) -> bool:
    permits, version = semaphore.read(engine.store, name)
    closed = replace(permits, closed_us=max(permits.closed_us, until_us))
    return closed == permits or semaphore.write(
        engine.store, name, closed, expect=version, ids=engine.ids
    )


def _suspend_rate(engine: Engine, name: str, one: Rate, until_us: int) -> bool:
    meter, version = rate.read(engine.store, name)
    closed = replace(meter, closed_us=max(meter.closed_us, until_us))
    return closed == meter or rate.write(
        engine.store, name, closed, one, expect=version, ids=engine.ids
    )
