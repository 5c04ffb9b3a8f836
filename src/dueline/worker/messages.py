"""What a worker and its child processes say to each other."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dueline.attempt import Cancelled, Crashed, Done, Ended, Ending, Failed, GivenBack, Snoozed
from dueline.codec import pack, unpack
from dueline.job import Job, JobId
from dueline.lane import Lane
from dueline.worker.execution import Assignment


class Run(NamedTuple):
    """Parent to child: run these. offset_us: the store's time less the monotonic clock."""

    offset_us: int
    assignments: Sequence[Assignment]


class Lost(NamedTuple):
    """Parent to child: the claims on these jobs were lost."""

    ids: Sequence[JobId]


class Ready(NamedTuple):
    """Child to parent: the application is loaded."""


class Started(NamedTuple):
    """Child to parent, before a handler is called."""

    job_id: JobId
    started_us: int


class Finished(NamedTuple):
    """Child to parent, after a handler."""

    job_id: JobId
    ending: Ending
    started_us: int
    ended_us: int


Message = Run | Lost | Ready | Started | Finished

_ENDINGS: Final[dict[str, type[Ending]]] = {
    kind.__name__: kind for kind in (Done, Failed, Snoozed, Cancelled, Crashed, GivenBack)
}


def dump(message: Message) -> bytes:
    """Write a message."""
    parts: Sequence[Any] = tuple(message)
    if isinstance(message, Finished):
        ending = message.ending
        parts = (message.job_id, type(ending).__name__, tuple(ending), *message[2:])
    return pack((type(message).__name__, parts))


def load(data: bytes) -> Message:
    """Read a message."""
    kind, parts = unpack(data)
    match kind:
        case "Run":
            return Run(parts[0], [Assignment(_job(job), *rest) for job, *rest in parts[1]])
        case "Lost":
            return Lost(parts[0])
        case "Ready":
            return Ready()
        case "Started":
            return Started(*parts)
    job_id, name, fields, *rest = parts
    return Finished(job_id, _ENDINGS[name](*fields), *rest)


def _job(cells: Sequence[Any]) -> Job:
    return Job(Lane(*cells[0]), *cells[1:])


def to_ended(message: Finished, job: Job) -> Ended:
    """Join what the child said with the row that the parent kept."""
    return Ended(job, message.ending, message.started_us, message.ended_us)
