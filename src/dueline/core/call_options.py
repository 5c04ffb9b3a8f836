"""Options of a call: unique key, tags, expiry, step of a workflow."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from string import Formatter
from typing import Annotated, Any, Final, Literal, NamedTuple

from dueline.core.attempt import CallPlace, DurablePlace
from dueline.core.clock import duration_us
from dueline.core.codec import Cells, decode, encode
from dueline.core.constraints import check_constraints, constraint
from dueline.core.errors import BadInput, StoreCorrupt
from dueline.core.job import Job, JobId
from dueline.core.queue_settings import DeadInOrder
from dueline.core.retry import WAIT_US_MAX, RetryTerms
from dueline.core.worker_needs import read_needs, shown

Mode = Literal["reject", "existing", "replace", "earliest", "last"]

KEY_CHARACTERS_MAX = 512
HEADERS_MAX = 32
HEADER_CHARACTERS_MAX = 64
HEADERS_CHARACTERS_MAX = 4096
TAGS_MAX = 20
TAG_CHARACTERS_MAX = 64

_WHAT = "unique key"
_ORDER = "order key"


@dataclass(frozen=True, slots=True)
class Rule:
    """The unique key of a job.

    within_us: how long the key is held after the call; 0: until the job ends.
    """

    key: str
    mode: Mode = "reject"
    within_us: int = 0


class StepPlace(NamedTuple):
    """The step of a job in its workflow.

    number: of the step. parked_us: the job waits for other steps while it is due at this time.
    until_us: end of the wait for a signal; 0: no end, or no wait.
    """

    number: int
    parked_us: int = 0
    until_us: int = 0


WaitFailures = Literal["stop", "skip", "cancel"]


class OrderPlace(NamedTuple):
    """The order key of a job, and its place in the order of that.

    skips: the next job starts when this one is dead; None: if its queue says so when it dies.
    waits: it has not been released, so a claim checks whether its turn has come. turn: how often it
    was retried after it was skipped. parked_us: it waits for its turn while it is due at this time.
    number: of its entry, where that was read.
    """

    key: str
    skips: bool | None = None
    waits: bool = True
    turn: int = 0
    parked_us: int = 0
    number: int = 0

    def again(self) -> "OrderPlace":
        """Return the place of a dead job that is retried: its claim checks (rules J9 and J10)."""
        if self.skips:
            return OrderPlace(self.key, self.skips, turn=self.turn + 1)
        return self._replace(waits=True, parked_us=0)


class AwaitedJobs(NamedTuple):
    """The jobs and workflows that must end before a job, by their ids.

    failures: what becomes of the job if one of them fails, see `Dependency`.
    """

    jobs: tuple[bytes, ...] = ()
    flows: tuple[bytes, ...] = ()
    failures: WaitFailures = "stop"


class CallTerms(NamedTuple):
    """What one call has instead of its task or queue; None: as that says.

    retry: attempts and waits of a policy. timeout_us, kill_after_us: see `Handler`. keep_us: how
    long its result is kept.
    """

    retry: RetryTerms | None = None
    timeout_us: int | None = None
    kill_after_us: int | None = None
    keep_us: int | None = None


_NO_TERMS = CallTerms()


THROTTLED: Final = "throttled"
"""How the last attempt released a job whose handler raised `Throttled`."""


class Carried(Cells, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Options that a call passes on to its job as they are: the one list of them.

    A call, the template of a schedule, the call of a step and the stored options of a job have
    these fields by inheritance. CARRIED checks those that callers give as a value of their own.

    tags: sorted. terms: what the call has instead of its task or queue. headers: names and values
    that travel with the job, such as a trace context. needs: what its worker must have, sorted,
    see `worker_needs`; its lane names them, too. durable: of a durable function. awaits: what must
    end before the job starts; None once that is known to have ended. webhook: the address
    to which the end is reported; it may be secret.
    """

    tags: tuple[str, ...] = ()
    terms: CallTerms | None = None
    headers: tuple[tuple[str, str], ...] = ()
    needs: tuple[tuple[str, str], ...] = ()
    durable: DurablePlace | None = None
    awaits: AwaitedJobs | None = None
    webhook: str = ""

    def carried(self) -> dict[str, Any]:
        """Return the fields of this class that are set, by name, to pass them on."""
        return {name: value for name in Carried.__struct_fields__ if (value := getattr(self, name))}


class CallOptions(Carried, frozen=True, gc=False):
    """The cell `opts` of a job, JSON; empty bytes if nothing is set.

    expires_us: the job does not run from this time on. unique: the key that it holds.
    aside: for a job whose task is paused, its time before it was deferred, and the time until
      which it is; invalid once the row is due at another time.
    step: of a job of a workflow. put_back: the outcome of its last attempt and the time until
      which the job is deferred; invalid once the row is due at another time.
    called_by: the call of a durable function that made the job. has_dependents: others may wait
      for the end of the job, see `jobs.dependencies`. costs: numbers of units that the job takes
      of its limits, where it is not one. order: its order key. deliver_to: of a
      delivery, the address; it may be secret.
    """

    expires_us: int | None = None
    unique: Rule | None = None
    aside: tuple[int, int] | None = None
    step: StepPlace | None = None
    put_back: tuple[str, int] | None = None
    called_by: CallPlace | None = None
    has_dependents: bool = False
    costs: tuple[tuple[str, int], ...] = ()
    order: OrderPlace | None = None
    deliver_to: str = ""

    def to_bytes(self) -> bytes:
        """Return the options that are set as JSON."""
        return b"" if self == _NONE else encode(self)


_NONE = CallOptions()


def read_options(opts: bytes) -> CallOptions:
    """Return the options of a job.

    Raises: StoreCorrupt: they cannot be read.
    """
    return _read(opts) if opts else _NONE


@lru_cache(maxsize=4096)
def _read(opts: bytes) -> CallOptions:
    """Return options from JSON, cached."""
    return decode(opts, CallOptions)


def is_step(job: Job) -> bool:
    """Return whether a job is a step of a workflow; False if its options cannot be read."""
    if not job.opts:
        return False
    try:
        return read_options(job.opts).step is not None
    except StoreCorrupt:  # the worker that runs it reports that
        return False


def flow_of(job_id: JobId, step: int) -> JobId:
    """Return the id of the workflow of a step: the ids of its steps count up from it."""
    return JobId((int.from_bytes(job_id) - step - 1).to_bytes(16))


def call_of(job: Job) -> CallPlace | None:
    """Return the call that made a job; None if it was none, or its options cannot be read."""
    if not job.opts:
        return None
    try:
        return read_options(job.opts).called_by
    except StoreCorrupt:  # the worker that runs it reports that
        return None


def has_dependents(job: Job) -> bool:
    """Return whether others may wait for the end of a job; False if that cannot be read."""
    if not job.opts:
        return False
    try:
        return read_options(job.opts).has_dependents
    except StoreCorrupt:  # the worker that runs it reports that
        return False


def awaited_by(job: Job) -> AwaitedJobs | None:
    """Return the jobs that must end before a job starts; None: it waits for none."""
    return carried_by(job).awaits if job.opts else None


def order_of(job: Job) -> OrderPlace | None:
    """Return the order key of a job; None for none, or if its options cannot be read."""
    if not job.opts:
        return None
    try:
        return read_options(job.opts).order
    except StoreCorrupt:  # the worker that runs it reports that
        return None


def waits_for_turn(job: Job) -> OrderPlace | None:
    """Return the order key of a job that was not released; None for other jobs."""
    order = order_of(job)
    return order if order is not None and order.waits else None


def may_wait(job: Job) -> bool:
    """Return whether a claimed job may have to wait for others: a step, or one that awaits some."""
    return bool(job.opts) and (
        is_step(job) or awaited_by(job) is not None or waits_for_turn(job) is not None
    )


def is_awaited(job: Job) -> bool:
    """Return whether another job needs the result, however long it is kept."""
    return is_step(job) or call_of(job) is not None


def durable_place(job: Job) -> DurablePlace | None:
    """Return the place of a durable function; None for other jobs."""
    return carried_by(job).durable if job.opts else None


def carried_by(job: Job) -> Carried:
    """Return what a job carries; nothing if its options cannot be read."""
    try:
        return read_options(job.opts)
    except StoreCorrupt:  # the worker that runs it reports that
        return _NONE


def tags_of(job: Job) -> tuple[str, ...]:
    """Return a job's tags; none if its options cannot be read."""
    return carried_by(job).tags


def terms_of(job: Job) -> CallTerms:
    """Return what a job's call has instead of its task; nothing if its options cannot be read."""
    return carried_by(job).terms or _NO_TERMS if job.opts else _NO_TERMS


def read_tags(tags: object) -> tuple[str, ...]:
    """Return the tags of a call, sorted and without duplicates.

    Raises: BadInput: a tag is not a printable string of 1 to 64 characters, or there are too many.
    """
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise BadInput(
            f"`tags` must be a list of strings (got {tags!r:.80}).", hint='Use tags=["import"].'
        )
    read: set[str] = set()
    for tag in tags:
        if (
            not isinstance(tag, str)
            or not 0 < len(tag) <= TAG_CHARACTERS_MAX
            or not (tag.isprintable())
        ):
            raise BadInput(
                f"A tag must be a printable string (got {tag!r:.80}).",
                hint=f"Use 1 to {TAG_CHARACTERS_MAX} characters.",
            )
        read.add(tag)
    if len(read) > TAGS_MAX:
        raise BadInput(
            f"`tags` must have at most {TAGS_MAX} items (got {len(read)}).",
            hint=f"Use at most {TAGS_MAX}.",
        )
    return tuple(sorted(read))


def headers_of(job: Job) -> dict[str, str]:
    """Return a job's headers; none if its options cannot be read."""
    return dict(carried_by(job).headers)


def read_headers(headers: object) -> tuple[tuple[str, str], ...]:
    """Return the headers of a call as pairs, sorted by name.

    Raises: BadInput: a name or value is not a printable string, or they are too long.
    """
    if not isinstance(headers, Mapping):
        raise BadInput(
            f"`headers` must be a dict of strings (got {headers!r:.80}).",
            hint='Use headers={"request": "7f3a"}.',
        )
    for name, value in headers.items():
        if not all(isinstance(text, str) and text.isprintable() for text in (name, value)) or not (
            0 < len(name) <= HEADER_CHARACTERS_MAX
        ):
            raise BadInput(
                f"A header must have a printable name and value (got {name!r:.80}: {value!r:.80}).",
                hint=f"Use strings, and names of 1 to {HEADER_CHARACTERS_MAX} characters.",
            )
    length = sum(len(name) + len(value) for name, value in headers.items())
    if len(headers) > HEADERS_MAX or length > HEADERS_CHARACTERS_MAX:
        raise BadInput(
            f"`headers` are too many or too long ({len(headers)}, {length} characters).",
            hint=f"Use up to {HEADERS_MAX}, of {HEADERS_CHARACTERS_MAX} characters altogether.",
        )
    return tuple(sorted(headers.items()))


class CarriedForm(NamedTuple):
    """How a field of `Carried` is read and shown.

    read: checks a value of a call; raises BadInput. show: returns the field as JSON has it.
    """

    read: Callable[[object], Any]
    show: Callable[[Any], Any]


CARRIED: Final[Mapping[str, CarriedForm]] = {
    "tags": CarriedForm(read_tags, list),
    "headers": CarriedForm(read_headers, dict),
    "needs": CarriedForm(read_needs, shown),
}
"""The fields of `Carried` that callers give as a value of their own, by the option's name."""


def is_past(job: Job, now_us: int) -> bool:
    """Return whether a job has expired.

    Raises: StoreCorrupt: its options cannot be read.
    """
    return expires_by(job.opts, now_us)


def expires_by(opts: bytes, now_us: int) -> bool:
    """Return whether a job with these options has expired.

    Raises: StoreCorrupt: they cannot be read.
    """
    expires_us = read_options(opts).expires_us
    return expires_us is not None and expires_us <= now_us


@dataclass(frozen=True, slots=True)
class Unique:
    """A unique key: only one unfinished job of a queue holds it at a time.

    Attributes:
        key: The key; `{name}` is replaced by the argument of this name, as in "hello:{to}".
        within: Duration that the key is held after the call, even if the job ends sooner; a
            timedelta or seconds. None holds it until the job ends.
        mode: What a call does while another job holds the key. "reject" raises Duplicate.
            "existing" returns the other job. "replace" cancels it if it still waits, and raises
            Duplicate otherwise. "earliest" returns it, due at the earlier of both times. "last"
            cancels it if it waits and stores this call at the earlier of both times; otherwise
            it stores this call in addition.

    Raises:
        BadInput: A value is invalid.
    """

    key: Annotated[
        str,
        constraint("a string that is not empty", 'Use "hello:{to}".', name="unique", min_length=1),
    ]
    within: timedelta | float | None = None
    mode: Mode = "reject"

    def __post_init__(self) -> None:
        """Check the values."""
        check_constraints(self)
        if self.within is not None and self.mode == "last":
            raise BadInput(
                'A key of the mode "last" is held while its job waits; `within` does not apply.',
                hint="Omit `within`, and pass `after` so that the first call waits for others.",
            )
        if self.within is not None and not 0 < duration_us(self.within) <= WAIT_US_MAX:
            raise BadInput(
                f"`within` must be more than 0 s and at most ten years (got {self.within!r}).",
                hint="Use None to hold the key until the job ends.",
            )
        fields_of(self.key, _WHAT)

    def check(self, names: Iterable[str], task: str) -> None:
        """Check that the key names arguments of the task."""
        check_fields(self.key, _WHAT, names, task)

    def rule(self, arguments: Mapping[str, object]) -> Rule:
        """Return the key of one call.

        Raises: BadInput: the key is empty, too long, or not valid Unicode.
        """
        key = self.key.format(**{name: arguments[name] for name in fields_of(self.key, _WHAT)})
        checked_key(key)
        return Rule(key, self.mode, 0 if self.within is None else duration_us(self.within))


@dataclass(frozen=True, slots=True)
class OrderKey:
    """An order key: its jobs in a queue run one at a time, in the order of their calls.

    Attributes:
        key: The key; `{name}` is replaced by the argument of this name, as in "acct-{account}".
        dead: What a dead job does. "block" holds the others of its key until it is retried or
            deleted. "skip" lets them go on; a retry by hand then comes after them. None, the
            default, does what the queue's setting `dead_in_order` says when the job dies.

    Raises:
        BadInput: A value is invalid.
    """

    key: Annotated[
        str,
        constraint("a string that is not empty", 'Use "acct-{account}".', name="order_key",
                   min_length=1),
    ]  # fmt: skip
    dead: Annotated[
        DeadInOrder | None,
        constraint("one of block, skip", "Omit it for what the queue says."),
    ] = None

    def __post_init__(self) -> None:
        """Check the values."""
        check_constraints(self)
        fields_of(self.key, _ORDER)

    def check(self, names: Iterable[str], task: str) -> None:
        """Check that the key names arguments of the task."""
        check_fields(self.key, _ORDER, names, task)

    def place(self, arguments: Mapping[str, object]) -> OrderPlace:
        """Return the key of one call.

        Raises: BadInput: the key is empty, too long, or not valid Unicode.
        """
        names = fields_of(self.key, _ORDER)
        key = self.key.format(**{name: arguments[name] for name in names})
        skips = None if self.dead is None else self.dead == "skip"
        return OrderPlace(checked_key(key, _ORDER), skips)


def checked_key(key: str, what: str = _WHAT) -> str:
    """Return a key. what: what it is, for the error.

    Raises: BadInput: it is empty, too long, or not valid Unicode.
    """
    is_valid = key.isascii() or not any("\ud800" <= character <= "\udfff" for character in key)
    if not 0 < len(key) <= KEY_CHARACTERS_MAX or not is_valid:
        raise BadInput(
            f"The {what} {key!r:.80} is invalid.",
            hint=f"Use 1 to {KEY_CHARACTERS_MAX} characters.",
        )
    return key


def without_names(key: str) -> str:
    """Return the pattern of a key whose braces name no arguments."""
    return key.replace("{", "{{").replace("}", "}}")


def fields_of(text: str, what: str) -> list[str]:
    """Return the arguments that a string names in its braces.

    Args: what: what the string is, for the error.
    """
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise BadInput(
            f"The {what} {text!r} cannot be read: {error}.", hint="Double a literal brace: {{."
        ) from error
    fields = [field for _, field, _, _ in parts if field is not None]
    if not all(field.isidentifier() for field in fields) or any(
        spec or conversion for _, _, spec, conversion in parts
    ):
        raise BadInput(
            f"The {what} {text!r} has more than names in its braces.",
            hint='Use the names of arguments, as in "hello:{to}".',
        )
    return fields


def check_fields(text: str, what: str, names: Iterable[str], task: str) -> None:
    """Check that a string names arguments of a task."""
    known = set(names)
    for field in fields_of(text, what):
        if field not in known and known == {"args", "kwargs"}:  # no argument has a name
            raise BadInput(
                f"The {what} {text!r} names {field!r}, but {task} has no argument of this name "
                "here.",
                hint=f'Write the value itself, as in f"{text}".',
            )
        if field not in known:
            raise BadInput(
                f"The {what} {text!r} names {field!r}, which {task} does not take.",
                hint=f"Its arguments are {', '.join(sorted(known)) or 'none'}.",
            )
