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

    Raises: BadInput: one is no such `what`.
    """
    read: dict[str, int] = {}
    for word in words:
        name, sign, number = word.rpartition("=")
        if not sign or not number.isdecimal():
            raise BadInput(f"{word!r:.80} is no {what}.", hint=hint)
        read[name] = int(number)
    return read


class State(StrEnum):
    """The states by which jobs are listed."""

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
    """What becomes of a call while another job has its key."""

    REJECT = "reject"
    EXISTING = "existing"
    REPLACE = "replace"
    EARLIEST = "earliest"
    LAST = "last"


StateOption = Annotated[
    State | None, typer.Option("--state", help="Only jobs in this state; any waiting by default.")
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
    str | None, typer.Option("--tag", metavar="TAG", help="Only jobs that have this tag.")
]
TagsOption = Annotated[
    list[str] | None, typer.Option("--tag", metavar="TAG", help="To find it by; repeatable.")
]
AfterOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Not before so long from now: 90s 10m 2h 3d.")
]
DueOption = Annotated[
    str | None,
    typer.Option(metavar="ISO", help="Not before this instant: 2027-01-01T09:00:00+02:00."),
]
FileOption = Annotated[
    str | None,
    typer.Option("--file", metavar="PATH", help='A line a job: [1, 2] or {"a": 1}; - for stdin.'),
]
DeadlineOption = Annotated[
    str | None,
    typer.Option("--deadline", metavar="TIME", help="So long from now; in place of --priority."),
]
ExpiresOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Not run later than so long from now: 90s 10m 2h 3d."),
]
WindowOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Start anywhere within so long from then.")
]
LimitOption = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, max=LIMIT_MAX, help="At most so many.")
]
DueBeforeOption = Annotated[
    str | None,
    typer.Option("--due-before", metavar="ISO", help="Only jobs whose due time is earlier."),
]
MassLimitOption = Annotated[
    int | None, typer.Option("--limit", metavar="N", min=1, max=LIMIT_MAX, help="At most so many.")
]
AllMatchingOption = Annotated[
    bool, typer.Option("--all-matching", help="All jobs that match, instead of ids.")
]
MaybeIdsArgument = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Jobs' ids.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="A job's id.")]
IdsArgument = Annotated[list[str], typer.Argument(metavar="ID", help="Jobs' ids.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only count; change nothing.")]


@dataclass(frozen=True, slots=True)
class BulkOptions:
    """Which jobs a command changes in bulk, up to how many, and whether it asks first."""

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
    """Read an instant as ISO 8601 writes it."""
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(
            f"{text!r} is not an instant.", hint="Write it as 2027-01-01T09:00:00+02:00."
        ) from error
