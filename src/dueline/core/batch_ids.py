"""Ids of jobs in batches: the batch, and the position of the job in it.

Such an id is a UUID of version 8 (RFC 9562): 48 bits of milliseconds, version, 12 bits of the
millisecond's fraction, variant, 38 random bits, 24 bits of the position. All but the position is
the same for all jobs of a batch, so ids need not be stored, and the ids of a batch count up.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NewType

from dueline.core.job import JobId

BatchId = NewType("BatchId", bytes)
"""What the ids of a batch begin with."""

PREFIX_BYTES: Final = 13
ITEMS_MAX: Final = 10_000_000
"""Maximum number of jobs in a batch."""

_POSITION_BYTES: Final = 3
_VERSION_BYTE: Final = 6
_VERSION: Final = 0x80


def batch_id(job_id: JobId) -> BatchId:
    """Make the id of a batch from a random id of a job."""
    prefix = bytearray(job_id[:PREFIX_BYTES])
    prefix[_VERSION_BYTE] = _VERSION | prefix[_VERSION_BYTE] & 0x0F
    return BatchId(bytes(prefix))


def is_batched(job_id: JobId) -> bool:
    """Return whether a job belongs to a batch."""
    return job_id[_VERSION_BYTE] & 0xF0 == _VERSION


def has_batched(job_ids: Iterable[JobId]) -> bool:
    """Return whether one of many jobs belongs to a batch."""
    return any(version & 0xF0 == _VERSION for version in {each[_VERSION_BYTE] for each in job_ids})


def batch_of(job_id: JobId) -> BatchId:
    """Return the batch of a job that belongs to one."""
    return BatchId(job_id[:PREFIX_BYTES])


def position_of(job_id: JobId) -> int:
    """Return the position of a job in its batch, from 0."""
    return int.from_bytes(job_id[PREFIX_BYTES:])


def ids_at(batch: BatchId, positions: Iterable[int]) -> Sequence[JobId]:
    """Return the ids of jobs of a batch, in the order of their positions."""
    return [JobId(batch + position.to_bytes(_POSITION_BYTES)) for position in positions]
