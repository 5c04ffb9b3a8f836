"""Semaphores: how many jobs of a kind run at the same time.

A semaphore has one capacity for all its keys, and one record for each key: how many permits each
worker holds and until when, and which workers wait. A worker holds its permits as a number, so a
claim of a hundred jobs costs no more than a claim of one. It writes only its own number, so a write
with an unknown outcome can be repeated.

If a worker dies, its permits are released when they expire. Released permits are reserved for
HANDOVER_US for the workers whose turn it is: those with more urgent jobs, then those that have
waited longer. All semaphores prefer the same worker, so two workers that need several semaphores
never block each other for long.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from dueline.core.clock import SECOND_US
from dueline.core.codec import decode, encode
from dueline.core.ids import Ids
from dueline.core.limit_names import semaphore_of
from dueline.core.pagination import records_in
from dueline.core.readable_records import Unreadable, readable, unreadable, value_at
from dueline.core.store import NO_VERSION, Commit, Delete, Put, Records, Write

CAPACITY_DEFAULT: Final = 1
"""Default capacity of a semaphore that was never set."""

HANDOVER_US: Final = SECOND_US // 2
"""How long released permits are reserved for the worker whose turn it is."""

WAIT_US: Final = 10 * SECOND_US
"""How long a worker keeps its place in the queue without repeating its request."""

_SEMAPHORES: Final = "semaphores"


class PermitRequest(NamedTuple):
    """A worker's request for `more` permits, for jobs of this priority and queue.

    since_us: when it first asked.
    """

    more: int
    priority: int
    since_us: int
    queue: str


@dataclass(frozen=True, slots=True)
class Hold:
    """The permits of a worker, until a timestamp of the store's clock."""

    count: int
    until_us: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The permits that a worker waits for, until a timestamp."""

    count: int
    priority: int
    since_us: int
    queue: str
    until_us: int


@dataclass(frozen=True, slots=True)
class Permits:
    """The permits of one key of a semaphore, by worker.

    freed_us: when some were last released. closed_us: none are granted before.
    """

    holders: Mapping[str, Hold] = field(default_factory=dict)
    waiting: Mapping[str, Wait] = field(default_factory=dict)
    freed_us: int = 0
    closed_us: int = 0

    def held(self, worker: str, now_us: int) -> int:
        """Return how many permits a worker holds now."""
        hold = self.holders.get(worker)
        return 0 if hold is None or hold.until_us <= now_us else hold.count

    def in_use(self, now_us: int) -> int:
        """Return how many permits are held."""
        return sum(hold.count for hold in self.holders.values() if hold.until_us > now_us)


def before(permits: Permits, worker: str, wish: PermitRequest, now_us: int) -> Sequence[str]:
    """Return the workers whose turn comes first: more urgent jobs, then a longer wait.

    For the turn of the worker itself, what it already waits for counts too: which of its jobs runs
    first is its own choice.
    """
    mine = _turn(wish, worker)
    known = permits.waiting.get(worker)
    if known is not None and known.until_us > now_us:
        mine = min(mine, _turn(known, worker))
    return [
        name
        for name, wait in permits.waiting.items()
        if name != worker and wait.until_us > now_us and _turn(wait, name) < mine
    ]


def _turn(wait: PermitRequest | Wait, worker: str) -> tuple[int, int, str]:
    """Return the sort key of a turn: more urgent jobs, then a longer wait, then the name."""
    return (-wait.priority, wait.since_us, worker)


def spare(
    permits: Permits,
    capacity: int,
    worker: str,
    wish: PermitRequest,
    now_us: int,
    *,
    has_unused: bool = False,
) -> int:
    """Return the maximum number of permits that a worker may hold, including those it holds.

    Never more than the capacity that others leave (rule N1). Permits that were just released are
    reserved for the workers whose turn it is (rule N3).

    Args: has_unused: the worker holds permits that its jobs no longer need; workers whose turn
      comes first may have them before this worker uses them again.
    """
    if now_us < permits.closed_us:
        return 0
    free = capacity - permits.in_use(now_us) + permits.held(worker, now_us)
    if has_unused or now_us < permits.freed_us + HANDOVER_US:
        first = before(permits, worker, wish, now_us)
        free -= sum(permits.waiting[name].count for name in first)
    return max(0, free)


def with_hold(permits: Permits, worker: str, hold: Hold, now_us: int) -> Permits:
    """Return permits with what a worker holds from now on; expired holds are dropped."""
    holders = {
        name: one
        for name, one in permits.holders.items()
        if name != worker and one.until_us > now_us
    }
    freed_us = now_us if hold.count < permits.held(worker, now_us) else permits.freed_us
    if hold.count:
        holders[worker] = hold
    closed_us = permits.closed_us if permits.closed_us > now_us else 0
    return replace(permits, holders=holders, freed_us=freed_us, closed_us=closed_us)


def after_turn(permits: Permits, worker: str, wish: PermitRequest, now_us: int) -> Permits:
    """Return permits after a worker took what it requested: it waits no more.

    Workers that did not take permits while they were reserved for them lose their place too; they
    ask again if they still want any.
    """
    gone = {worker}
    if now_us >= permits.freed_us + HANDOVER_US:
        first = before(permits, worker, wish, now_us)
        gone.update(name for name in first if permits.waiting[name].since_us <= permits.freed_us)
    return _without(permits, gone, now_us)


def with_wait(permits: Permits, worker: str, wish: PermitRequest, now_us: int) -> Permits | None:
    """Return permits with the wait of a worker; None: it is recorded already."""
    known = permits.waiting.get(worker)
    if known is not None and known.until_us > now_us:
        is_fresh = known.until_us > now_us + WAIT_US // 2
        comes_first = (-known.priority, known.since_us) <= (-wish.priority, wish.since_us)
        if is_fresh and comes_first:
            return None
        if comes_first:
            wish = PermitRequest(known.count, known.priority, known.since_us, known.queue)
    wait = Wait(wish.more, wish.priority, wish.since_us, wish.queue, now_us + WAIT_US)
    others = _without(permits, {worker}, now_us)
    return replace(others, waiting={**others.waiting, worker: wait})


def next_in_turn(permits: Permits, free: int, worker: str, now_us: int) -> list[str]:
    """Return the other workers for which `free` permits suffice, in order of their turns.

    All others would be refused: released permits are reserved for these (rule N3).
    """
    turns = sorted(
        (_turn(wait, name), name, wait.count)
        for name, wait in permits.waiting.items()
        if name != worker and wait.until_us > now_us
    )
    names: list[str] = []
    for _, name, count in turns:
        if free <= 0:
            break
        names.append(name)
        free -= count
    return names


def without_worker(permits: Permits, worker: str, now_us: int) -> Permits | None:
    """Return permits without a dead worker; None: it neither holds nor waits for any."""
    if worker not in permits.holders and worker not in permits.waiting:
        return None
    return _without(with_hold(permits, worker, Hold(0, 0), now_us), {worker}, now_us)


def _without(permits: Permits, gone: Collection[str], now_us: int) -> Permits:
    """Return permits without these waits, and without expired ones."""
    waiting = {
        name: one
        for name, one in permits.waiting.items()
        if name not in gone and one.until_us > now_us
    }
    return replace(permits, waiting=waiting)


# Records


def _partition(name: str) -> str:
    return f"permits/{semaphore_of(name)}"


def read(records: Records, name: str) -> tuple[Permits, bytes]:
    """Read the permits of a limit, and their version."""
    permits, version = value_at(records, _partition(name), name, Permits)
    return permits or Permits(), version


def write(records: Records, name: str, permits: Permits, *, expect: bytes, ids: Ids) -> bool:
    """Write the permits of a limit, if they are unchanged since they were read.

    Raises: Unknown: they may or may not be written.
    """
    if expect == NO_VERSION and permits == Permits(freed_us=permits.freed_us):
        return True
    change = change_of(name, permits, expect=expect, ids=ids)
    return records.commit(change.partition, change.writes)


def change_of(name: str, permits: Permits, *, expect: bytes, ids: Ids) -> Commit:
    """Return the write of permits that were read; deletes the record when it is empty."""
    change: Write
    if permits.holders or permits.waiting or permits.closed_us:
        ends_us = [permits.closed_us]
        ends_us += [holder.until_us for holder in permits.holders.values()]
        ends_us += [wait.until_us for wait in permits.waiting.values()]
        change = Put(name, ids.token(), encode(permits), expect=expect, expires_us=max(ends_us))
    else:
        change = Delete(name, expect=expect)
    return Commit(_partition(name), (change,))


def in_use(records: Records, semaphore: str) -> Mapping[str, Permits]:
    """Read the permits of all keys of a semaphore, by the name of the limit."""
    partition = _partition(semaphore)
    return {record.key: decode(record.value, Permits) for record in records_in(records, partition)}


@dataclass(frozen=True, slots=True)
class _Semaphore:
    capacity: int


def define(records: Records, semaphore: str, capacity: int, *, ids: Ids) -> None:
    """Set the capacity of a semaphore, which each of its keys has; create it if needed."""
    value = encode(_Semaphore(capacity))
    records.commit(_SEMAPHORES, (Put(semaphore, ids.token(), value),))


def forget(records: Records, semaphore: str) -> None:
    """Delete the setting of a semaphore: its capacity is CAPACITY_DEFAULT again."""
    records.commit(_SEMAPHORES, (Delete(semaphore),))


def capacities(records: Records) -> Mapping[str, int]:
    """Read the capacities of all semaphores that were set, by name; 0 for damaged records."""
    found = {record.key: 0 for record in records_in(records, _SEMAPHORES)}
    some = readable(records, _SEMAPHORES, _Semaphore)
    return found | {record.key: semaphore.capacity for record, semaphore in some}


def unreadable_of(records: Records, names: Iterable[str]) -> Iterator[Unreadable]:
    """Yield damaged records: of all semaphores, and of the permits of these names."""
    yield from unreadable(records, _SEMAPHORES, _Semaphore)
    for name in names:
        yield from unreadable(records, _partition(name), Permits)
