"""Options that several commands share."""

from enum import StrEnum
from typing import Annotated

import typer

LIMIT = 50
LIMIT_MAX = 100_000


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
LimitOption = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, max=LIMIT_MAX, help="At most so many.")
]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="A job's id.")]
IdsArgument = Annotated[list[str], typer.Argument(metavar="ID", help="Jobs' ids.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only count; change nothing.")]
