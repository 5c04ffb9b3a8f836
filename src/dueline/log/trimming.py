"""Trimming: which rows of a stream have been deleted.

Before rows of a shard expire, one record stores the position of the last of them. A reader before
that position has missed rows, and can tell; a reader at it or past it has missed none, however long
nothing was appended. Rows in the bucket that is still kept may be announced a little early: they
are deleted next.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dueline.core.codec import decode, encode
from dueline.core.pagination import records_in
from dueline.core.readable_records import value_at
from dueline.core.store import Put, Records, Store
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
    """Return the partition with the position of the last trimmed row, a key for each shard."""
    return f"stream-gone/{stream}"


def places(records: Records, stream: str) -> Mapping[int, Place]:
    """Return the position of the last trimmed row of each shard; untrimmed shards are omitted."""
    return {
        int(record.key): decode(record.value, _Stored).place
        for record in records_in(records, partition_of(stream))
    }


def trim(store: Store, stream: str, shard: int, *, before_us: int, version: bytes) -> None:
    """Close a shard up to a timestamp, and delete the rows before it, in whole buckets.

    Any process may call this, at any time, where no group is registered.

    Args: version: random, for the record that is written first.
    """
    if announce(store, stream, shard, before_us=before_us, version=version):
        store.expire(stream, shard, before_us=before_us)


def announce(store: Store, stream: str, shard: int, *, before_us: int, version: bytes) -> bool:
    """Close a shard up to a timestamp, and record that the rows before it will be deleted.

    Args: version: random, for the record.

    Returns: whether there are such rows and the record is written.
    """
    store.close_until(stream, shard, at_us=before_us - 1)
    last = _last(store, stream, shard, before_us - 1)
    return last is not None and _say(store, stream, shard, last, version)


def move_past_trimmed(
    records: Records, stream: str, shard: int, present: Checkpoint, *,
    begin: Place, note: str, version: bytes,
) -> Checkpoint | None:  # fmt: skip
    """Move a checkpoint that was just opened past all announced rows (rule F6).

    Only a group that was registered, or moved back, after the announcement can be before them.

    Args: begin: where a checkpoint without a place begins. note: what is stored beside it.

    Returns: the current checkpoint; None: another process has written it since.
    """
    trimmed, _ = value_at(records, partition_of(stream), _key(shard), _Stored)
    last = begin if trimmed is None else trimmed.place
    if last <= (present.place or begin):
        return present
    wanted = checkpoint.with_place(present, last, rows=0, version=version, note=note)
    return wanted if checkpoint.write(records, present, wanted) else None


def _say(records: Records, stream: str, shard: int, last: Place, version: bytes) -> bool:
    """Write the position of the last row, unless a later one is stored; False: conflicts."""
    key, value = _key(shard), encode(_Stored(last[0], last[1].hex()))
    for _ in range(_ROUNDS_MAX):
        present, expect = value_at(records, partition_of(stream), key, _Stored)
        if present is not None and present.place >= last:
            return True
        if records.commit(partition_of(stream), (Put(key, version, value, expect=expect),)):
            return True
    return False


def _last(store: Store, stream: str, shard: int, until_us: int) -> Place | None:
    """Find the last row up to a timestamp, in some 50 reads at most; None: no row."""
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
