"""Semaphores: how many jobs of a kind run at once.

A semaphore has a capacity, one for all its keys, and of each key one record: which workers hold
how many permits and until when, and which workers wait. A worker holds permits for its jobs as a
number, so that a claim of a hundred jobs costs no more than one of one; it writes its own number
and none of the others', so that a write of unknown fate is repeated without harm.

Who dies gives its permits back by letting them lapse. Who gives some back sees whether a worker
waits with more urgent jobs, or has waited longer, and for HANDOVER_US leaves them to it; so two
that need several semaphores never keep each other waiting for long: all semaphores tell the same
worker to go first.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from dueline.core.clock import SECOND_US
from dueline.core.codec import decode, encode
from dueline.core.ids import Ids
from dueline.core.limit_names import semaphore_of
from dueline.core.pagination import record_at, records_in
from dueline.core.readable_records import Unreadable, readable, unreadable
from dueline.core.store import NO_VERSION, Commit, Delete, Put, Records, Write

CAPACITY_DEFAULT: Final = 1
"""The capacity of a semaphore that nobody has made."""

HANDOVER_US: Final = SECOND_US // 2
"""So long permits that were given back are kept for the worker whose turn it is."""

WAIT_US: Final = 10 * SECOND_US
"""So long a worker waits without saying so again."""

_SEMAPHORES: Final = "semaphores"


class PermitRequest(NamedTuple):
    """What a worker would like: so many permits more, for jobs of this priority and queue.

    since_us: when it first asked.
    """

    more: int
    priority: int
    since_us: int
    queue: str


@dataclass(frozen=True, slots=True)
class Hold:
    """What a worker has: so many permits, until then by the store's clock."""

    count: int
    until_us: int


@dataclass(frozen=True, slots=True)
class Wait:
    """What a worker waits for, until then."""

    count: int
    priority: int
    since_us: int
    queue: str
    until_us: int


@dataclass(frozen=True, slots=True)
class Permits:
    """The permits of one key of a semaphore, by worker.

    freed_us: when some were given back. closed_us: no more are held before.
    """

    holders: Mapping[str, Hold] = field(default_factory=dict)
    waiting: Mapping[str, Wait] = field(default_factory=dict)
    freed_us: int = 0
    closed_us: int = 0

    def held(self, worker: str, now_us: int) -> int:
        """Tell how many permits a worker holds now."""
        hold = self.holders.get(worker)
        return 0 if hold is None or hold.until_us <= now_us else hold.count

    def in_use(self, now_us: int) -> int:
        """Tell how many permits are held."""
        return sum(hold.count for hold in self.holders.values() if hold.until_us > now_us)


def before(permits: Permits, worker: str, wish: PermitRequest, now_us: int) -> Sequence[str]:
    """List the workers whose turn comes before this one's: more urgent jobs, then a longer wait.

    What the worker waits for already counts for it, whatever it asks for now: which of its jobs
    comes first is its own affair.
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
    """Say when a worker's turn is: more urgent jobs, then a longer wait, then its name."""
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
    """Tell how many permits a worker may hold at most, those that it holds included.

    Never more than there are beside what others hold (rule N1). What was just given back is
    kept for those whose turn it is (rule N3).

    Args: has_unused: it holds some that its jobs need no more, which are not its own to use
      before those had a chance whose turn it is.
    """
    if now_us < permits.closed_us:
        return 0
    free = capacity - permits.in_use(now_us) + permits.held(worker, now_us)
    if has_unused or now_us < permits.freed_us + HANDOVER_US:
        first = before(permits, worker, wish, now_us)
        free -= sum(permits.waiting[name].count for name in first)
    return max(0, free)


def with_hold(permits: Permits, worker: str, hold: Hold, now_us: int) -> Permits:
    """Say what a worker holds from now on; what others held and has lapsed is left out."""
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
    """Let a worker wait no more, since it takes what it wished for.

    Nor do those wait whose turn it was while permits were kept for them: they did not come, and
    say so again if they still want any.
    """
    gone = {worker}
    if now_us >= permits.freed_us + HANDOVER_US:
        first = before(permits, worker, wish, now_us)
        gone.update(name for name in first if permits.waiting[name].since_us <= permits.freed_us)
    return _without(permits, gone, now_us)


def with_wait(permits: Permits, worker: str, wish: PermitRequest, now_us: int) -> Permits | None:
    """Let a worker wait for what it wishes; None: that is said already."""
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
    """Name the workers for whom so many permits are free, in their turn; this one aside.

    All others would be refused: what was given back is kept for these (rule N3).
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
    """Leave out a worker that is no more; None: it holds nothing, and waits for nothing."""
    if worker not in permits.holders and worker not in permits.waiting:
        return None
    return _without(with_hold(permits, worker, Hold(0, 0), now_us), {worker}, now_us)


def _without(permits: Permits, gone: Collection[str], now_us: int) -> Permits:
    """Leave out those who wait no more, and those who have said so long ago."""
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
    """Read the permits of a limit, and the version of what was read."""
    record = record_at(records, _partition(name), name)
    if record is None:
        return Permits(), NO_VERSION
    return decode(record.value, Permits), record.version


def write(records: Records, name: str, permits: Permits, *, expect: bytes, ids: Ids) -> bool:
    """Write the permits of a limit, if they stand as they were read.

    Raises: Unknown: it was written or not.
    """
    if expect == NO_VERSION and permits == Permits(freed_us=permits.freed_us):
        return True
    change = change_of(name, permits, expect=expect, ids=ids)
    return records.commit(change.partition, change.writes)


def change_of(name: str, permits: Permits, *, expect: bytes, ids: Ids) -> Commit:
    """Make the write of permits that were read; the record goes with the last that has a part."""
    change: Write
    if permits.holders or permits.waiting or permits.closed_us:
        ends_us = [permits.closed_us]
        ends_us += [one.until_us for one in permits.holders.values()]
        ends_us += [one.until_us for one in permits.waiting.values()]
        change = Put(name, ids.token(), encode(permits), expect=expect, expires_us=max(ends_us))
    else:
        change = Delete(name, expect=expect)
    return Commit(_partition(name), (change,))


def in_use(records: Records, semaphore: str) -> Mapping[str, Permits]:
    """Read the permits of all keys of a semaphore, by the name of the limit."""
    partition = _partition(semaphore)
    return {one.key: decode(one.value, Permits) for one in records_in(records, partition)}


@dataclass(frozen=True, slots=True)
class _Semaphore:
    capacity: int


def define(records: Records, semaphore: str, capacity: int, *, ids: Ids) -> None:
    """Set the capacity of a semaphore, each of its keys has as much; it is made if need be."""
    value = encode(_Semaphore(capacity))
    records.commit(_SEMAPHORES, (Put(semaphore, ids.token(), value),))


def forget(records: Records, semaphore: str) -> None:
    """Let go of what a semaphore is set to: its capacity is CAPACITY_DEFAULT again."""
    records.commit(_SEMAPHORES, (Delete(semaphore),))


def capacities(records: Records) -> Mapping[str, int]:
    """Read the capacities of all semaphores that were made, by name.

    A semaphore whose record is damaged allows nothing.
    """
    found = {one.key: 0 for one in records_in(records, _SEMAPHORES)}
    some = readable(records, _SEMAPHORES, _Semaphore)
    return found | {record.key: semaphore.capacity for record, semaphore in some}


def unreadable_of(records: Records, names: Iterable[str]) -> Iterator[Unreadable]:
    """Yield damaged records: of semaphores, and of the permits of those that are named."""
    yield from unreadable(records, _SEMAPHORES, _Semaphore)
    for name in names:
        yield from unreadable(records, _partition(name), Permits)
