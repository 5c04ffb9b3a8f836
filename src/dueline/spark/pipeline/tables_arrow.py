"""The tables of `tables_spark`, without Spark, for one machine and for tests.

They share the names of rules, but no code. Rows are plain mappings, as `pyarrow.Table.to_pylist`
makes them, with timestamps in microseconds.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from dueline.spark.pipeline.audit_rules import OUTCOMES, SPAN_COLUMNS

Line = Mapping[str, Any]

_MINUTE_US: Final = 60_000_000
_NOT_IN_SILVER: Final = ("at", "id", "codec", "payload_bytes", "payload", "digest")


def lines_of(table: pa.Table) -> list[Line]:
    """Return the rows of a table, with timestamps in microseconds."""
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            instants = compute.cast(table.column(place), pa.timestamp("us", "UTC"))
            table = table.set_column(place, field.name, instants.cast(pa.int64()))
    rows: list[Line] = table.to_pylist()
    return rows


def lines_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Line]:
    """Yield the rows of batches."""
    for batch in batches:
        yield from lines_of(pa.Table.from_batches([batch]))


def silver(attempts: Iterable[Line]) -> list[Line]:
    """Return one row for each attempt; see `tables_spark.silver`."""
    found: list[Line] = []
    for rows in _lives(attempts).values():
        before = None
        for line in first_rows(rows):
            started = line["started"]
            spans: dict[str, Any] = dict.fromkeys(SPAN_COLUMNS)
            if started is not None:
                spans["wait_us"] = started - max(line["due"], line["enqueued"])
                spans["lateness_us"] = started - line["due"]
                spans["run_us"] = line["ended"] - started
            takeover = {"is_takeover": before == "crashed"}
            kept = {name: value for name, value in line.items() if name not in _NOT_IN_SILVER}
            found.append(kept | spans | takeover)
            before = line["outcome"]
    return found


def gold_minute(silver_attempts: Iterable[Line]) -> list[Line]:
    """Count ended attempts in each minute; see `tables_spark.gold_minute`."""
    counts: dict[tuple[str, str, int], Counter[str]] = defaultdict(Counter)
    for line in silver_attempts:
        cell = counts[_cell_of(line)]
        cell.update(attempts=1, takeovers=int(line["is_takeover"]))
        cell[line["outcome"]] += 1
        cell.update({name: line[name] or 0 for name in SPAN_COLUMNS})
    names = ("attempts", *OUTCOMES, "takeovers", *SPAN_COLUMNS)
    return [
        {"queue": queue, "tenant": tenant, "minute": minute} | {name: cell[name] for name in names}
        for (queue, tenant, minute), cell in counts.items()
    ]


def gold_lateness(silver_attempts: Iterable[Line]) -> list[Line]:
    """Count start latencies in doubling steps; see `tables_spark.gold_lateness`."""
    return _steps(silver_attempts, "lateness_us")


def gold_run(silver_attempts: Iterable[Line]) -> list[Line]:
    """Count run times of handlers; see `tables_spark.gold_run`."""
    return _steps(silver_attempts, "run_us")


def _steps(silver_attempts: Iterable[Line], name: str) -> list[Line]:
    counts = Counter(
        (*_cell_of(line), max(0, line[name]).bit_length())
        for line in silver_attempts
        if line[name] is not None
    )
    names = ("queue", "tenant", "minute", "step")
    return [dict(zip(names, key, strict=True)) | {"attempts": n} for key, n in counts.items()]


def _lives(attempts: Iterable[Line]) -> dict[tuple[str, int], list[Line]]:
    lives: dict[tuple[str, int], list[Line]] = defaultdict(list)
    for line in attempts:
        lives[line["job_id"], line["enqueued"]].append(line)
    return lives


def _cell_of(line: Line) -> tuple[str, str, int]:
    return line["queue"], line["tenant"], line["ended"] // _MINUTE_US * _MINUTE_US


def first_rows(claims: Sequence[Line]) -> list[Line]:
    """Return the first row of each attempt, in the order of fences."""
    first: dict[int, Line] = {}
    for line in sorted(claims, key=lambda line: (line["attempt"], line["at"], line["outcome"])):
        first.setdefault(line["attempt"], line)
    return list(first.values())
