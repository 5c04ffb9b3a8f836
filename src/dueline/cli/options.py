"""Options that several commands share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import typer

from dueline.core.clock import asked_instant_us
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput

LIMIT = 50
LIMIT_MAX = 100_000


def read_counts(words: Iterable[str], *, what: str, hint: str) -> dict[str, int]:
    """Read words of the form NAME=N.

    Raises: BadInput: a word has another form. what: what a word is called.
    """
    read: dict[str, int] = {}
    for word in words:
        name, sign, number = word.rpartition("=")
        if not sign or not number.isdecimal():
            raise BadInput(f"{word!r:.80} is not a valid {what}.", hint=hint)
        read[name] = int(number)
    return read


def option(metavar: str, text: str, *names: str, **bounds: Any) -> Any:  # noqa: ANN401  (Typer's)
    """Return an option with a value; its name is that of the parameter unless names are given."""
    return typer.Option(*names, metavar=metavar, help=text, **bounds)


def argument(metavar: str, text: str) -> Any:  # noqa: ANN401  (Typer's)
    """Return a positional argument."""
    return typer.Argument(metavar=metavar, help=text)


State = Literal[
    "scheduled",
    "ready",
    "running",
    "retrying",
    "paused",
    "dead",
    "uncertain",
    "done",
    "cancelled",
    "expired",
    "lost",
]
StateOption = Annotated[
    State | None, typer.Option("--state", help="Only jobs in this state; default: unfinished jobs.")
]
QueueOption = Annotated[str | None, option("NAME", "Only jobs of this queue.", "-q", "--queue")]
TaskOption = Annotated[str | None, option("NAME", "Only jobs of this task.", "--task")]
TenantOption = Annotated[str | None, option("NAME", "Only jobs of this tenant.", "--tenant")]
TagOption = Annotated[str | None, option("TAG", "Only jobs with this tag.", "--tag")]
TagsOption = Annotated[list[str] | None, option("TAG", "Tag of the job; repeatable.", "--tag")]
HeadersOption = Annotated[
    list[str] | None, option("NAME=VALUE", "Header of the job; repeatable.", "--header")
]
FileOption = Annotated[
    str | None, option("PATH", "Read one job per line as JSON; - for stdin.", "--file")
]
LimitOption = Annotated[
    int, option("N", "Maximum number of jobs.", "--limit", min=1, max=LIMIT_MAX)
]
DueBeforeOption = Annotated[
    str | None, option("TIMESTAMP", "Only jobs that are due earlier.", "--due-before")
]
MassLimitOption = Annotated[
    int | None, option("N", "Maximum number of jobs.", "--limit", min=1, max=LIMIT_MAX)
]
AllMatchingOption = Annotated[
    bool, typer.Option("--all-matching", help="Change all matching jobs instead of ids.")
]
MaybeIdsArgument = Annotated[list[str] | None, argument("ID", "Ids of jobs.")]
IdArgument = Annotated[str, argument("ID", "Id of the job, or its first digits.")]
IdsArgument = Annotated[list[str], argument("ID", "Ids of jobs.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Count only; change nothing.")]


@dataclass(frozen=True, slots=True)
class BulkOptions:
    """Which jobs a command changes in bulk, up to how many, with or without confirmation."""

    every: AllMatchingOption = False
    state: StateOption = None
    queue: QueueOption = None
    task: TaskOption = None
    tenant: TenantOption = None
    tag: TagOption = None
    due_before: DueBeforeOption = None
    limit: MassLimitOption = None
    yes: YesOption = False
    dry_run: DryRunOption = False


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """Which jobs of a queue `jobs move` moves, up to how many, with or without confirmation."""

    from_queue: Annotated[
        str | None, option("NAME", "Move all matching jobs of this queue.", "--from-queue")
    ] = None
    words: Annotated[
        str | None, option("WORDS", "Words such as 'priority>3 error:Timeout'.", "--filter")
    ] = None
    state: StateOption = None
    task: TaskOption = None
    tenant: TenantOption = None
    tag: TagOption = None
    limit: MassLimitOption = None
    yes: YesOption = False
    dry_run: DryRunOption = False


def read_since_us(text: str, now_us: int) -> int:
    """Read the start of a period: a duration before now, or a timestamp."""
    if text[:4].isdigit() and text[4:5] == "-":
        return asked_instant_us(read_instant(text), "--since")
    return now_us - parse_span(text)


def read_instant(text: str) -> datetime:
    """Read an ISO 8601 timestamp."""
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(
            f"{text!r:.80} is not an ISO 8601 timestamp.", hint="Use 2027-01-01T09:00:00+02:00."
        ) from error


def read_span(text: str) -> timedelta:
    """Read a duration such as 90s."""
    return timedelta(microseconds=parse_span(text))


def read_pairs(words: Sequence[str], name: str) -> dict[str, str]:
    """Read words of the form NAME=VALUE of an option.

    Raises: BadInput: a word has no equals sign.
    """
    for word in words:
        if "=" not in word:
            raise BadInput(f"`--{name}` must be NAME=VALUE (got {word!r:.80}).")
    return dict(word.split("=", 1) for word in words)
