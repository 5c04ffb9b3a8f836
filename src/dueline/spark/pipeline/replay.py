"""Replay: jobs of a history enqueued again as new jobs.

A new job's id is derived from the old id and the replay's name, so a repeated or resumed replay
produces the same jobs. It is recorded like every write of data, so finished jobs are not added
again.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dueline.core.attempt import ARGUMENTS_BYTES_MAX
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import BadInput
from dueline.jobs.audit_rules import FINAL
from dueline.spark.pipeline.queries import Derived, Queries, Result, View, lines_of, text_of

KINDS: Final = """
    SELECT queue, task, outcome, count(*) AS jobs, count(payload) AS replayable,
        count_if(payload IS NULL AND payload_bytes IS NOT NULL) AS too_large,
        count_if(payload IS NULL AND payload_bytes IS NULL) AS not_kept
    FROM ends GROUP BY queue, task, outcome"""
LEFT_OUT: Final = """
    SELECT queue, job_id, CASE WHEN payload_bytes IS NULL THEN :not_kept ELSE :large END AS why
    FROM ends WHERE payload IS NULL ORDER BY queue, job_id LIMIT :named"""
CALLS: Final = """
    SELECT concat(job_id, :suffix) AS job_id,
        timestamp_micros(:start_us + CAST(floor((place - 1) * :gap_us) AS BIGINT)) AS due,
        queue, task, tenant, priority, codec, payload
    FROM (SELECT *, row_number() OVER (ORDER BY ended, job_id) AS place FROM ends
        WHERE payload IS NOT NULL)"""

KEEP_US: Final = 30 * DAY_US
"""How long a repeated replay recognizes the jobs that it added."""

RATE_MIN: Final = 0.001

NAMED_MAX: Final = 1000
"""Maximum number of jobs that are listed as not replayable; all are counted."""

LARGE: Final = f"its arguments are larger than {ARGUMENTS_BYTES_MAX // 1024} KiB"
NOT_KEPT: Final = "its arguments were not kept"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class Chosen(NamedTuple):
    """A filter of jobs by their last end, before `until_us`; empty fields match all."""

    queues: Sequence[str] = ()
    task: str = ""
    outcomes: Sequence[str] = ("done",)
    since_us: int = 0
    until_us: int = (1 << 63) - 1


class Order(NamedTuple):
    """How jobs are replayed.

    Attributes:
        name: Name of the replay, which adds each job once.
        start_us: Due time of the first job.
        gap_us: Time between due times, in the order of the jobs' ends; 0 for all at once.
    """

    name: str
    start_us: int
    gap_us: float = 0.0

    @property
    def write(self) -> str:
        """Return the name of the write."""
        return f"replay/{self.name}"


class Kind(NamedTuple):
    """Counts of jobs of one kind, and of those that can be replayed."""

    queue: str
    task: str
    outcome: str
    jobs: int
    replayable: int
    too_large: int
    not_kept: int


class LeftOut(NamedTuple):
    """A job that cannot be replayed, and why."""

    queue: str
    job_id: str
    why: str


class Found(NamedTuple):
    """The jobs of a replay, and the first NAMED_MAX that are left out."""

    kinds: Sequence[Kind]
    left_out: Sequence[LeftOut]

    def count(self, name: str) -> int:
        """Return the sum of a column."""
        return sum(getattr(kind, name) for kind in self.kinds)


def found(queries: Queries, rows: View, chosen: Chosen) -> Found:
    """Count the chosen jobs by kind, and list those that cannot be replayed.

    Args:
        queries: The engine.
        rows: The history, with enqueue events and other rows.
        chosen: The filter.
    """
    values = _values(chosen) | {"large": LARGE, "not_kept": NOT_KEPT, "named": NAMED_MAX}
    counted, named = (lines_of(queries.run(sql, _views(rows), values)) for sql in (KINDS, LEFT_OUT))
    return Found(
        sorted(Kind(**line) for line in counted), sorted(LeftOut(**line) for line in named)
    )


def calls(queries: Queries, rows: View, chosen: Chosen, order: Order) -> Result:
    """Return the rows to enqueue: one for each chosen job whose arguments are kept.

    Args:
        queries: The engine.
        rows: The history, with enqueue events and other rows.
        chosen: The filter.
        order: The replay.
    """
    values = {"suffix": f"@{order.name}", "start_us": order.start_us, "gap_us": order.gap_us}
    return queries.run(CALLS, _views(rows), _values(chosen) | values)


def _views(rows: View) -> dict[str, View]:
    return {"rows": rows, "ends": Derived(text_of("replay"))}


def _values(chosen: Chosen) -> dict[str, Any]:
    lists = {"queues": list(chosen.queues), "outcomes": list(chosen.outcomes)}
    return chosen._asdict() | lists | {"all_queues": not chosen.queues}


def order_of(name: str, start_us: int, rate: float | None) -> Order:
    """Return an order of `rate` jobs per second, or all at once if None.

    Raises:
        BadInput: The name or the rate is invalid.
    """
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{name!r:.80} is not a valid name of a replay.",
            hint="Use up to 63 letters, digits, and . _ - between them.",
        )
    if rate is not None and not RATE_MIN <= rate <= SECOND_US:
        raise BadInput(
            f"`rate` must be {RATE_MIN} to {SECOND_US} jobs per second (got {rate}).",
            hint="Use --rate 100.",
        )
    return Order(name, start_us, 0.0 if rate is None else SECOND_US / rate)


def chosen_of(
    task: str | None, outcomes: Sequence[str] | None, since_us: int | None, until_us: int | None
) -> Chosen:
    """Return a filter; None matches all.

    Raises:
        BadInput: An outcome does not end a job.
    """
    for outcome in outcomes or ():
        if outcome not in FINAL:
            raise BadInput(
                f"The outcome {outcome!r:.80} does not end a job.", hint=f"Use {', '.join(FINAL)}."
            )
    chosen = Chosen(task=task or "", outcomes=outcomes or ("done",), since_us=since_us or 0)
    return chosen if until_us is None else chosen._replace(until_us=until_us)
