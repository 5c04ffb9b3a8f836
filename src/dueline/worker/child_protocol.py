"""Messages between a worker and its child processes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from dueline.core.attempt import (
    Cancelled,
    Crashed,
    Done,
    Each,
    Ended,
    Ending,
    Expired,
    Failed,
    GivenBack,
    Settled,
    Snoozed,
    Uncertain,
)
from dueline.core.codec import pack, unpack
from dueline.core.job import Claim, Job, JobId
from dueline.core.lane import Lane
from dueline.tasks.chunks import Emitted
from dueline.tasks.progress import Progress, ProgressReport
from dueline.worker.assignment import Assignment


class Run(NamedTuple):
    """Parent to child: run these jobs.

    Attributes:
      offset_us: The store's time minus the monotonic clock of the parent's machine.
      now_us: The store's time, for a child on another machine.
      cells: Their cells on the board; empty without one.
    """

    offset_us: int
    now_us: int
    assignments: Sequence[Assignment]
    cells: Sequence[int]


class Extended(NamedTuple):
    """Parent to child: new ends of claims, by the store's time."""

    until_us: Mapping[Claim, int]


class Lost(NamedTuple):
    """Parent to child: the claims on these jobs were lost."""

    claims: Sequence[Claim]


class CancelAsked(NamedTuple):
    """Parent to child: these jobs were asked to stop."""

    claims: Sequence[Claim]


class Recall(NamedTuple):
    """Parent to child: return the jobs that have not started."""


class Leave(NamedTuple):
    """Parent to child: no more messages follow."""


class Ready(NamedTuple):
    """Child to parent: the application is loaded."""


class Returned(NamedTuple):
    """Child to parent, after a recall or a loss: these jobs will not be started."""

    claims: Sequence[Claim]


class Started(NamedTuple):
    """Child without a board to parent, before a handler is called."""

    claim: Claim
    started_us: int


class Progressed(NamedTuple):
    """Child to parent: the progress that a handler reported."""

    claim: Claim
    report: ProgressReport


class Emission(NamedTuple):
    """Child to parent, before the endings of their handlers: chunks that were emitted."""

    chunks: Sequence[Emitted]


class Finished(NamedTuple):
    """Child to parent, after a handler, if there is no board or its cell is too small."""

    claim: Claim
    ending: Ending
    started_us: int
    ended_us: int


class Written(NamedTuple):
    """Child to parent: the jobs of these cells have ended."""

    cells: Sequence[int]


Message = (
    Run
    | Extended
    | Lost
    | CancelAsked
    | Recall
    | Leave
    | Ready
    | Returned
    | Started
    | Progressed
    | Emission
    | Finished
    | Written
)

_ENDINGS: Final[dict[str, type[Ending]]] = {
    kind.__name__: kind
    for kind in (
        *(Done, Failed, Snoozed, Cancelled, Crashed, Uncertain, Expired, GivenBack, Settled),
    )
}


def dump(message: Message) -> bytes:
    """Encode a message."""
    parts: Sequence[Any] = tuple(message)
    if isinstance(message, Extended):
        parts = ([*message.until_us.items()],)
    if isinstance(message, Finished):
        claim, ending, *times = message
        parts = (claim, *_parts(ending), *times)
    return pack((type(message).__name__, parts))


def load(data: bytes) -> Message:
    """Decode a message."""
    kind, parts = unpack(data)
    match kind:
        case "Written":
            return Written(parts[0])
        case "Run":
            return Run(parts[0], parts[1], [*map(_assignment, parts[2])], parts[3])
        case "Extended":
            return Extended({_claim(claim): until_us for claim, until_us in parts[0]})
        case "Lost":
            return Lost([_claim(claim) for claim in parts[0]])
        case "CancelAsked":
            return CancelAsked([_claim(claim) for claim in parts[0]])
        case "Recall":
            return Recall()
        case "Leave":
            return Leave()
        case "Ready":
            return Ready()
        case "Returned":
            return Returned([_claim(claim) for claim in parts[0]])
        case "Started":
            return Started(_claim(parts[0]), parts[1])
        case "Progressed":
            done, total, note, meta, spent = parts[1]
            units = tuple((name, number) for name, number in spent)
            return Progressed(_claim(parts[0]), ProgressReport(done, total, note, meta, units))
        case "Emission":
            return Emission([Emitted(_claim(claim), *rest) for claim, *rest in parts[0]])
    claim, name, fields, *rest = parts
    return Finished(_claim(claim), _ending(name, fields), *rest)


def dump_ending(ending: Ending, started_us: int, ended_us: int) -> bytes:
    """Encode how a job ended, for its cell."""
    return pack((*_parts(ending), started_us, ended_us))


def load_ending(data: bytes, job: Job) -> Ended:
    """Decode the content of a cell."""
    name, fields, started_us, ended_us = unpack(data)
    return Ended(job, _ending(name, fields), started_us, ended_us)


def _parts(ending: Ending) -> tuple[str, Sequence[Any]]:
    """Take an ending apart, and those of a batch."""
    if isinstance(ending, Each):
        return Each.__name__, [(claim, *_parts(member)) for claim, member in ending.endings]
    return type(ending).__name__, tuple(ending)


def _ending(name: str, fields: Sequence[Any]) -> Ending:
    if name == Each.__name__:
        return Each([(_claim(claim), _ending(*parts)) for claim, *parts in fields])
    return _ENDINGS[name](*fields)


def _assignment(cells: Sequence[Any]) -> Assignment:
    job, keep, alone, last, firm, given, chunk, *times = cells
    progress = last and Progress(**last)
    members = tuple(map(_assignment, chunk))
    return Assignment(_job(job), keep, alone, progress, firm, given, members, *times)


def _claim(parts: Sequence[Any]) -> Claim:
    return Claim(JobId(parts[0]), parts[1])


def _job(cells: Sequence[Any]) -> Job:
    lane, *rest = cells
    return Job(Lane(*lane), *rest)


def to_ended(message: Finished, job: Job) -> Ended:
    """Join the child's message with the row that the parent kept."""
    return Ended(job, message.ending, message.started_us, message.ended_us)
