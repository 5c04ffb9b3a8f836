"""The tables of a pipeline: names, columns, partitions, and which query makes each.

Bronze is a copy of the history, append only. Each row carries the number of the batch that copied
it. Every other table is a function of bronze: it has the position `batch`, and is updated from
the rows of later batches and the earlier rows of the same runs of jobs.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from dueline.jobs.audit_rules import OUTCOMES, SPAN_COLUMNS
from dueline.spark.pipeline.delta import DAY, Design, Place, Table
from dueline.spark.pipeline.thresholds import WINDOWS_US

BATCH: Final = "batch"
"""Position of a table: the last batch of bronze that it includes."""

INSTANT: Final = "instant"
"""Position of a table: the time up to which it includes the history, in microseconds."""

_KINDS: Final = {
    "day": pa.date32(),
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "instant": pa.timestamp("us", "UTC"),
    "double": pa.float64(),
    "flag": pa.bool_(),
    "bytes": pa.binary(),
}


def _shape(**columns: str) -> pa.Schema:
    return pa.schema(
        [(name, _KINDS[kind]) for kind, names in columns.items() for name in names.split()]
    )


BRONZE: Final = Design(
    "bronze",
    _shape(
        day=DAY,
        string="queue id job_id task tenant outcome error worker digest limits",
        int="shard attempt priority codec payload_bytes",
        instant="at enqueued due claimed started ended again",
        bytes="payload",
        long=BATCH,
    ),
    order=("queue", "enqueued", "at", "id"),
    ranged=("queue", "enqueued", "at", BATCH),
    instant="enqueued",
)
"""The history as it is; the partition is the day in which the job was enqueued."""

SILVER: Final = Design(
    "silver",
    _shape(
        day=DAY,
        string="queue job_id task tenant outcome error fingerprint worker",
        int="shard attempt priority",
        instant="enqueued due claimed started ended",
        long="wait_us lateness_us run_us",
        flag="is_takeover is_failure is_first_failure",
    ),
    order=("queue", "ended", "job_id", "enqueued", "attempt"),
    ranged=("queue", "ended", "enqueued"),
    instant="ended",
)
"""One row for each attempt; the partition is the day in which it ended."""


class Sums(NamedTuple):
    """A table of counts by keys: rows of two such tables with equal keys can be added.

    Attributes:
        design: The table.
        keys: The columns that identify a row.
        source: The view that its query reads: `changes` of silver, or `runs`.
    """

    design: Design
    keys: Sequence[str]
    source: str = "changes"

    @property
    def counts(self) -> list[str]:
        """Return the columns that are added."""
        return [name for name in self.design.shape.names if name not in (DAY, *self.keys)]


def _sums(name: str, source: str = "changes", *, text: str, counts: str) -> Sums:
    """Return counts in each minute."""
    strings = " ".join(name for name in text.split() if name not in ("shard", "step"))
    numbers = " ".join(name for name in text.split() if name in ("shard", "step"))
    shape = _shape(day=DAY, string=strings, int=numbers, instant="minute", long=counts)
    keys = text.split()
    design = Design(name, shape, ("minute", *keys), ("minute",), "minute")
    return Sums(design, (*keys, "minute"), source)


SUMS: Final[Mapping[str, Sums]] = {
    sums.design.name: sums
    for sums in (
        _sums(
            "gold_minute",
            text="queue tenant",
            counts=" ".join(("attempts", *OUTCOMES, "takeovers", *SPAN_COLUMNS)),
        ),
        _sums("gold_lateness", text="queue tenant step", counts="attempts"),
        _sums("gold_run", text="queue tenant step", counts="attempts"),
        _sums("gold_start", text="queue", counts="started in_time"),
        _sums("gold_failure", text="queue task fingerprint", counts="attempts crashed dead jobs"),
        Sums(
            Design(
                "gold_shard",
                _shape(string="queue", int="shard step", long="attempts crashed"),
                ("queue", "shard", "step"),
                ("queue",),
            ),
            ("queue", "shard", "step"),
        ),
        _sums("flow", "runs", text="queue shard", counts="came went"),
    )
}

OPERATORS: Final[Mapping[str, tuple[Design, str]]] = {
    "slo": (
        Design(
            "slo",
            _shape(
                string="queue",
                long=" ".join(("started", "in_time", *(f"started_{name}" for name in WINDOWS_US))),
                double=" ".join(("share", *(f"burn_{name}" for name in WINDOWS_US))),
            ),
            ("queue",),
            ("queue",),
        ),
        "gold_start",
    ),
    "fairness": (
        Design(
            "fairness",
            _shape(
                day=DAY, string="queue tenant", instant="minute", long="tenants attempts over_us"
            ),
            ("minute", "queue"),
            ("minute",),
            "minute",
        ),
        "gold_minute",
    ),
    "suspicious": (
        Design(
            "suspicious",
            _shape(string="queue reason evidence command", int="shard"),
            ("queue", "shard"),
            ("queue",),
        ),
        "gold_shard",
    ),
    "poison": (
        Design(
            "poison",
            _shape(
                string="queue task fingerprint", long="jobs attempts crashed dead", instant="last"
            ),
            ("queue", "task", "fingerprint"),
            ("queue",),
        ),
        "gold_failure",
    ),
}
"""Small tables for operators, and the sums from which each is computed."""

AUDIT: Final = Design(
    "audit",
    _shape(string="kind rule queue job_id outcome", int="attempt", instant="enqueued"),
    ("kind", "job_id", "enqueued"),
    ("kind",),
)
"""What an audit leaves to the next one; see `audit_state`."""

DESIGNS: Final[Mapping[str, Design]] = {
    "bronze": BRONZE,
    "silver": SILVER,
    **{name: sums.design for name, sums in SUMS.items()},
    **{name: design for name, (design, _) in OPERATORS.items()},
}
"""All tables of a lake, by name."""


def open_table(lake: Place, name: str) -> Table:
    """Return a table of a lake, which need not exist."""
    return Table(lake.below(name), DESIGNS[name])
