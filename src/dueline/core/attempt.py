"""One run of a job, how it ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, NamedTuple

from dueline.core.codec import Cells
from dueline.core.job import Claim, Job

ERROR_CHARACTERS_MAX = 4096

ERROR_OF_DEAD_CHARACTERS_MAX = 3072
"""Of the error of a dead job that has a traceback; the rest of its cell is for that."""

_TRACEBACK = "\n--- traceback ---\n"

ARGUMENTS_BYTES_MAX = 16 * 1024
"""A history of arguments holds none that are larger."""

DIGEST_DIGITS = 16
"""Length of the digest of a result, in hexadecimal digits."""

FinalState = Literal["done", "dead", "cancelled", "expired", "lost"]


class Done(NamedTuple):
    """The handler returned; value is its result as JSON, empty where none is kept."""

    value: bytes


class Failed(NamedTuple):
    """The handler raised.

    retry: the task's policy wants this error tried again.
    retry_after_us: how long the error asks to wait, None where it does not say.
    """

    error_type: str
    message: str
    traceback: str
    retry: bool
    retry_after_us: int | None = None


class Snoozed(NamedTuple):
    """The handler asked to be run again later; no attempt is spent.

    throttles: and so shall no other job of its limits before.
    """

    after_us: int
    throttles: bool = False


class Cancelled(NamedTuple):
    """The handler ended the job for good, without a result."""

    reason: str


class Crashed(NamedTuple):
    """The process that ran the handler died."""

    detail: str


class Expired(NamedTuple):
    """The job's time was over before its handler could be called."""


class GivenBack(NamedTuple):
    """The worker did not run the job, or not to its end; no attempt is spent."""

    after_us: int = 0


class Settled(NamedTuple):
    """The handler's own transaction ended the job: there is nothing left to write."""


class Each(NamedTuple):
    """The jobs of a chunk ended, each in its own way; what is settled is one of these."""

    endings: "Sequence[tuple[Claim, Ending]]"


Ending = Done | Failed | Snoozed | Cancelled | Crashed | Expired | GivenBack | Settled | Each


class Ended(NamedTuple):
    """An attempt that is over. started_us is 0 where the handler was never called."""

    job: Job
    ending: Ending
    started_us: int
    ended_us: int


class Outcome(Cells, frozen=True, gc=False):
    """How a job ended for good.

    value: the result as JSON (done only). error: type and message, at most 4 KiB.
    traceback: of the last failure (dead only), cut as the row of a dead job holds it.
    """

    state: FinalState
    ended_us: int
    value: str = ""
    error: str = ""
    traceback: str = ""

    def epitaph(self) -> str:
        """Write the error of a dead job's row: the traceback rides along, at most 4 KiB in all."""
        return f"{self.error}{_TRACEBACK}{self.traceback}" if self.traceback else self.error


def epitaph_of(error: str, traceback: str, message: str) -> tuple[str, str]:
    """Cut an error and its traceback to what a dead job's row holds: of the latter, the end.

    Args: message: of the error; a long one ends the traceback too, where frames say more.
    """
    if not traceback:
        return error[:ERROR_CHARACTERS_MAX], ""
    error = error[:ERROR_OF_DEAD_CHARACTERS_MAX]
    room = ERROR_CHARACTERS_MAX - len(error) - len(_TRACEBACK)
    if len(traceback) > room:
        traceback = traceback.rstrip("\n").removesuffix(message)[-room:]
    return error, traceback


def read_epitaph(error: str) -> tuple[str, str]:
    """Read the error and the traceback of a dead job's row."""
    error, _, traceback = error.partition(_TRACEBACK)
    return error, traceback


@dataclass(slots=True)
class Attempt:
    """The history's row of one ended attempt; instants in microseconds UTC.

    Not frozen: one is made for each job, in 0.5 us (frozen: 2.4; November 2026).

    started_us: 0 where the handler was not called, or where the worker died before it could
    tell. outcome: a final state, or one of retried, snoozed, given_back, crashed. digest: of the
    result of a job that is done, see `digest_of`; empty where no result is kept.
    """

    job: str
    task: str
    queue: str
    tenant: str
    priority: int
    enqueued_us: int
    due_us: int
    claimed_us: int
    started_us: int
    ended_us: int
    outcome: str
    error: str
    worker: str
    fence: int
    digest: str = ""


@dataclass(slots=True)
class EnqueuedEvent(Attempt):
    """A row of a history that holds arguments: the row of a job that was enqueued has them.

    codec: how the payload is written (codec.py). size: of the payload, in bytes. payload: the
    job's body; None where it is larger than ARGUMENTS_BYTES_MAX.
    """

    codec: int | None = None
    size: int | None = None
    payload: bytes | None = None


def digest_of(value: bytes) -> str:
    """Return what a history keeps of a result: the first 8 bytes of its SHA-256, in hexadecimal.

    Args:
      value: The result as JSON, empty where none is kept. Then the digest is empty, too.
    """
    return sha256(value).hexdigest()[:DIGEST_DIGITS] if value else ""
