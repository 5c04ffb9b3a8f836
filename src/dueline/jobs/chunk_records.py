"""Partial results of jobs, kept for a limited time.

There is one partition for each job. A record holds chunks that were emitted within a short time;
its key names the claim and the number of the last of them. So the records after a chunk's place are
those that hold later chunks, whichever chunks share a record. A claim writes one record after the
other, and repeats one as it was until the store has confirmed it (rules T1 and T2).
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dueline.core.clock import DAY_US
from dueline.core.codec import decode, encode
from dueline.core.errors import BadInput
from dueline.core.job import JobId
from dueline.core.pagination import RECORDS_A_PAGE, records_in
from dueline.core.store import Commit, Delete, Put, Records
from dueline.tasks.chunks import Emitted

KIND: Final = "chunks"
"""The kind of the partitions."""

KEEP_US: Final = DAY_US
"""How long a chunk is kept after it was emitted."""

_PAGE: Final = 16
_ID: Final = re.compile(r"[0-9]{1,18}-[0-9]{1,9}", re.ASCII)


class ChunkPlace(NamedTuple):
    """The place of a chunk in its job. fence: of its claim. number: 1 for the first of those."""

    fence: int
    number: int

    def __str__(self) -> str:
        return f"{self.fence}-{self.number}"


class StoredChunk(NamedTuple):
    """A chunk. data: its value as JSON. at_us: when it was stored, in microseconds UTC."""

    place: ChunkPlace
    attempt: int
    at_us: int
    data: str


@dataclass(frozen=True, slots=True)
class _Chunks:
    """A stored record: chunks that follow each other. first: the number of the first."""

    first: int
    attempt: int
    at_us: int
    chunks: list[str]


def read_place(chunk_id: object) -> ChunkPlace:
    """Return the place that the id of a chunk names.

    Raises: BadInput: it is no such id.
    """
    if not isinstance(chunk_id, str) or not _ID.fullmatch(chunk_id):
        raise BadInput(f"{chunk_id!r:.80} is not the id of a chunk.", hint="Pass `chunk.id`.")
    fence, _, number = chunk_id.partition("-")
    return ChunkPlace(int(fence), int(number))


def channel(job_id: JobId) -> str:
    """Return the wake-up channel of a job's readers; no queue has such a name."""
    return f"{job_id.hex()}!chunks"


def written(emitted: Sequence[Emitted], *, now_us: int, version: bytes) -> Commit:
    """Return the write of chunks of one claim that follow each other."""
    first, last = emitted[0], emitted[-1]
    texts = [chunk.data for chunk in emitted]
    value = encode(_Chunks(first.number, first.attempt, now_us, texts))
    key = _key(ChunkPlace(last.claim.fence, last.number))
    put = Put(key, version, value, expires_us=now_us + KEEP_US, at_us=now_us)
    return Commit(_partition_of(first.claim.job_id), (put,))


def read(
    records: Records, job_id: JobId, after: ChunkPlace | None, *, limit: int = _PAGE
) -> Sequence[StoredChunk]:
    """Return some chunks after a place, in order; none if there are none yet.

    Where a later claim has emitted, those of earlier ones are omitted. limit: number of records.
    """
    partition = _partition_of(job_id)
    chunks: list[StoredChunk] = []
    for record in records.read(partition, after=after and _key(after), limit=limit):
        stored, fence = decode(record.value, _Chunks), _place_of(record.key).fence
        if chunks and chunks[-1].place.fence < fence:
            chunks.clear()
        for number, data in enumerate(stored.chunks, stored.first):
            place = ChunkPlace(fence, number)
            if after is None or place > after:
                chunks.append(StoredChunk(place, stored.attempt, stored.at_us, data))
    return chunks


def read_last(records: Records, job_id: JobId, most: int) -> Sequence[StoredChunk]:
    """Return the last chunks, in order, up to `most`; a job has at most some MiB of them."""
    last: deque[StoredChunk] = deque(maxlen=most)
    place = None
    while chunks := read(records, job_id, place, limit=RECORDS_A_PAGE):
        last.extend(chunks)
        place = chunks[-1].place
    return [chunk for chunk in last if place is not None and chunk.place.fence == place.fence]


def of_earlier_claims(records: Records, job_id: JobId, fence: int) -> Commit | None:
    """Return the write that removes what claims before this one emitted; None for nothing."""
    partition = _partition_of(job_id)
    keys = [record.key for record in records_in(records, partition, page_size=_PAGE)]
    old = [Delete(key) for key in keys if _place_of(key).fence < fence]
    return Commit(partition, old) if old else None


def copies(records: Records, job_id: JobId) -> Iterator[tuple[str, Put]]:
    """Yield the records of a job, with their partition, as they are to be in another store."""
    partition = _partition_of(job_id)
    for record in records_in(records, partition, page_size=_PAGE):
        at_us = decode(record.value, _Chunks).at_us
        put = Put(record.key, record.version, record.value, expires_us=at_us + KEEP_US, at_us=at_us)
        yield partition, put


def _partition_of(job_id: JobId) -> str:
    return f"{KIND}/{job_id.hex()}"


def _key(place: ChunkPlace) -> str:
    return f"{place.fence:018d}-{place.number:09d}"


def _place_of(key: str) -> ChunkPlace:
    return read_place(key)
