"""Which rows of a stream have been let go of.

Before a shard's rows expire, one record says where the last of them lies. A reader that stands
before that place has missed rows, and can know it; one that stands at it or behind it has missed
none, however long nothing was appended. What lies in the bucket that goes on being kept may be
said to be gone a little early: it goes next.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dueline.core.codec import decode, encode
from dueline.core.pagination import record_at, records_in
from dueline.core.store import NO_VERSION, Put, Records, Store
from dueline.log import checkpoint
from dueline.log.checkpoint import Checkpoint, Place

_PAGE: Final = 1000
_ROUNDS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class _Stored:
    at_us: int
    id: str

    @property
    def place(self) -> Place:
        return self.at_us, bytes.fromhex(self.id)


def partition_of(stream: str) -> str:
    """Name the partition that says where the last rows lay that went, a key for each shard."""
    return f"stream-gone/{stream}"


def places(records: Records, stream: str) -> Mapping[int, Place]:
    """Tell where the last row lay that each shard has let go of; not of those that lost none."""
    return {
        int(one.key): decode(one.value, _Stored).place
        for one in records_in(records, partition_of(stream))
    }


def trim(store: Store, stream: str, shard: int, *, before_us: int, version: bytes) -> None:
    """Close a shard up to an instant, and let go of the rows below it, in whole buckets.

    Anyone may call this, as often as they like, where no group is registered.

    Args: version: random, for the record that says so first.
    """
    if announce(store, stream, shard, before_us=before_us, version=version):
        store.expire(stream, shard, before_us=before_us)


def announce(store: Store, stream: str, shard: int, *, before_us: int, version: bytes) -> bool:
    """Close a shard up to an instant, and say that the rows below it go; they are there yet.

    Args: version: random, for the record that says so.

    Returns: whether rows lie there and that is said.
    """
    store.close_until(stream, shard, at_us=before_us - 1)
    last = _last(store, stream, shard, before_us - 1)
    return last is not None and _say(store, stream, shard, last, version)


def move_past_trimmed(
    records: Records, stream: str, shard: int, present: Checkpoint, *,
    begin: Place, note: str, version: bytes,
) -> Checkpoint | None:  # fmt: skip
    """Move a checkpoint that was just opened behind all that was said to go (rule F6).

    Only a group that was registered, or moved back, after that was said stands before it.

    Args: begin: where it begins that has no place yet. note: what is kept beside it.

    Returns: the checkpoint as it stands now; None: somebody else has written it since.
    """
    record = record_at(records, partition_of(stream), _key(shard))
    last = begin if record is None else decode(record.value, _Stored).place
    if last <= (present.place or begin):
        return present
    wanted = checkpoint.with_place(present, last, rows=0, version=version, note=note)
    return wanted if checkpoint.write(records, present, wanted) else None


def _say(records: Records, stream: str, shard: int, last: Place, version: bytes) -> bool:
    """Write where the last row lies, unless a later one is written; False: others keep writing."""
    key, value = _key(shard), encode(_Stored(last[0], last[1].hex()))
    for _ in range(_ROUNDS_MAX):
        present = record_at(records, partition_of(stream), key)
        if present is not None and decode(present.value, _Stored).place >= last:
            return True
        expect = NO_VERSION if present is None else present.version
        if records.commit(partition_of(stream), (Put(key, version, value, expect=expect),)):
            return True
    return False


def _last(store: Store, stream: str, shard: int, until_us: int) -> Place | None:
    """Find the last row up to an instant, in some 50 reads at most; None: there is none."""
    rows = store.tail(stream, shard, after=None, limit=_PAGE, until_us=until_us).rows
    if len(rows) == _PAGE:
        low_us, high_us = rows[-1].at_us, until_us
        while low_us < high_us:
            middle_us = (low_us + high_us + 1) // 2
            page = store.tail(stream, shard, after=(middle_us, b""), limit=1, until_us=until_us)
            if page.rows:
                low_us = page.rows[0].at_us
            else:
                high_us = middle_us - 1
        after: Place | None = (low_us, b"")
        while len(rows) == _PAGE:  # many may lie at one instant
            page = store.tail(stream, shard, after=after, limit=_PAGE, until_us=until_us)
            rows, after = page.rows or rows[-1:], page.after
    return (rows[-1].at_us, rows[-1].id) if rows else None


def _key(shard: int) -> str:
    return f"{shard:05}"
