"""What is stored of batches: their names, and how many of their items are stored.

A partition names all batches. Each batch has a head, which counts the items that are stored. A
process that stores the next slice of items replaces the head that it has read, so of several
processes one stores each slice. On stores without transactions the head carries the rows of the
slice until all of them are stored (`jobs.decisions`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final
from zlib import compress, decompress

from dueline.batches.ends import KEEP_US
from dueline.core.batch_ids import BatchId
from dueline.core.codec import decode, encode
from dueline.core.errors import BadInput
from dueline.core.job import Job
from dueline.core.pagination import record_at, records_in
from dueline.core.store import NO_VERSION, Commit, Put, Records

PARTITION: Final = "batches"
NAME_MAX: Final = 200
"""Maximum length of the name of a batch, in characters."""

KEY_BYTES: Final = 16
"""Bytes of the digest of an item's key."""

NO_CHECK: Final = -1
"""Check sum of items whose encoding differs each time."""

_HEAD: Final = "head"
_NAME: Final = "name"


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch, as it is listed.

    Attributes:
      name: Its name.
      id: What the ids of its jobs begin with.
      task: The task of its jobs.
      queue: Their queue.
      begun_us: When its first items were stored.
      has_keys: Whether its items have keys, and not just positions.
    """

    name: str
    id: BatchId
    task: str
    queue: str
    begun_us: int
    has_keys: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """How much of a batch is stored.

    Attributes:
      items: Number of items.
      check: CRC-32 of their encoded arguments.
      decided_us: When the last slice was decided.
      version: Version of the record.
      rows: The rows of the last slice while they may be missing, compressed; otherwise empty.
      keys: Digests of the keys of these rows.
    """

    items: int = 0
    check: int = 0
    decided_us: int = 0
    version: bytes = NO_VERSION
    rows: bytes = b""
    keys: bytes = b""

    def carried(self) -> Sequence[Job]:
        """Return the rows that may be missing."""
        return decode(decompress(self.rows), list[Job]) if self.rows else ()


def packed(rows: Sequence[Job]) -> bytes:
    """Return rows as the head carries them."""
    return compress(encode(rows), 1)


def check_name(name: object) -> str:
    """Return the name of a batch.

    Raises:
      BadInput: It is not a string, empty, too long, or not printable.
    """
    if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX or not name.isprintable():
        raise BadInput(
            f"`name` must be a string of 1 to {NAME_MAX} printable characters (got {name!r:.80}).",
            hint='Use name="prices-2026-11".',
        )
    return name


def named(records: Records, name: str) -> Batch | None:
    """Return the batch of a name; None if it does not exist."""
    record = record_at(records, PARTITION, name)
    return None if record is None else decode(record.value, Batch)


def listed(records: Records, *, after: str | None = None) -> Iterator[Batch]:
    """Yield the batches after a name, in the order of their names."""
    for record in records_in(records, PARTITION, after=after):
        yield decode(record.value, Batch)


def put_batch(batch: Batch, version: bytes, now_us: int, *, is_new: bool) -> Commit:
    """Return the write that lists a batch, or lists it for longer."""
    expect = NO_VERSION if is_new else None
    put = Put(batch.name, version, encode(batch), expect, now_us + KEEP_US)
    return Commit(PARTITION, (put,))


def put_name(batch: Batch, version: bytes, now_us: int) -> Commit:
    """Return the write by which the jobs of a batch find its name."""
    put = Put(_NAME, version, batch.name.encode(), None, now_us + KEEP_US)
    return Commit(_partition_of(batch.id), (put,))


def name_of(records: Records, batch: BatchId) -> str:
    """Return the name of a batch; empty if it is not known any more."""
    record = record_at(records, _partition_of(batch), _NAME)
    return "" if record is None else record.value.decode()


def _partition_of(batch: BatchId) -> str:
    return f"{PARTITION}/{batch.hex()}"


def head_of(records: Records, batch: BatchId) -> Head:
    """Return how much of a batch is stored."""
    record = record_at(records, _partition_of(batch), _HEAD)
    if record is None:
        return Head()
    return replace(decode(record.value, Head), version=record.version)


def put_head(batch: BatchId, head: Head, expect: bytes) -> Commit:
    """Return the write of the head that replaces another version."""
    put = Put(_HEAD, head.version, encode(head), expect, head.decided_us + KEEP_US)
    return Commit(_partition_of(batch), (put,))


def put_keys(batch: BatchId, first: int, keys: bytes, head: Head) -> Commit:
    """Return the write of the keys of a slice whose first item has a position."""
    put = Put(f"{first:08}", head.version, keys, None, head.decided_us + KEEP_US)
    return Commit(f"{_partition_of(batch)}/keys", (put,))


def keys_of(records: Records, batch: BatchId, first: int) -> Iterator[bytes]:
    """Yield the digests of the keys of stored items from a position on, slice by slice."""
    after = f"{first - 1:08}" if first else None
    for record in records_in(records, f"{_partition_of(batch)}/keys", after=after, page_size=20):
        yield record.value
