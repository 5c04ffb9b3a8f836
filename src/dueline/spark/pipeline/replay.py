"""Jobs of a history enqueued again, as new jobs.

A new job's id is made of the old one and the replay's name, so a replay that is repeated, or goes
on where it was cut off, comes to the same jobs; and the write is recorded as all writes of data
are, so that it adds none of them again once they have run.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from dueline.core.attempt import ARGUMENTS_BYTES_MAX
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import BadInput
from dueline.spark.pipeline.audit_rules import ENDED

ENDS: Final = (*ENDED, "dead")
"""How jobs end."""

KEEP_US: Final = 30 * DAY_US
"""For so long a replay that is repeated finds what it has put."""

RATE_MIN: Final = 0.001

NAMED_MAX: Final = 1000
"""Of the jobs that cannot be replayed so many are named; all are counted."""

LARGE: Final = f"its arguments are larger than {ARGUMENTS_BYTES_MAX // 1024} KiB"
NOT_KEPT: Final = "its arguments were not kept"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")

Line = Mapping[str, Any]


class Chosen(NamedTuple):
    """Which jobs: each part that is not empty has to fit their last end.

    since_us, until_us: when they ended; `until_us` is no more.
    """

    queues: Sequence[str] = ()
    task: str = ""
    outcomes: Sequence[str] = ("done",)
    since_us: int = 0
    until_us: int = (1 << 63) - 1


class Order(NamedTuple):
    """How jobs are replayed. name: of the replay, which puts each job once.

    start_us: when the first is due, and gap_us: how long after it the next, in the order of
    their ends; 0 for all at once.
    """

    name: str
    start_us: int
    gap_us: float = 0.0

    @property
    def write(self) -> str:
        """Name the write that puts them."""
        return f"replay/{self.name}"


class Kind(NamedTuple):
    """Jobs of one kind: how many there are, and which of them can be replayed."""

    queue: str
    task: str
    outcome: str
    jobs: int
    replayable: int
    too_large: int
    not_kept: int


class LeftOut(NamedTuple):
    """A job that cannot be replayed."""

    queue: str
    job_id: str
    why: str


class Found(NamedTuple):
    """What a replay would come to. left_out: the first NAMED_MAX of those that stay behind."""

    kinds: Sequence[Kind]
    left_out: Sequence[LeftOut]

    def count(self, name: str) -> int:
        """Add a column of all kinds up."""
        return sum(getattr(one, name) for one in self.kinds)


def order_of(name: str, start_us: int, rate: float | None) -> Order:
    """Make an order. rate: jobs a second, None for all at once.

    Raises: BadInput: the name or the rate is none.
    """
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{name!r:.80} cannot name a replay.",
            hint="Use letters, digits, and . _ - between them, 63 at most.",
        )
    if rate is not None and not RATE_MIN <= rate <= SECOND_US:
        raise BadInput(f"A rate of {rate} jobs a second cannot be.", hint="Write --rate 100.")
    return Order(name, start_us, 0.0 if rate is None else SECOND_US / rate)


def chosen_of(
    task: str | None, outcomes: Sequence[str] | None, since_us: int | None, until_us: int | None
) -> Chosen:
    """Make a choice; what is None leaves open what it can.

    Raises: BadInput: no job ends so.
    """
    for one in outcomes or ():
        if one not in ENDS:
            raise BadInput(f"No job ends as {one!r:.80}.", hint=f"Use {', '.join(ENDS)}.")
    chosen = Chosen(task=task or "", outcomes=outcomes or ("done",), since_us=since_us or 0)
    return chosen if until_us is None else chosen._replace(until_us=until_us)
