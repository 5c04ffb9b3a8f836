"""Records of circuit breakers: what is known of a task that pauses itself when it fails.

There is one record for each queue and task, written by settlements that have failures.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.readable_records import readable, value_at
from dueline.core.store import Delete, Put, Records

KIND: Final = "circuits"


@dataclass(frozen=True, slots=True)
class Circuit:
    """What is known of a task in a queue.

    Attributes:
      recent: How the last attempts ended, the last one last: 1 failed, 0 succeeded.
      opened_us: When it was opened, and the task paused; 0 while it is closed.
      failed, of: The failures that opened it, and of how many attempts.
      every_us: How often a job probes whether it may close.
      probe_us: From when on the next job may do so.
      probe: The last job that did, in hexadecimal.
      is_closing: A probe succeeded, and the pause is to be ended.
    """

    recent: str = ""
    opened_us: int = 0
    failed: int = 0
    of: int = 0
    every_us: int = 0
    probe_us: int = 0
    probe: str = ""
    is_closing: bool = False

    def after(self, outcomes: str, *, of: int) -> "Circuit":
        """Return the circuit after more attempts, of which the last are kept."""
        return replace(self, recent=(self.recent + outcomes)[-of:])


def opening_text(circuit: Circuit) -> str:
    """Return why a circuit is open, in words."""
    return f"{circuit.failed} of its last {circuit.of} attempts failed"


def partition_of(queue: str) -> str:
    """Return the partition of the records of a queue."""
    return f"{KIND}/{queue}"


def read(records: Records, queue: str, task: str) -> tuple[Circuit, bytes]:
    """Return what is known of a task, and the version of its record."""
    found, version = value_at(records, partition_of(queue), task, Circuit)
    return found or Circuit(), version


def write(engine: Engine, queue: str, task: str, circuit: Circuit, expect: bytes) -> bytes | None:
    """Write a record if it has a version; return its new version, or None."""
    put = Put(task, engine.ids.token(), encode(circuit), expect)
    return put.version if engine.store.commit(partition_of(queue), (put,)) else None


def open_in(records: Records, queue: str) -> Mapping[str, Circuit]:
    """Return the open circuits of a queue, by task."""
    found = readable(records, partition_of(queue), Circuit)
    return {record.key: circuit for record, circuit in found if circuit.opened_us}


def forget(records: Records, queue: str, tasks: Iterable[str]) -> None:
    """Delete what is known of tasks, since an operator decides."""
    if deletes := [Delete(task) for task in tasks]:
        records.commit(partition_of(queue), deletes)
