"""Checkpoints: how far a reader has read.

A checkpoint only moves forward, and has the epoch of the lease under which it is written. A new
holder of a shard opens its checkpoint first, which writes the new epoch into it. From then on all
writes of earlier holders are refused, however late they arrive (rule L2).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from dueline.core.codec import decode, encode
from dueline.core.errors import Conflict, StoreCorrupt, Unknown
from dueline.core.pagination import records_in
from dueline.core.store import NO_VERSION, Commit, Put, Record, Records

Place = tuple[int, bytes]
"""A position: rows up to it, in order of (at_us, id), are read."""

_ROUNDS_MAX: Final = 20


class Checkpoint(NamedTuple):
    """A checkpoint.

    place: None at the start. rows: how many were read up to it. note: what the reader stores
    beside it, in the same write.
    """

    partition: str
    key: str
    version: bytes = NO_VERSION
    epoch: int = 0
    place: Place | None = None
    rows: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Stored:
    epoch: int
    at_us: int | None
    id: str
    rows: int
    note: str


def read_all(records: Records, partition: str) -> Mapping[str, Checkpoint]:
    """Read all checkpoints of a partition, by key."""
    return {record.key: read(partition, record) for record in records_in(records, partition)}


def open_under(
    records: Records, partition: str, key: str, *, epoch: int, version: bytes
) -> Checkpoint | None:
    """Open a checkpoint under the epoch of a lease, so that earlier holders can no longer write.

    The holder may open it again, which also refuses its own earlier writes.

    Args: version: random, made by the caller.

    Returns: None: a later epoch has opened it; this lease is lost.
    """
    for _ in range(_ROUNDS_MAX):
        present = read_all(records, partition).get(key, Checkpoint(partition, key))
        if present.version == version:
            return present
        if present.epoch > epoch:
            return None
        opened = present._replace(version=version, epoch=epoch)
        if write(records, present, opened):
            return opened
    raise Conflict(f"The checkpoint {partition}/{key} keeps changing.", hint="Try again.")


def with_place(
    present: Checkpoint, place: Place, *, rows: int, version: bytes, note: str
) -> Checkpoint:
    """Return a checkpoint moved forward; it never moves back (rule L5).

    Args: rows: how many were read since.
    """
    assert present.place is None or place >= present.place, "a checkpoint only moves forward"
    return present._replace(version=version, place=place, rows=present.rows + rows, note=note)


def with_sought_place(
    present: Checkpoint, place: Place, *, version: bytes, note: str
) -> Checkpoint:
    """Return a checkpoint moved anywhere, also back, as an operator asked (rule L6)."""
    return present._replace(version=version, place=place, note=note)


def commit_of(present: Checkpoint, wanted: Checkpoint) -> Commit:
    """Return the write that replaces a checkpoint, if no other process has written it."""
    at_us, row_id = (None, b"") if wanted.place is None else wanted.place
    value = encode(_Stored(wanted.epoch, at_us, row_id.hex(), wanted.rows, wanted.note))
    put = Put(wanted.key, wanted.version, value, expect=present.version)
    return Commit(wanted.partition, (put,))


def write(records: Records, present: Checkpoint, wanted: Checkpoint) -> bool:
    """Replace a checkpoint; False: another process has written it since.

    Raises: Unknown: it may or may not be replaced; read it to find out.
    """
    commit = commit_of(present, wanted)
    try:
        return records.commit(commit.partition, commit.writes)
    except Unknown:
        stands = read_all(records, wanted.partition).get(wanted.key)
        if stands is not None and stands.version == wanted.version:
            return True
        raise


def read(partition: str, record: Record) -> Checkpoint:
    """Read a checkpoint from its record."""
    stored = decode(record.value, _Stored)
    try:
        place = None if stored.at_us is None else (stored.at_us, bytes.fromhex(stored.id))
    except ValueError as error:
        raise StoreCorrupt(
            f"The checkpoint {partition}/{record.key} names no event: {error}.",
            hint="Was it written by another program, or a newer dueline?",
        ) from error
    return Checkpoint(
        partition, record.key, record.version, stored.epoch, place, stored.rows, stored.note
    )
