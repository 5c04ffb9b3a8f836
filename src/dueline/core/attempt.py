"""Attempts of jobs and how they end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Annotated, Final, Literal, NamedTuple, get_type_hints

from dueline.core.clock import DAY_US
from dueline.core.codec import Cells, decode
from dueline.core.job import Claim, Job

ERROR_CHARACTERS_MAX = 4096

ERROR_OF_DEAD_CHARACTERS_MAX = 3072
"""Maximum length of a dead-letter job's error if it has a traceback, which uses the rest."""

_TRACEBACK = "\n--- traceback ---\n"

ARGUMENTS_BYTES_MAX = 16 * 1024
"""Maximum size of arguments that the history records."""

DIGEST_DIGITS = 16
"""Length of the digest of a result, in hexadecimal digits."""

SECTION_KEPT_US: Final = 30 * DAY_US
"""How long it is known that a section that must not repeat ended."""

FinalState = Literal["done", "dead", "cancelled", "expired", "lost"]


class Done(NamedTuple):
    """The handler returned.

    value: its result as JSON, empty if none is kept. lines: what it logged, if that is kept.
    """

    value: bytes
    lines: str = ""


class Failed(NamedTuple):
    """The handler raised.

    retry: whether the task's policy retries this error.
    retry_after_us: the wait that the error asks for; None if it does not. case: which policy of
    `Retry.per_error` holds, see `Retry.case_of`. lines: what it logged, if that is kept.
    attempts: the number of attempts that the handler asks for; 0 for that of the policy.
    is_fresh: a durable function has recorded something since its last failure: this is the first.
    """

    error_type: str
    message: str
    traceback: str
    retry: bool
    retry_after_us: int | None = None
    case: int = 0
    lines: str = ""
    attempts: int = 0
    is_fresh: bool = False


class Snoozed(NamedTuple):
    """The handler asked to run again later; this does not count as an attempt.

    throttles: no other job of its limits may run before.
    """

    after_us: int
    throttles: bool = False


class Cancelled(NamedTuple):
    """The handler ended the job for good, without a result."""

    reason: str


class Crashed(NamedTuple):
    """The process that ran the handler died."""

    detail: str


class Uncertain(NamedTuple):
    """The attempt ended in a section that must not repeat: the job does not run again."""

    detail: str


class Expired(NamedTuple):
    """The job expired before its handler was called."""


class GivenBack(NamedTuple):
    """The worker released the job unfinished; this does not count as an attempt.

    misfit: why its arguments do not fit the handler: it waits for a worker that can take them.
    may_have_run: its handler may have been called.
    """

    after_us: int = 0
    misfit: str = ""
    may_have_run: bool = False


class Stop(NamedTuple):
    """Why no worker could continue a durable function.

    kind: "code": its code does not fit its log. "log": its log is damaged. "deaths": workers died
    on it. at_us: it is stopped while it is due at this time; then a worker tries again.
    since_us: of the first such stop.
    """

    kind: str
    why: str
    at_us: int
    since_us: int


class DurablePlace(NamedTuple):
    """How far a durable function has come, as far as its row says.

    generation: of its log. length: a number of records that its log has at least; 0: it may not
    have begun. parked_us: it waits while it is due at this time. stops: how often it was stopped
    since it last ran. stop: the last of them. stored: the jobs of its calls up to this position are
    stored. kept: older generations whose logs are read, each up to a position, in their order.
    arguments: the generation and key of the record that holds its arguments; None: the row does.
    version: of the code that began it. origins: the jobs that made the records of the generations
    before others. sleeps: it waits for the end of a sleep, and for nothing else.
    """

    generation: int = 0
    length: int = 0
    parked_us: int = 0
    stops: int = 0
    stop: Stop | None = None
    stored: int = 0
    kept: tuple[tuple[int, int], ...] = ()
    arguments: tuple[int, str] | None = None
    version: str = ""
    origins: tuple[tuple[int, bytes], ...] = ()
    sleeps: bool = False

    @property
    def base(self) -> int:
        """The last position that is read from an older generation."""
        return self.kept[-1][1] if self.kept else 0

    def owner(self, number: int) -> int:
        """Return the generation whose log has a position."""
        return next((kept for kept, last in self.kept if number <= last), self.generation)

    def origin(self, generation: int) -> bytes | None:
        """Return the job that made the records of a generation; None for the function itself."""
        return next((job_id for before, job_id in self.origins if generation < before), None)


class CallPlace(NamedTuple):
    """The call of a durable function that a job was made by.

    parent, generation, key: the function, its log, and the position of the call. number: of the job
    in a gather, from 1; 0: of no gather. calls: how many the gather has. depth: how many functions
    call each other, down to this job.
    """

    parent: bytes
    generation: int
    key: str
    number: int = 0
    calls: int = 0
    depth: int = 1


class Parked(NamedTuple):
    """A durable function was suspended; this does not count as an attempt.

    at_us: when it goes on, or checks again. word: for the history. error: why it was stopped.
    awaits: the name of the signal that it waits for. errors, crashes: of the row.
    ignores_cancel: a request to cancel it changes nothing any more. call: the call whose end it
    waits for.
    """

    at_us: int
    place: DurablePlace
    errors: int
    crashes: int
    word: str = "suspended"
    error: str = ""
    awaits: str = ""
    ignores_cancel: bool = False
    call: CallPlace | None = None


class Settled(NamedTuple):
    """The handler's own transaction ended the job: nothing is left to write."""


class Each(NamedTuple):
    """The endings of the jobs of a batch; each is settled by itself."""

    endings: "Sequence[tuple[Claim, Ending]]"


Ending = (
    Done
    | Failed
    | Snoozed
    | Cancelled
    | Crashed
    | Uncertain
    | Expired
    | GivenBack
    | Parked
    | Settled
    | Each
)


def misfit_of(ending: Ending) -> str:
    """Return why the arguments of an attempt's job do not fit its handler; empty if they do."""
    return ending.misfit if isinstance(ending, GivenBack) else ""


class Ended(NamedTuple):
    """An ended attempt. started_us: 0 if the handler was never called."""

    job: Job
    ending: Ending
    started_us: int
    ended_us: int


class Outcome(Cells, frozen=True, gc=False):
    """The final outcome of a job.

    value: the result as JSON (done only). error: type and message, at most 4 KiB.
    traceback: of the last failure (dead only), cut to fit the row of a dead-letter job.
    """

    state: FinalState
    ended_us: int
    value: str = ""
    error: str = ""
    traceback: str = ""

    def epitaph(self) -> str:
        """Return the error cell of a dead-letter job: error and traceback, at most 4 KiB."""
        return f"{self.error}{_TRACEBACK}{self.traceback}" if self.traceback else self.error


def epitaph_of(error: str, traceback: str, message: str) -> tuple[str, str]:
    """Cut an error and the end of its traceback to fit the row of a dead-letter job.

    Args: message: of the error; it is removed from the end of a long traceback to keep frames.
    """
    if not traceback:
        return error[:ERROR_CHARACTERS_MAX], ""
    error = error[:ERROR_OF_DEAD_CHARACTERS_MAX]
    room = ERROR_CHARACTERS_MAX - len(error) - len(_TRACEBACK)
    if len(traceback) > room:
        traceback = traceback.rstrip("\n").removesuffix(message)[-room:]
    return error, traceback


def read_epitaph(error: str) -> tuple[str, str]:
    """Return the error and the traceback of a dead-letter job's row."""
    error, _, traceback = error.partition(_TRACEBACK)
    return error, traceback


Kind = Enum("Kind", "ID NAME TEXT NUMBER TIME DIGEST COUNT BYTES")
"""What the cells of a column of the history are; rows of many events pack them by this.

NAME: a text that all events of a row share. TEXT: one of few different texts. NUMBER: of 32 bits.
TIME: in microseconds. ID, DIGEST: in hexadecimal digits. COUNT, BYTES: only of some enqueue events.
"""


class Column(NamedTuple):
    """A column of the history.

    shown: its name in tables; empty for that of the field, of a timestamp without `_us`.
    null: the value in place of which tables have null.
    is_shown: whether tables have it.
    """

    kind: Kind
    shown: str = ""
    null: object = None
    is_shown: bool = True


Text = Annotated[str, Column(Kind.TEXT)]
Time = Annotated[int, Column(Kind.TIME)]
MaybeTime = Annotated[int, Column(Kind.TIME, null=0)]


@dataclass(slots=True)
class Attempt:
    """The history's row of one ended attempt; timestamps in microseconds UTC.

    The table of the history's columns, see COLUMNS. Not frozen, because workers create one for
    each job.

    started_us: 0 if the handler was not called, or the worker died before it recorded the start.
    outcome: a final state, or one of retried, snoozed, given_back, crashed. digest: of the result
    of a done job, see `digest_of`; empty if no result is kept. limits: of the job, separated by
    LIMIT_MARK. again_us: when a retried or snoozed job is due again; 0 for others. tags: of the
    job, separated by LIMIT_MARK.
    """

    job: Annotated[str, Column(Kind.ID, "job_id")]
    task: Text
    queue: Annotated[str, Column(Kind.NAME)]
    tenant: Text
    priority: Annotated[int, Column(Kind.NUMBER)]
    enqueued_us: Time
    due_us: Time
    claimed_us: MaybeTime
    started_us: MaybeTime
    ended_us: Time
    outcome: Text
    error: Text
    worker: Text
    fence: Annotated[int, Column(Kind.NUMBER, "attempt")]
    digest: Annotated[str, Column(Kind.DIGEST, null="")] = ""
    limits: Text = ""
    again_us: MaybeTime = 0
    tags: Annotated[str, Column(Kind.TEXT, is_shown=False)] = ""


@dataclass(slots=True)
class EnqueuedEvent(Attempt):
    """The row of a new job that has options, or whose history records arguments.

    codec: codec of the payload (codec.py). size: of the payload, in bytes. payload: the job's
    body; None if it is larger than ARGUMENTS_BYTES_MAX. options: the job's options as JSON, such as
    headers, tags and keys; empty without any.
    """

    codec: Annotated[int | None, Column(Kind.COUNT)] = None
    size: Annotated[int | None, Column(Kind.COUNT, "payload_bytes")] = None
    payload: Annotated[bytes | None, Column(Kind.BYTES)] = None
    options: Annotated[str, Column(Kind.TEXT, null="", is_shown=False)] = ""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the call."""
        return dict(decode(self.options.encode(), _Headers).headers) if self.options else {}


class _Headers(Cells, frozen=True, gc=False):
    """Those of a call's options that events show."""

    headers: tuple[tuple[str, str], ...] = ()


COLUMNS: Final[Mapping[str, Column]] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(EnqueuedEvent, include_extras=True).items()
}
"""The columns of the history, by the field of an event; those of `Attempt` first."""

SHOWN: Final[Mapping[str, str]] = {
    column.shown or name.removesuffix("_us"): name
    for name, column in COLUMNS.items()
    if column.is_shown
}
"""The field of an event, by the name of its column in tables."""


def digest_of(value: bytes) -> str:
    """Return the digest of a result: the first 8 bytes of its SHA-256, in hexadecimal.

    Args:
      value: The result as JSON; an empty one has an empty digest.
    """
    return sha256(value).hexdigest()[:DIGEST_DIGITS] if value else ""
