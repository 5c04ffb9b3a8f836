"""Which workers are alive."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dueline.core.codec import encode
from dueline.core.pagination import records_in
from dueline.core.readable_records import readable
from dueline.core.store import Delete, Put, Records
from dueline.core.version import VERSION

PARTITION = "workers"
BEATS_MISSED_MAX = 3


@dataclass(frozen=True, slots=True)
class Presence:
    """What a worker says of itself with each heartbeat.

    worker: `<host>:<pid>:<random>`. queues, tasks: the names that it serves and knows.
    slots, held: jobs that it can run at once, and has claimed now. clock_skew_us: its wall clock
    minus the store's. version: of dueline; empty where the worker is too old to say.
    stray_answers: answers of the store's server that belonged to no request of the worker.
    running: handlers that run now; None where the worker is too old to say.
    gathering: claimed jobs that wait for more jobs of their batch. is_draining: it claims
    nothing any more. own: per queue with slots of its own, these and the claimed jobs that take
    one. batches: per task whose jobs are gathered, their maximum number and how long they wait.
    """

    worker: str
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    slots: int
    held: int
    started_us: int
    beat_us: int
    clock_skew_us: int
    version: str = ""
    stray_answers: int = 0
    running: int | None = None
    gathering: int = 0
    is_draining: bool = False
    own: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    batches: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def announce(records: Records, presence: Presence, *, version: bytes, beat_every_us: int) -> None:
    """Write a beat, with dueline's version; it reads as absent once three beats were missed."""
    expires_us = presence.beat_us + BEATS_MISSED_MAX * beat_every_us
    said = replace(presence, version=VERSION)
    put = Put(presence.worker, version, encode(said), expires_us=expires_us)
    records.commit(PARTITION, (put,))


def leave(records: Records, worker: str) -> None:
    """Take a worker that stops out of the registry."""
    records.commit(PARTITION, (Delete(worker),))


def count(records: Records) -> int:
    """Count who is alive."""
    return sum(1 for _ in records_in(records, PARTITION))


def names(records: Records) -> Sequence[str]:
    """Return the ids of the workers that are alive, sorted."""
    return [record.key for record in records_in(records, PARTITION)]


def present(records: Records) -> Sequence[Presence]:
    """Read who is alive, by worker id."""
    return [presence for _, presence in readable(records, PARTITION, Presence)]
