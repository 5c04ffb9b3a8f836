"""The workers of a store.

Two partitions of records: heartbeats, which expire after three missed ones, and registrations,
which stay until the claims of the worker are released. So a worker that is registered and has no
heartbeat died or stalled.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.lane import read_key, task_key, task_of
from dueline.core.pagination import records_in
from dueline.core.process_identity import Whereabouts, is_gone, is_stopped, own
from dueline.core.readable_records import readable
from dueline.core.store import Delete, Put, Records
from dueline.core.version import VERSION
from dueline.core.worker_needs import Has, covers, lacking

PARTITION = "workers"
REGISTRATIONS = "roster"
BEATS_A_LEASE = 3
"""Number of heartbeats that a worker sends in a lease."""

BEATS_MISSED_MAX = 3
LOST_MAX = 100
"""Maximum number of lost slots that a worker names."""


@dataclass(frozen=True, slots=True)
class KnownTasks:
    """The tasks that a worker can run; contains keys of tasks, see `TaskKey`.

    tasks: their names. codecs: numbers of custom codecs of their arguments. is_raw: it runs jobs of
    any task and codec. signatures: those of the tasks, see `Arguments.signature`; a task without
    one takes any arguments. has: labels and units of resources of the worker.
    """

    tasks: Collection[str]
    codecs: Collection[int] = ()
    is_raw: bool = False
    signatures: Mapping[str, str] = field(default_factory=dict, hash=False)
    has: Has = field(default_factory=dict, hash=False)

    def __contains__(self, key: object) -> bool:
        return self.may_claim(str(key), 0)

    def may_claim(self, key: str, now_us: int) -> bool:
        """Return whether it can run the jobs of a lane, or is the one to end their wait.

        Args:
            key: The key of their task.
            now_us: The current time. When the wait for another signature is over, any worker that
                knows the task claims them (rule P13).
        """
        task, codec, refused, until_us = read_key(key)
        return self.is_raw or (
            task in self.tasks
            and (not codec or codec in self.codecs)
            and (not refused or until_us <= now_us or self.signatures.get(task) not in refused)
        )

    def includes(self, other: "KnownTasks") -> bool:
        """Return whether these are all that another worker can run, or more."""
        return (
            set(other.tasks) <= set(self.tasks)
            and set(other.codecs) <= set(self.codecs)
            and all(self.signatures.get(task) == text for task, text in other.signatures.items())
            and covers(self.has, other.has)
        )


NO_TASKS: Final = KnownTasks(())


@dataclass(frozen=True, slots=True)
class Presence:
    """What a worker reports with each heartbeat.

    worker: `<host>:<pid>:<random>`. queues, tasks: the names that it serves and knows.
    slots, held: jobs that it can run at once, and has claimed now. clock_skew_us: its wall clock
    minus the store's. version: of dueline.
    stray_answers: answers of the store's server that belonged to no request of the worker.
    running: handlers that run now; None for clients that claim by hand.
    gathering: claimed jobs that wait for more jobs of their batch. is_draining: it claims
    nothing any more. is_quiet: it claims nothing until an operator resumes it. takes_requests:
    operators can send it requests; False for clients that claim by hand.
    own: per queue with slots of its own, these and the claimed jobs that take one. batches: per
    task whose jobs are gathered, their maximum number and how long they wait.
    lost: slots whose handlers have outlived their time limits: job, task, and since when; at most
    LOST_MAX. codecs: numbers of custom codecs that it knows. is_raw: it is a raw queue, which
    knows no tasks. signatures: those of its tasks, in their order; empty if it takes any arguments.
    has: its labels and units of resources. used: units that its claimed jobs use.
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
    is_quiet: bool = False
    takes_requests: bool = False
    codecs: tuple[int, ...] = ()
    is_raw: bool = False
    lost: tuple[tuple[str, str, int], ...] = ()
    signatures: tuple[str, ...] = ()
    has: Mapping[str, int | str] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_claiming(self) -> bool:
        """Whether it claims jobs."""
        return not (self.is_draining or self.is_quiet)

    @property
    def has_lost_all(self) -> bool:
        """Whether all its slots are lost, so that it starts nothing."""
        return 0 < min(self.slots, LOST_MAX) <= len(self.lost)

    @property
    def known(self) -> KnownTasks:
        """The tasks that it can run."""
        signatures = dict(zip(self.tasks, self.signatures, strict=False))
        return KnownTasks(self.tasks, self.codecs, self.is_raw, signatures, self.has)

    def knows(self, job: Job) -> bool:
        """Return whether it knows the task of a job; every worker knows a workflow's own steps."""
        return not job.task or key_of(job) in self.known

    def can_run(self, job: Job) -> bool:
        """Return whether it knows the task of a job and has what the job needs."""
        return self.knows(job) and not lacking(job.lane, self.has)

    @property
    def free(self) -> Has:
        """What it has, without the units that its jobs use."""
        return {
            name: value if isinstance(value, str) else value - self.used.get(name, 0)
            for name, value in self.has.items()
        }


def key_of(job: Job) -> str:
    """Return what a worker must know to run a job, as far as its lane says."""
    return task_of(job.lane) or task_key(job.task, job.codec)


def announce(records: Records, presence: Presence, *, version: bytes, beat_every_us: int) -> None:
    """Write a heartbeat with the version of dueline; it expires after three missed heartbeats."""
    expires_us = presence.beat_us + BEATS_MISSED_MAX * beat_every_us
    value = encode(replace(presence, version=VERSION))
    put = Put(presence.worker, version, value, expires_us=expires_us)
    records.commit(PARTITION, (put,))


def leave(records: Records, worker: str) -> bool:
    """Delete the heartbeat of a worker that has stopped."""
    return records.commit(PARTITION, (Delete(worker),))


def count(records: Records) -> int:
    """Return how many workers are alive."""
    return sum(1 for _ in records_in(records, PARTITION))


def names(records: Records) -> Sequence[str]:
    """Return the ids of the workers that are alive, sorted."""
    return [record.key for record in records_in(records, PARTITION)]


def present(records: Records) -> Sequence[Presence]:
    """Read the heartbeats of the workers that are alive, by worker id."""
    return [presence for _, presence in readable(records, PARTITION, Presence)]


@dataclass(frozen=True, slots=True)
class Registration:
    """A worker that started. space, pid, born: its process, see `Whereabouts`."""

    worker: str
    queues: tuple[str, ...]
    space: str = ""
    pid: int = 0
    born: str = ""
    address: str = ""  # where it receives wake-ups from other machines; empty for nowhere

    @property
    def process(self) -> Whereabouts:
        """The process of the worker."""
        return Whereabouts(self.space, self.pid, self.born)

    def has_ended(self, here: Whereabouts) -> bool:
        """Return whether the process of the worker has certainly ended, as seen from `here`."""
        return is_gone(self.process, here)


class StoredRegistration(NamedTuple):
    """A registration as it was read."""

    registration: Registration
    version: bytes


def register(records: Records, registration: Registration, *, version: bytes) -> None:
    """Register a worker: after its first heartbeat, and before that can expire."""
    records.commit(REGISTRATIONS, (Put(registration.worker, version, encode(registration)),))


def unregister(records: Records, worker: str, *, version: bytes | None = None) -> bool:
    """Delete a registration. version: only if it is still this one; the worker may be back."""
    return records.commit(REGISTRATIONS, (Delete(worker, expect=version),))


def registrations(records: Records) -> Sequence[StoredRegistration]:
    """Read all registrations, by worker id."""
    return [
        StoredRegistration(registration, record.version)
        for record, registration in readable(records, REGISTRATIONS, Registration)
    ]


def live_workers(engine: Engine) -> list[Presence]:
    """Return the workers that are alive, by id.

    A worker that was killed counts as alive until it missed three heartbeats. If its process ran on
    this machine, it is omitted at once.
    """
    here = own()
    ended = {entry.worker for entry, _ in registrations(engine.store) if entry.has_ended(here)}
    return [worker for worker in present(engine.store) if worker.worker not in ended]


def stopped_workers(records: Records) -> dict[str, int]:
    """Return the workers whose processes on this machine are stopped, with the process numbers."""
    here = own()
    return {
        entry.worker: entry.pid
        for entry, _ in registrations(records)
        if is_stopped(entry.process, here)
    }
