"""Options that several commands share."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer

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


class State(StrEnum):
    """The states of jobs."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    RETRYING = "retrying"
    DEAD = "dead"
    DONE = "done"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    LOST = "lost"


class UniqueMode(StrEnum):
    """What a call does while another job holds its unique key."""

    REJECT = "reject"
    EXISTING = "existing"
    REPLACE = "replace"
    EARLIEST = "earliest"
    LAST = "last"


StateOption = Annotated[
    State | None,
    typer.Option("--state", help="Only jobs in this state; default: unfinished jobs."),
]
QueueOption = Annotated[
    str | None, typer.Option("--queue", metavar="NAME", help="Only jobs of this queue.")
]
TaskOption = Annotated[
    str | None, typer.Option("--task", metavar="NAME", help="Only jobs of this task.")
]
TenantOption = Annotated[
    str | None, typer.Option("--tenant", metavar="NAME", help="Only jobs of this tenant.")
]
TagOption = Annotated[
    str | None, typer.Option("--tag", metavar="TAG", help="Only jobs with this tag.")
]
TagsOption = Annotated[
    list[str] | None, typer.Option("--tag", metavar="TAG", help="Tag of the job; repeatable.")
]
AfterOption = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="Start after this duration: 90s, 10m, 2h, 3d."),
]
DueOption = Annotated[
    str | None,
    typer.Option(metavar="TIMESTAMP", help="Start at this time: 2027-01-01T09:00:00+02:00."),
]
FileOption = Annotated[
    str | None,
    typer.Option("--file", metavar="PATH", help="Read one job per line as JSON; - for stdin."),
]
DeadlineOption = Annotated[
    str | None,
    typer.Option(
        "--deadline", metavar="DURATION", help="Finish within this duration; instead of --priority."
    ),
]
ExpiresOption = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="Expire after this duration: 90s, 10m, 2h, 3d."),
]
WindowOption = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="Start at a random time within this duration."),
]
LimitOption = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, max=LIMIT_MAX, help="Maximum number of jobs.")
]
DueBeforeOption = Annotated[
    str | None,
    typer.Option("--due-before", metavar="TIMESTAMP", help="Only jobs that are due earlier."),
]
MassLimitOption = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, max=LIMIT_MAX, help="Maximum number of jobs."),
]
AllMatchingOption = Annotated[
    bool, typer.Option("--all-matching", help="Change all matching jobs instead of ids.")
]
MaybeIdsArgument = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of jobs.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the job.")]
IdsArgument = Annotated[list[str], typer.Argument(metavar="ID", help="Ids of jobs.")]
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


def read_instant(text: str) -> datetime:
    """Read an ISO 8601 timestamp."""
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(
            f"{text!r:.80} is not an ISO 8601 timestamp.", hint="Use 2027-01-01T09:00:00+02:00."
        ) from error
