"""Which workers there were, until somebody has seen to what they held.

A beat reads as absent once three were missed; what is written here stays. So a worker that is
on the roster and not in the registry has died, or stands still.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dueline.core.codec import encode
from dueline.core.readable_records import readable
from dueline.core.store import Delete, Put, Records

PARTITION = "roster"


@dataclass(frozen=True, slots=True)
class Member:
    """A worker that has begun. space, pid, born: where its process runs, see `whereabouts`."""

    worker: str
    queues: tuple[str, ...]
    space: str = ""
    pid: int = 0
    born: str = ""


class Entry(NamedTuple):
    """A member as it stands on the roster."""

    member: Member
    version: bytes


def enrol(records: Records, member: Member, *, version: bytes) -> None:
    """Write a worker down, once it is in the registry and before it is forgotten there."""
    records.commit(PARTITION, (Put(member.worker, version, encode(member)),))


def strike(records: Records, worker: str, *, version: bytes | None = None) -> bool:
    """Take a worker off. version: only the entry that was read; it may have come back since."""
    return records.commit(PARTITION, (Delete(worker, expect=version),))


def members(records: Records) -> Sequence[Entry]:
    """Read the roster, by worker id."""
    return [
        Entry(member, record.version) for record, member in readable(records, PARTITION, Member)
    ]
