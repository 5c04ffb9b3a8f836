"""The columns of a pipeline's tables."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from dueline.spark.pipeline.audit_rules import OUTCOMES, SPAN_COLUMNS
from dueline.spark.pipeline.thresholds import WINDOWS_US

_KINDS: Final = {
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


BRONZE_SHAPE: Final = _shape(
    string="queue id job_id task tenant outcome error worker digest",
    int="shard attempt priority codec payload_bytes",
    instant="at enqueued due claimed started ended",
    bytes="payload",
)


def shaped(batch: pa.RecordBatch, shape: pa.Schema) -> pa.RecordBatch:
    """Return a batch in a shape; columns that an older version lacks are null."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in shape
    ]
    return pa.RecordBatch.from_arrays(columns, schema=shape)


SILVER_SHAPE: Final = _shape(
    string="queue job_id task tenant outcome error worker",
    int="shard attempt priority",
    instant="enqueued due claimed started ended",
    long="wait_us lateness_us run_us",
    flag="is_takeover",
)
_HISTOGRAM: Final = _shape(string="queue tenant", instant="minute", int="step", long="attempts")

SHAPES: Final[Mapping[str, pa.Schema]] = {
    "gold_minute": _shape(
        string="queue tenant",
        instant="minute",
        long=" ".join(("attempts", *OUTCOMES, "takeovers", *SPAN_COLUMNS)),
    ),
    "gold_lateness": _HISTOGRAM,
    "gold_run": _HISTOGRAM,
    "flow": _shape(string="queue", int="shard", instant="minute", long="came went"),
    "slo": _shape(
        string="queue",
        long=" ".join(("started", "in_time", *(f"started_{name}" for name in WINDOWS_US))),
        double=" ".join(("share", *(f"burn_{name}" for name in WINDOWS_US))),
    ),
    "fairness": _shape(string="queue", instant="minute", long="tenants attempts", double="jain"),
    "suspicious": _shape(string="queue reason evidence command", int="shard"),
    "poison": _shape(
        string="queue task fingerprint", long="jobs attempts crashed dead", instant="last"
    ),
}
