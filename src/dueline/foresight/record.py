"""Recorded attempts, as columns that the simulation reads."""

from collections.abc import Sequence
from typing import Final, NamedTuple

UNKNOWN: Final = -1
"""A time that the history does not hold."""


class Kind(NamedTuple):
    """What the jobs of a kind have in common: everything that decides their order."""

    queue: str
    task: str
    tenant: str
    priority: int
    limits: tuple[str, ...]
    shard: int


class Record(NamedTuple):
    """The attempts of a period: those of a job follow each other, jobs by `ready_us`.

    Attributes:
      kinds: The kinds.
      kind: Number of each attempt's kind.
      nth: 1 for the first attempt of a job, 2 for the next.
      ready_us: When the attempt could start: due and enqueued, or retried; UNKNOWN if the history
        does not say it.
      is_early: Whether the job was enqueued long enough before its due time to be prefetched.
      claimed_us, started_us, ended_us: What really happened.
      worker: Number of the worker.
      workers: Their names.
      hashes: CRC-32 of the job ids, which decides the shard.
    """

    kinds: Sequence[Kind]
    kind: Sequence[int]
    nth: Sequence[int]
    ready_us: Sequence[int]
    is_early: Sequence[int]
    claimed_us: Sequence[int]
    started_us: Sequence[int]
    ended_us: Sequence[int]
    worker: Sequence[int]
    workers: Sequence[str]
    hashes: Sequence[int] = ()

    @property
    def bounds_us(self) -> tuple[int, int]:
        """Return the first time at which a job was ready, and the end of the last attempt."""
        return self.ready_us[0], max(self.ended_us)
