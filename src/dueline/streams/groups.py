"""Consumer groups of a stream: their members, and how far each has read."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Final, NamedTuple

from dueline.coordination.leases import Grant
from dueline.core.codec import decode, encode
from dueline.core.errors import Conflict, NotFound
from dueline.core.pagination import record_at, records_in
from dueline.core.readable_records import Unreadable, unreadable, unreadable_by
from dueline.core.store import NO_VERSION, Delete, Put, Record, Records, Row, Store
from dueline.core.watermark import SEALED_US
from dueline.log import checkpoint
from dueline.log.checkpoint import Checkpoint, read_all
from dueline.streams import topics
from dueline.streams.dead_letters import read_note

ROWS_COUNTED_MAX: Final = 10_000
"""Maximum number of rows that are counted for a lag."""


@dataclass(frozen=True, slots=True)
class Group:
    """A registered group. from_us: where it begins in shards that it has not read yet.

    pattern: of the topics that it reads; None: it reads all events.
    """

    from_us: int
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """What a member of a group reports with each heartbeat.

    shards: those that it holds. busy_us: since when its longest handler has been running, 0 for
    none: a stuck member still sends heartbeats.
    """

    name: str
    shards: tuple[int, ...]
    beat_us: int
    busy_us: int = 0


class Lag(NamedTuple):
    """How far a group is behind in a shard.

    rows: unread rows, counted up to ROWS_COUNTED_MAX. waits_us: age of the oldest unread row.
    read: number of rows read. epoch: of the last holder. read_us: timestamp of the last row that
    was read or skipped; 0 if none was, or a resharded shard is read to its end.
    """

    shard: int
    rows: int
    waits_us: int
    read: int
    epoch: int
    read_us: int = 0


def groups_at(stream: str) -> str:
    """Return the partition of a stream's groups, a key for each."""
    return f"stream-groups/{stream}"


def leases_at(stream: str, group: str) -> str:
    """Return the partition of a group's leases, a key for each shard."""
    return f"stream-leases/{stream}/{group}"


def checkpoints_at(stream: str, group: str) -> str:
    """Return the partition of a group's checkpoints, a key for each shard."""
    return f"stream-checkpoints/{stream}/{group}"


def register(
    records: Records,
    stream: str,
    group: str,
    *,
    from_us: int,
    version: bytes,
    pattern: str | None = None,
) -> Group:
    """Register a group if needed: from then on no event that it has not read expires.

    Args: pattern: of the topics that it reads; another one replaces that of a registered group.

    Returns: the group as it begins where it was first registered.
    """
    put = Put(group, version, encode(Group(from_us, pattern)), expect=NO_VERSION)
    records.commit(groups_at(stream), (put,))
    record = record_at(records, groups_at(stream), group)
    if record is None:
        raise Conflict(f"The group {stream}/{group} was just removed.", hint="Try again.")
    present = decode(record.value, Group)
    if present.pattern == pattern:
        return present
    changed = replace(present, pattern=pattern)
    records.commit(groups_at(stream), (Put(group, version, encode(changed), record.version),))
    return changed


def forget(records: Records, stream: str, group: str) -> None:
    """Unregister a group: events that it has not read may expire."""
    records.commit(groups_at(stream), (Delete(group),))


def registered(records: Records, stream: str) -> Mapping[str, Group]:
    """Read the groups of a stream."""
    return {
        record.key: decode(record.value, Group) for record in records_in(records, groups_at(stream))
    }


def subscribers(records: Records) -> Mapping[str, Group]:
    """Read the groups that subscribe to topics."""
    groups = registered(records, topics.STREAM)
    return {name: group for name, group in groups.items() if group.pattern is not None}


def forget_subscriber(records: Records, name: str) -> None:
    """Unregister a subscriber to topics.

    Raises: NotFound: there is no such subscriber.
    """
    if name not in registered(records, topics.STREAM):
        raise NotFound(f"There is no subscriber {name:.80}.", hint="See `dueline topics list`.")
    forget(records, topics.STREAM, name)


def beat(
    records: Records, stream: str, group: str, member: Member, *, version: bytes, ttl_us: int
) -> None:
    """Write the heartbeat of a member; it expires with its lease."""
    put = Put(member.name, version, encode(member), expires_us=member.beat_us + ttl_us)
    records.commit(_members_at(stream, group), (put,))


def leave(records: Records, stream: str, group: str, name: str) -> None:
    """Delete the heartbeat of a member that stops."""
    records.commit(_members_at(stream, group), (Delete(name),))


def members(records: Records, stream: str, group: str) -> Sequence[Member]:
    """Read the live members of a group, by name."""
    return [
        decode(record.value, Member) for record in records_in(records, _members_at(stream, group))
    ]


def share(names: Collection[str], name: str, shards: int) -> int:
    """Return how many shards a member should hold: all hold the same number, or one more.

    A member that is not in `names` counts as if it were.
    """
    everyone = sorted({*names, name})
    each, rest = divmod(shards, len(everyone))
    return each + (everyone.index(name) < rest)


def preferred(name: str, shards: Iterable[int]) -> list[int]:
    """Return shards in the order in which a member takes them; each member has its own order."""
    return sorted(shards, key=lambda shard: blake2b(f"{name}/{shard}".encode()).digest())


def too_many(
    held: Mapping[int, str], names: Collection[str], shards: Collection[int]
) -> list[tuple[int, str]]:
    """Return the shards that are held beyond a fair share, each with its holder.

    Args: held: the holder of each shard. names: the live members.
    """
    excess = []
    for holder in sorted(set(held.values())):
        mine = [shard for shard, name in held.items() if name == holder]
        wanted = share(names, holder, len(shards)) if holder in names else 0
        excess += [(shard, holder) for shard in preferred(holder, mine)[wanted:]]
    return sorted(excess)


def places(records: Records, stream: str, group: str) -> Mapping[int, Checkpoint]:
    """Read the checkpoints of a group, by shard."""
    return {int(key): at for key, at in read_all(records, checkpoints_at(stream, group)).items()}


def lags(store: Store, stream: str, group: str, shards: Iterable[int], *, now_us: int) -> list[Lag]:
    """Return how far a group is behind, for each shard."""
    known = places(store, stream, group)
    behind = []
    for shard, rows in _unread(store, stream, group, shards, known, limit=ROWS_COUNTED_MAX):
        present = known.get(shard, Checkpoint("", ""))
        waits_us = max(0, now_us - rows[0].at_us) if rows else 0
        read_us = present.place[0] if present.place and present.place[0] < SEALED_US else 0
        behind.append(Lag(shard, len(rows), waits_us, present.rows, present.epoch, read_us))
    return behind


def waits_us(
    store: Store, stream: str, group: str, shards: Iterable[int], *, now_us: int
) -> int | None:
    """Return the age of the oldest unread event of a group; None: all events are read."""
    known = places(store, stream, group)
    heads = _unread(store, stream, group, shards, known, limit=1)
    return max((now_us - row.at_us for _, rows in heads for row in rows), default=None)


def _unread(
    store: Store,
    stream: str,
    group: str,
    shards: Iterable[int],
    known: Mapping[int, Checkpoint],
    *,
    limit: int,
) -> Iterator[tuple[int, Sequence[Row]]]:
    """Read the first events of each shard that a group has not read."""
    begun = registered(store, stream).get(group, Group(0))
    is_wanted = topics.chosen(begun.pattern)
    for shard in shards:
        place = known[shard].place if shard in known else None
        after = place or (begun.from_us, b"")
        most = limit if is_wanted is None else ROWS_COUNTED_MAX
        rows = store.tail(stream, shard, after=after, limit=most, until_us=SEALED_US).rows
        wanted = rows if is_wanted is None else list(filter(is_wanted, rows))
        # A group moves past events of other topics: one with a whole page of them is behind.
        yield shard, wanted or (rows[:1] if len(rows) == ROWS_COUNTED_MAX else [])


def needed_us(records: Records, stream: str, shards: Collection[int]) -> Mapping[int, int]:
    """Return from which timestamp on registered groups need the rows of each shard.

    Earlier rows may expire (rule F4). Shards that no group needs are omitted.
    """
    needed: dict[int, int] = {}
    for name, group in registered(records, stream).items():
        known = places(records, stream, name)
        for shard in shards:
            place = known[shard].place if shard in known else None
            at_us = group.from_us if place is None else place[0]
            needed[shard] = min(at_us, needed.get(shard, at_us))
    return needed


def unreadable_of(records: Records, stream: str) -> Iterator[Unreadable]:
    """Yield damaged records of a stream: groups, their members, leases and checkpoints."""
    yield from unreadable(records, groups_at(stream), Group)
    for group in [record.key for record in records_in(records, groups_at(stream))]:
        yield from unreadable(records, _members_at(stream, group), Member)
        yield from unreadable(records, leases_at(stream, group), Grant)
        place = checkpoints_at(stream, group)
        yield from unreadable_by(records, place, partial(_read_checkpoint, place))


def _read_checkpoint(partition: str, record: Record) -> None:
    read_note(checkpoint.read(partition, record).note)


def _members_at(stream: str, group: str) -> str:
    return f"stream-members/{stream}/{group}"
