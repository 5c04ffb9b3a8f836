"""The row of a job and its states. Hot path: the benchmark `bulk`."""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import repeat
from typing import Final, NamedTuple, NewType

from dueline.core.lane import Lane
from dueline.core.tuples import made

JobId = NewType("JobId", bytes)
Token = NewType("Token", bytes)

UNCLAIMED_TOKEN = Token(bytes(16))
"""Token of a row that was never claimed; each repeat of an insert writes the same cells."""


AWAY_US = 2**59
"""Added to `at_us` of a row that `dueline move` takes to another store (rule X2)."""


PAUSED_US = 2**58
"""Added to `at_us` of a job that is paused (rule P17): some 9,000 years."""


class Claim(NamedTuple):
    """One claim of a job; the same worker may claim the job again with another fence."""

    job_id: JobId
    fence: int


class State(IntEnum):
    """Progress of the last claim of a row, stored in the row."""

    WAITING = 0
    CLAIMED = 1
    STARTED = 2
    DEAD = 3


class Job(NamedTuple):
    """One row of one lane; every change to a job moves its `at_us`, or deletes the row.

    A tuple, not a dataclass: workers create very many of them, and stores bind them as they are.

    Cells written once, by the insert:
      lane, pos_us, id, hop: the key; pos_us = max(due, now) in microseconds UTC; id 16 bytes.
      due_us: the requested time, of the call or of a later change. enqueued_us: the time of the
        call.
      task: registered name. codec: codec of the body (codec.py). body: the arguments.
      opts: further options of the call, JSON; empty if there are none.
    Cells that change with claims and outcomes:
      at_us: the earliest time at which a process may next change the job.
      fence: number of claims. token: 16 bytes, the version of the row.
      worker, claimed_us: the last claim (empty and 0 before the first one).
      errors, crashes: failed attempts, and claims whose worker died after the start.
      alone: run in isolation, because a worker died on it.
      state: see State. outcome: the final outcome, once it is decided (empty before).
      error: the last error, at most 4 KiB.
    """

    lane: Lane
    pos_us: int
    id: JobId
    hop: int
    due_us: int
    enqueued_us: int
    task: str
    codec: int
    body: bytes
    opts: bytes
    at_us: int
    fence: int = 0
    token: Token = UNCLAIMED_TOKEN
    worker: str = ""
    claimed_us: int = 0
    errors: int = 0
    crashes: int = 0
    alone: bool = False
    state: int = State.WAITING
    outcome: bytes = b""
    error: str = ""

    def claim(self) -> Claim:
        """Return the last claim of this job."""
        return Claim(self.id, self.fence)

    def is_claimed(self) -> bool:
        """Return whether the last claim has neither an outcome nor been released."""
        return self.state in (State.CLAIMED, State.STARTED)


NEW: Final = tuple(name for name in Job._fields if name not in Job._field_defaults)
"""The fields that the insert of a new job writes; the others have their defaults."""

MOVED: Final = ("at_us", "token", "errors", "crashes", "alone", "state", "outcome", "error")
"""The fields that a `Move` writes, which has fields of the same names."""


def is_away(job: Job) -> bool:
    """Return whether `dueline move` takes the row to another store: nobody else changes it."""
    return job.at_us >= AWAY_US


def is_paused(job: Job) -> bool:
    """Return whether a job by itself is paused."""
    return PAUSED_US <= job.at_us < AWAY_US


def place_us(job: Job) -> int:
    """Return when a job is due, or would be if it were not paused."""
    return job.at_us - PAUSED_US if is_paused(job) else job.at_us


def copies_of(
    like: Job, lanes: Iterable[Lane], ids: Sequence[JobId], bodies: Sequence[bytes]
) -> list[Job]:
    """Return copies of a row with other lanes, ids and bodies, one for each id."""
    cells: dict[str, Iterable[object]] = dict(zip(Job._fields, map(repeat, like), strict=True))
    cells |= {"lane": lanes, "id": ids, "body": bodies}
    return made(Job, zip(*cells.values(), strict=False))
