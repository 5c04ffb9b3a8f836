"""What a call asks beyond where and when."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from string import Formatter
from typing import Annotated, Literal, NamedTuple

from dueline.core.clock import duration_us
from dueline.core.codec import Cells, decode, encode
from dueline.core.constraints import check_constraints, constraint
from dueline.core.errors import BadInput, StoreCorrupt
from dueline.core.job import Job
from dueline.core.retry import WAIT_US_MAX

Mode = Literal["reject", "existing", "replace", "earliest", "last"]

KEY_CHARACTERS_MAX = 512
TAGS_MAX = 20
TAG_CHARACTERS_MAX = 64

_WHAT = "unique key"


@dataclass(frozen=True, slots=True)
class Rule:
    """A unique key as a job carries it.

    within_us: how long the key is held from the call on; 0: as long as the job is alive.
    """

    key: str
    mode: Mode = "reject"
    within_us: int = 0


class StepPlace(NamedTuple):
    """Where a job stands in its workflow.

    number: of the step. parked_us: it waits for others, if it lies there still. until_us: it
    waits for a signal no longer; 0: for ever, or it waits for none.
    """

    number: int
    parked_us: int = 0
    until_us: int = 0


class CallOptions(Cells, frozen=True, gc=False):
    """The birth cell `opts`, JSON; empty bytes where nothing is set, so that it costs nothing.

    expires_us: from this instant on the job is not run. unique: the key that it holds.
    tags: words to find it by, sorted. aside: of a job whose task is paused, from where it was set
      aside, and until when; it says nothing once the row is due at another time.
    step: of a job of a workflow. put_back: how its last attempt put it back, as its history calls
      that, and until when; it says nothing once the row is due at another time.
    """

    expires_us: int | None = None
    unique: Rule | None = None
    tags: tuple[str, ...] = ()
    aside: tuple[int, int] | None = None
    step: StepPlace | None = None
    put_back: tuple[str, int] | None = None

    def to_bytes(self) -> bytes:
        """Write what is set."""
        cells = {
            "expires_us": self.expires_us,
            "unique": self.unique,
            "tags": self.tags or None,
            "aside": self.aside,
            "step": self.step,
            "put_back": self.put_back,
        }
        given = {name: value for name, value in cells.items() if value is not None}
        return encode(given) if given else b""


_NONE = CallOptions()


def read_options(opts: bytes) -> CallOptions:
    """Read a job's `opts`.

    Raises: StoreCorrupt: they cannot be read.
    """
    return _read(opts) if opts else _NONE


@lru_cache(maxsize=4096)
def _read(opts: bytes) -> CallOptions:
    """Read options that are set; what is asked of a job several times is read once."""
    return decode(opts, CallOptions)


def is_step(job: Job) -> bool:
    """Tell whether a job is a step of a workflow; not where its options cannot be read."""
    if not job.opts:
        return False
    try:
        return read_options(job.opts).step is not None
    except StoreCorrupt:  # whoever runs it says so
        return False


def tags_of(job: Job) -> tuple[str, ...]:
    """Tell a job's tags; none where its options cannot be read."""
    try:
        return read_options(job.opts).tags
    except StoreCorrupt:  # whoever runs it says so
        return ()


def read_tags(tags: object) -> tuple[str, ...]:
    """Read tags as a caller gives them: each once, in order.

    Raises: BadInput: they are no texts, too many, too long, or cannot be shown on a line.
    """
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise BadInput(f"tags={tags!r:.80} is no list of texts.", hint='Write tags=["import"].')
    read: set[str] = set()
    for tag in tags:
        if (
            not isinstance(tag, str)
            or not 0 < len(tag) <= TAG_CHARACTERS_MAX
            or not tag.isprintable()
        ):
            raise BadInput(
                f"{tag!r:.80} is no tag.", hint=f"Use 1 to {TAG_CHARACTERS_MAX} signs on a line."
            )
        read.add(tag)
    if len(read) > TAGS_MAX:
        raise BadInput(f"These are {len(read)} tags.", hint=f"Use at most {TAGS_MAX}.")
    return tuple(sorted(read))


def is_past(job: Job, now_us: int) -> bool:
    """Tell whether a job has expired.

    Raises: StoreCorrupt: its options cannot be read.
    """
    if not job.opts:
        return False
    expires_us = read_options(job.opts).expires_us
    return expires_us is not None and expires_us <= now_us


@dataclass(frozen=True, slots=True)
class Unique:
    """At most one job alive for a key.

    key: a text; `{name}` stands for the call's argument of that name, as in "hello:{to}".
      Keys of different queues have nothing to do with each other.
    within: a timedelta or seconds; the key is held so long from the call on, also when the job
      ends sooner. None: as long as the job is scheduled, ready, running or retrying.
    mode: what becomes of a call while another job holds the key: "reject" raises Duplicate,
      "existing" answers that job, "replace" cancels it for this call if it still waits and
      raises Duplicate otherwise, "earliest" answers it, made due at the earlier of both times,
      "last" cancels it if it waits, for this call at the earlier of both times, and otherwise
      stores this call beside it.
    """

    key: Annotated[
        str,
        constraint("a string that is not empty", 'Use "hello:{to}".', name="unique", min_length=1),
    ]
    within: timedelta | float | None = None
    mode: Mode = "reject"

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        check_constraints(self)
        if self.within is not None and self.mode == "last":
            raise BadInput(
                'A key of the mode "last" is held while its job waits, and not for a period.',
                hint="Leave within out, and say after=, so that the first call waits for others.",
            )
        if self.within is not None and not 0 < duration_us(self.within) <= WAIT_US_MAX:
            raise BadInput(
                f"`within` must be more than 0 s and at most ten years (got {self.within!r}).",
                hint="Use None to hold the key until the job ends.",
            )
        fields_of(self.key, _WHAT)

    def check(self, names: Iterable[str], task: str) -> None:
        """Make sure that the key names arguments that the task has."""
        check_fields(self.key, _WHAT, names, task)

    def rule(self, arguments: Mapping[str, object]) -> Rule:
        """Fill in the key for one call.

        Raises: BadInput: it comes out empty, too long, or as no text that a store can keep.
        """
        key = self.key.format(**{name: arguments[name] for name in fields_of(self.key, _WHAT)})
        if not 0 < len(key) <= KEY_CHARACTERS_MAX or any(
            "\ud800" <= one <= "\udfff" for one in key
        ):
            raise BadInput(
                f"The unique key {key!r:.80} cannot be kept.",
                hint=f"Use 1 to {KEY_CHARACTERS_MAX} characters.",
            )
        return Rule(key, self.mode, 0 if self.within is None else duration_us(self.within))


def fields_of(text: str, what: str) -> list[str]:
    """List the arguments that a text names; nothing but names may stand in the braces.

    Args: what: for the error, what the text is.
    """
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise BadInput(
            f"The {what} {text!r} cannot be read: {error}.", hint="Double a plain brace: {{."
        ) from error
    fields = [field for _, field, _, _ in parts if field is not None]
    if not all(field.isidentifier() for field in fields) or any(
        spec or conversion for _, _, spec, conversion in parts
    ):
        raise BadInput(
            f"The {what} {text!r} holds more than names in its braces.",
            hint='Write the names of arguments, as in "hello:{to}".',
        )
    return fields


def check_fields(text: str, what: str, names: Iterable[str], task: str) -> None:
    """Make sure that a text names arguments that a task has."""
    known = set(names)
    for field in fields_of(text, what):
        if field not in known:
            raise BadInput(
                f"The {what} {text!r} names {field!r}, which {task} does not take.",
                hint=f"It takes {', '.join(sorted(known)) or 'nothing'}.",
            )
