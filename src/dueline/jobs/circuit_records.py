"""Records of circuit breakers: what is known of a task that pauses itself when it fails.

There is one record for each queue and task, written by settlements that have failures.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dueline.core.clock import DAY_US
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.readable_records import readable, value_at
from dueline.core.store import Delete, Put, Records

KIND: Final = "circuits"

CRASH_KEPT_US: Final = DAY_US
"""How long a crash counts."""

CRASHES_KEPT: Final = 100


class Crash(NamedTuple):
    """A job that a process died on, which ran nothing else.

    Attributes:
      signature: How the process died, in words.
      job: The job, in hexadecimal.
      at_us: When that was counted.
    """

    signature: str
    job: str
    at_us: int


@dataclass(frozen=True, slots=True)
class Circuit:
    """What is known of a task in a queue.

    Attributes:
      recent: How the last attempts ended, the last one last: 1 failed, 0 succeeded.
      opened_us: When it was opened, and the task paused; 0 while it is closed.
      failed, of: The failures that opened it, and of how many attempts; or the jobs that crashed.
      every_us: How often a job probes whether it may close.
      probe_us: From when on the next job may do so.
      probe: The job that may do so, in hexadecimal; once it does, with the fence of its claim.
      is_closing: A probe succeeded, and the pause is to be ended.
      crashes: The last crashes, at most one for each job and signature.
      signature: That of the crashes that opened it; empty if failures did.
    """

    recent: str = ""
    opened_us: int = 0
    failed: int = 0
    of: int = 0
    every_us: int = 0
    probe_us: int = 0
    probe: str = ""
    is_closing: bool = False
    crashes: Sequence[Crash] = ()
    signature: str = ""

    @property
    def is_open(self) -> bool:
        """Whether its task is to be paused."""
        return bool(self.opened_us) and not self.is_closing

    @property
    def is_probed(self) -> bool:
        """Whether a job has begun to probe it, and no outcome is known."""
        return "/" in self.probe

    @property
    def why(self) -> str:
        """Why it is open, in words."""
        if self.signature:
            return f"{self.failed} jobs crashed in the same way ({self.signature.rstrip('.')})"
        return f"{self.failed} of its last {self.of} attempts failed"

    def after(self, outcomes: str, crashes: Sequence[Crash], *, of: int) -> "Circuit":
        """Return the circuit after more attempts and crashes, of which the last are kept."""
        known = {(crash.signature, crash.job): crash for crash in (*self.crashes, *crashes)}
        since_us = max((crash.at_us for crash in crashes), default=0) - CRASH_KEPT_US
        kept = [crash for crash in known.values() if crash.at_us > since_us][-CRASHES_KEPT:]
        return replace(self, recent=(self.recent + outcomes)[-of:], crashes=kept)


def partition_of(queue: str) -> str:
    """Return the partition of the records of a queue."""
    return f"{KIND}/{queue}"


def read(records: Records, queue: str, task: str) -> tuple[Circuit, bytes]:
    """Return what is known of a task, and the version of its record."""
    circuit, version = value_at(records, partition_of(queue), task, Circuit)
    return circuit or Circuit(), version


def write(engine: Engine, queue: str, task: str, circuit: Circuit, expect: bytes) -> bytes | None:
    """Write a record if it has a version; return its new version, or None."""
    put = Put(task, engine.ids.token(), encode(circuit), expect)
    return put.version if engine.store.commit(partition_of(queue), (put,)) else None


def open_in(records: Records, queue: str) -> Mapping[str, Circuit]:
    """Return the open circuits of a queue, by task."""
    circuits = readable(records, partition_of(queue), Circuit)
    return {record.key: circuit for record, circuit in circuits if circuit.opened_us}


def forget(records: Records, queue: str, tasks: Iterable[str]) -> None:
    """Delete what is known of tasks, since an operator decides."""
    if deletes := [Delete(task) for task in tasks]:
        records.commit(partition_of(queue), deletes)
