"""How the jobs of a batch ended: bits by position, which cost the same to count at any size.

The process that ends jobs writes one record for those of a slice of positions that ended alike,
beside the other effects of their ends and so before their rows go. Records only add: the key of a
record is a digest of its content, a repeat writes the same, and what is known is what all records
say together. So a reader may join the records of a slice in one, and delete the others, while
other processes write (rule I3).

A job that died and is retried ends again. Each end counts by the row's `hop`, which grows with each
move of the row, and the last one counts (rule I4).
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from struct import iter_unpack
from typing import Final, NamedTuple
from zlib import compress, decompress
from zlib import error as ZlibError  # noqa: N812  (it is a class)

from dueline.core.batch_ids import PREFIX_BYTES, BatchId, is_batched
from dueline.core.clock import DAY_US
from dueline.core.errors import StoreCorrupt
from dueline.core.job import JobId
from dueline.core.pagination import records_in
from dueline.core.store import Commit, Delete, Put, Record, Records, Write

SLICE: Final = 2**16
"""Number of positions whose ends share records."""

_SLICE_BYTES: Final = PREFIX_BYTES + 1
"""Number of bytes that the ids of a slice have in common."""

KEEP_US: Final = 90 * DAY_US
"""How long a batch is known after it was last changed."""

AGAIN: Final = "again"
"""State of a job that was dead and is retried."""

DONE: Final = "done"
RECORDS_MAX: Final = 64
"""Number of records of a slice from which a reader joins them."""

_PAGE: Final = 500
_LEVEL: Final = 1


class End(NamedTuple):
    """How a job of a batch ended, and the `hop` of its row then."""

    job_id: JobId
    hop: int
    state: str
    at_us: int


class Kind(NamedTuple):
    """A slice of positions, and how jobs in it ended."""

    slice: int
    hop: int
    state: str

    def to_text(self) -> str:
        """Return how the keys of records begin."""
        return f"{self.slice:03}/{self.hop:05}/{self.state}/"


Slices = dict[int, dict[str, int]]
"""For each slice the states of its jobs; bit n is set for the n-th position."""


def partition_of(batch: BatchId) -> str:
    """Return the partition of the ends of a batch."""
    return f"batches/{batch.hex()}/ends"


def commits_of(ends: Iterable[End]) -> list[Commit]:
    """Return the writes that keep how jobs ended; those of no batch are skipped."""
    places: dict[tuple[bytes, int, str], list[bytes]] = {}  # by what ids of a slice begin with
    last_us = 0
    for job_id, hop, state, at_us in ends:
        if is_batched(job_id):
            kind = job_id[:_SLICE_BYTES], hop, state
            places.setdefault(kind, []).append(job_id[_SLICE_BYTES:])
            last_us = max(last_us, at_us)
    puts: dict[BatchId, list[Put]] = {}
    for (begin, hop, state), tails in places.items():
        marks = bytearray(SLICE // 8)
        for (place,) in iter_unpack(">H", b"".join(tails)):
            marks[place >> 3] |= 1 << (place & 7)
        put = _put(Kind(begin[PREFIX_BYTES], hop, state), bytes(marks), last_us)
        puts.setdefault(BatchId(begin[:PREFIX_BYTES]), []).append(put)
    return [Commit(partition_of(batch), writes) for batch, writes in puts.items()]


def _put(kind: Kind, marks: bytes, at_us: int) -> Put:
    value = compress(marks.rstrip(b"\0"), _LEVEL)
    digest = blake2b(value, digest_size=16)
    key = kind.to_text() + digest.hexdigest()
    return Put(key, digest.digest(), value, None, at_us + KEEP_US, at_us=at_us)


def read(records: Records, batch: BatchId, *, after: int = -1) -> Slices:
    """Return how the jobs of a batch have ended, in the slices after a number."""
    return _last_ends(_joined(_records(records, batch, after)))


def join(records: Records, batch: BatchId, now_us: int) -> Slices:
    """Read as `read` does, and join the records of slices that have many."""
    pairs = list(_records(records, batch, -1))
    by_slice: dict[int, list[tuple[Kind, Record]]] = {}
    for kind, record in pairs:
        by_slice.setdefault(kind.slice, []).append((kind, record))
    for same in by_slice.values():
        if len(same) >= RECORDS_MAX:
            joined = [
                _put(kind, marks.to_bytes(SLICE // 8, "little"), now_us)
                for kind, marks in _joined(same).items()
            ]
            kept = {put.key for put in joined}
            # A condition orders the writes where `at_us` would: the deletions have none.
            writes: list[Write] = [put._replace(at_us=None) for put in joined]
            writes += [Delete(record.key) for _, record in same if record.key not in kept]
            records.commit(partition_of(batch), writes)
    return _last_ends(_joined(pairs))


def _records(records: Records, batch: BatchId, after: int) -> Iterable[tuple[Kind, Record]]:
    begin = None if after < 0 else f"{after:03}0"
    for record in records_in(records, partition_of(batch), after=begin, page_size=_PAGE):
        number, hop, state, _ = record.key.split("/")
        yield Kind(int(number), int(hop), state), record


def _joined(pairs: Iterable[tuple[Kind, Record]]) -> Mapping[Kind, int]:
    joined: dict[Kind, int] = {}
    for kind, record in pairs:
        try:
            marks = int.from_bytes(decompress(record.value), "little")
        except ZlibError as error:
            raise StoreCorrupt(
                f"The record {record.key} of a batch is damaged: {error}."
            ) from error
        joined[kind] = joined.get(kind, 0) | marks
    return joined


def _last_ends(joined: Mapping[Kind, int]) -> Slices:
    """Return the last end of each job."""
    slices: Slices = {}
    for kind in sorted(joined):
        states = slices.setdefault(kind.slice, {})
        marks = joined[kind]
        for state in states:
            states[state] &= ~marks
        states[kind.state] = states.get(kind.state, 0) | marks
    return slices


def ended_in(states: Mapping[str, int]) -> int:
    """Return the bits of all jobs of a slice that have ended."""
    marks = 0
    for state, bits in states.items():
        if state != AGAIN:
            marks |= bits
    return marks


def has_ended(slices: Slices, position: int) -> bool:
    """Return whether a job has ended."""
    number, place = divmod(position, SLICE)
    return bool(ended_in(slices.get(number, {})) >> place & 1)


def positions_in(number: int, marks: int) -> list[int]:
    """Return the positions of the bits that are set in a slice, in their order."""
    first, positions = number * SLICE, []
    for place, byte in enumerate(marks.to_bytes((marks.bit_length() + 7) // 8, "little")):
        if byte:
            start = first + 8 * place
            positions += [start + bit for bit in range(8) if byte >> bit & 1]
    return positions
