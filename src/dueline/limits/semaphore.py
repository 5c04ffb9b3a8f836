"""Semaphores: how many jobs of a kind run at the same time.

A semaphore has one capacity for all its keys, except those with a capacity of their own, and one
record for each key: how many permits each worker holds and until when, and which workers wait. A
job takes one permit, or as many as its cost. A worker holds its permits as a number, so a
claim of a hundred jobs costs no more than a claim of one. It writes only its own number, so a write
with an unknown outcome can be repeated.

If a worker dies, its permits are released when they expire. Released permits are reserved for
HANDOVER_US for the workers whose turn it is: those with more urgent jobs, then those that have
waited longer. All semaphores prefer the same worker, so two workers that need several semaphores
never block each other for long.

The permits that a job of a larger cost waits for stay reserved until its worker has come, so that
jobs of smaller costs do not take them one by one for ever (rule N9).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, NamedTuple, cast

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import decode, encode
from dueline.core.constraints import check_value, integer
from dueline.core.errors import BadInput
from dueline.core.ids import Ids
from dueline.core.limit_names import CAPACITY_MAX, check_limit, semaphore_of
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

    since_us: when it first asked. is_kept: released permits are reserved until it has come, and not
    only for HANDOVER_US.
    """

    more: int
    priority: int
    since_us: int
    queue: str
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """The permits of a worker, until a timestamp of the store's clock."""

    count: int
    until_us: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The permits, or tokens of a rate, that a worker waits for until a timestamp.

    is_kept: they are reserved as long as it waits.
    """

    count: int
    priority: int
    since_us: int
    queue: str
    until_us: int
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class Permits:
    """The permits of one key of a semaphore, by worker.

    freed_us: when some were last released. closed_us: none are granted before. level: the capacity
    of an adaptive semaphore as its workers have set it, 0 at first. cut_us: when they lowered it.
    """

    holders: Mapping[str, Hold] = field(default_factory=dict)
    waiting: Mapping[str, Wait] = field(default_factory=dict)
    freed_us: int = 0
    closed_us: int = 0
    level: int = 0
    cut_us: int = 0

    def held(self, worker: str, now_us: int) -> int:
        """Return how many permits a worker holds now."""
        hold = self.holders.get(worker)
        return 0 if hold is None or hold.until_us <= now_us else hold.count

    def in_use(self, now_us: int) -> int:
        """Return how many permits are held."""
        return sum(hold.count for hold in self.holders.values() if hold.until_us > now_us)


def before(
    waiting: Mapping[str, Wait], worker: str, wish: PermitRequest, now_us: int
) -> Sequence[str]:
    """Return the workers whose turn comes first: more urgent jobs, then a longer wait.

    For the turn of the worker itself, what it already waits for counts too: which of its jobs runs
    first is its own choice.
    """
    mine = _turn(wish, worker)
    known = waiting.get(worker)
    if known is not None and known.until_us > now_us:
        mine = min(mine, _turn(known, worker))
    return [
        name
        for name, wait in waiting.items()
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
    if permits.waiting:
        is_handover = has_unused or now_us < permits.freed_us + HANDOVER_US
        first = before(permits.waiting, worker, wish, now_us)
        waits = [permits.waiting[name] for name in first]
        free -= sum(wait.count for wait in waits if is_handover or wait.is_kept)
    return max(0, free)


def kept_before(waiting: Mapping[str, Wait], worker: str, wish: PermitRequest, now_us: int) -> int:
    """Return how many units are reserved for workers whose turn comes first (rule N9)."""
    if not waiting:
        return 0
    waits = [waiting[name] for name in before(waiting, worker, wish, now_us)]
    return sum(wait.count for wait in waits if wait.is_kept)


def with_hold(permits: Permits, worker: str, hold: Hold, now_us: int) -> Permits:
    """Return permits with what a worker holds from now on; expired holds are dropped."""
    holders = {
        name: held
        for name, held in permits.holders.items()
        if name != worker and held.until_us > now_us
    }
    freed_us = now_us if hold.count < permits.held(worker, now_us) else permits.freed_us
    if hold.count:
        holders[worker] = hold
    closed_us = permits.closed_us if permits.closed_us > now_us else 0
    return replace(permits, holders=holders, freed_us=freed_us, closed_us=closed_us)


def after_turn(permits: Permits, worker: str, wish: PermitRequest, now_us: int) -> Permits:
    """Return permits after a worker took what it requested: it waits no more for that.

    Workers that did not take permits while they were reserved for them lose their place too; they
    ask again if they still want any.
    """
    gone = {worker} if is_turn_of(permits.waiting.get(worker), wish) else set()
    if now_us >= permits.freed_us + HANDOVER_US:
        first = before(permits.waiting, worker, wish, now_us)
        waits = [(name, permits.waiting[name]) for name in first]
        gone.update(
            name for name, wait in waits if wait.since_us <= permits.freed_us and not wait.is_kept
        )
    return _without(permits, gone, now_us)


def is_turn_of(wait: Wait | None, wish: PermitRequest) -> bool:
    """Return whether what a worker took is what it waited for, or waits for no longer."""
    return wait is None or not wait.is_kept or wait.since_us == wish.since_us


def with_wait(permits: Permits, worker: str, wish: PermitRequest, now_us: int) -> Permits | None:
    """Return permits with the wait of a worker; None: it is recorded already."""
    waiting = waits_with(permits.waiting, worker, wish, now_us)
    return None if waiting is None else replace(permits, waiting=waiting)


def waits_with(
    waiting: Mapping[str, Wait], worker: str, wish: PermitRequest, now_us: int
) -> Mapping[str, Wait] | None:
    """Return what workers wait for with the wait of one of them; None: it is recorded already."""
    known = waiting.get(worker)
    if known is not None and known.until_us > now_us:
        is_fresh = known.until_us > now_us + WAIT_US // 2
        comes_first = (-known.priority, known.since_us) <= (-wish.priority, wish.since_us)
        is_enough = not wish.is_kept or (known.is_kept and known.count >= wish.more)
        if is_fresh and comes_first and is_enough:
            return None
        if comes_first:
            count = max(known.count, wish.more) if wish.is_kept else known.count
            is_kept = known.is_kept or wish.is_kept
            wish = PermitRequest(count, known.priority, known.since_us, known.queue, is_kept)
    wait = Wait(wish.more, wish.priority, wish.since_us, wish.queue, now_us + WAIT_US, wish.is_kept)
    return {**waits_without(waiting, {worker}, now_us), worker: wait}


def waits_without(
    waiting: Mapping[str, Wait], gone: Collection[str], now_us: int
) -> Mapping[str, Wait]:
    """Return what workers wait for, without some workers and without expired waits."""
    return {
        name: wait for name, wait in waiting.items() if name not in gone and wait.until_us > now_us
    }


def next_in_turn(permits: Permits, free: int, worker: str, now_us: int) -> list[str]:
    """Return the other workers for which `free` permits suffice, in order of their turns.

    All others would be refused: released permits are reserved for these (rule N3).
    """
    turns = sorted(
        (_turn(wait, name), name, wait.count, wait.is_kept)
        for name, wait in permits.waiting.items()
        if name != worker and wait.until_us > now_us
    )
    names: list[str] = []
    for _, name, count, is_kept in turns:
        if free < (count if is_kept else 1):
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
    return replace(permits, waiting=waits_without(permits.waiting, gone, now_us))


# Adaptive semaphores


ADAPTED_US: Final = DAY_US
"""How long the capacity that workers have set stays after the last change or use."""


@dataclass(frozen=True, slots=True)
class Semaphore:
    """The setting of a semaphore, or of one key.

    capacity: for an adaptive semaphore, what it begins with. least, most: bounds of an adaptive
    capacity, 0 and 0 for others. latency_us: a job that runs longer lowers it; 0: none does.
    """

    capacity: int
    least: int = 0
    most: int = 0
    latency_us: int = 0

    @property
    def ceiling(self) -> int:
        """The largest capacity that it may have."""
        return self.most or self.capacity


def check_setting(
    name: str, capacity: object, bounds: object = None, latency_us: int = 0
) -> Semaphore:
    """Return the setting of a semaphore or of one key.

    Args: bounds: of an adaptive capacity. latency_us: see `Semaphore`.

    Raises: BadInput: a value is out of range.
    """
    check_limit(name, capacity)
    if bounds is None:
        return Semaphore(cast("int", capacity))
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:  # noqa: PLR2004
        raise BadInput(
            f"`adaptive` must be two bounds (got {bounds!r:.80}).", hint="Use adaptive=(1, 50)."
        )
    for bound in bounds:
        check_value(bound, _Bound, "adaptive")
    least, most = cast("tuple[int, int]", bounds)
    if not least <= cast("int", capacity) <= most:
        raise BadInput(
            f"`capacity` must be between the bounds {least} and {most} (got {capacity}).",
            hint="It is the capacity to begin with.",
        )
    return Semaphore(cast("int", capacity), least, most, latency_us)


_Bound = Annotated[int, integer(1, CAPACITY_MAX)]


def capacity_now(permits: Permits, setting: Semaphore) -> int:
    """Return the capacity of a semaphore, as its workers have adapted it."""
    if not (setting.most and setting.capacity):
        return setting.capacity
    return max(setting.least, min(setting.most, permits.level or setting.capacity))


def raised(permits: Permits, setting: Semaphore) -> Permits:
    """Return permits of an adaptive semaphore after many successes at its capacity: one more."""
    return replace(permits, level=min(setting.most, capacity_now(permits, setting) + 1))


def cut(permits: Permits, setting: Semaphore, now_us: int) -> Permits:
    """Return permits of an adaptive semaphore after a server had too much to do: a third less."""
    level = max(setting.least, capacity_now(permits, setting) * 2 // 3)
    return replace(permits, level=level, cut_us=now_us)


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
    if expect == NO_VERSION and not _says_anything(permits):
        return True
    change = change_of(name, permits, expect=expect, ids=ids)
    return records.commit(change.partition, change.writes)


def change_of(name: str, permits: Permits, *, expect: bytes, ids: Ids) -> Commit:
    """Return the write of permits that were read; deletes the record when it is empty."""
    change: Write
    if _says_anything(permits):
        ends_us = [permits.closed_us, permits.cut_us]
        if permits.level:
            ends_us.append(max(permits.cut_us, permits.freed_us) + ADAPTED_US)
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


def _says_anything(permits: Permits) -> bool:
    return bool(permits.holders or permits.waiting or permits.closed_us or permits.level)


def define(records: Records, name: str, setting: int | Semaphore, *, ids: Ids) -> None:
    """Set the capacity of a semaphore, which its keys have, or of one key; create it if needed."""
    if isinstance(setting, int):
        setting = Semaphore(setting)
    records.commit(_SEMAPHORES, (Put(name, ids.token(), encode(setting)),))


def forget(records: Records, name: str) -> None:
    """Delete the setting of a semaphore, or of one key: it has the default capacity again."""
    records.commit(_SEMAPHORES, (Delete(name),))


def settings(records: Records) -> Mapping[str, Semaphore]:
    """Read the settings of all semaphores and keys, by name; closed for damaged records."""
    closed = {record.key: Semaphore(0) for record in records_in(records, _SEMAPHORES)}
    pairs = readable(records, _SEMAPHORES, Semaphore)
    return closed | {record.key: semaphore for record, semaphore in pairs}


def capacities(records: Records) -> Mapping[str, int]:
    """Read the capacities of all semaphores that were set, by name; 0 for damaged records."""
    return {name: setting.capacity for name, setting in settings(records).items()}


def setting_of(known: Mapping[str, Semaphore], name: str) -> Semaphore:
    """Return the setting of a limit: of its key, of its semaphore, or the default."""
    return known.get(name) or known.get(semaphore_of(name), _DEFAULT)


_DEFAULT: Final = Semaphore(CAPACITY_DEFAULT)


def unreadable_of(records: Records, names: Iterable[str]) -> Iterator[Unreadable]:
    """Yield damaged records: of all semaphores, and of the permits of these names."""
    yield from unreadable(records, _SEMAPHORES, Semaphore)
    for name in names:
        yield from unreadable(records, _partition(name), Permits)
