"""Audits of plain rows, by the SQL and by its oracle."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tests.harness.spark.tables import bare


def columns_of(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Make a table of rows of a history."""
    import pyarrow as pa

    from dueline.spark.pipeline.tables import BRONZE

    return pa.Table.from_pylist(list(map(dict, rows)), BRONZE.inside)


def living_of(living: Collection[Any]) -> Any:
    """Make a table of jobs that have a row, given by id, or by id and enqueue time."""
    import pyarrow as pa

    from dueline.spark.pipeline.audit_queries import LIVING

    keys = [(place, None) if isinstance(place, str) else place for place in living]
    return pa.Table.from_pylist([{"job_id": job, "enqueued": at} for job, at in keys], LIVING)


def views_of(named: Mapping[str, Any]) -> dict[str, Any]:
    """Make tables of what else an audit is given."""
    import pyarrow as pa

    from dueline.spark.pipeline.audit_queries import EXPECTED, INSTANT

    results = pa.schema([("job_id", pa.string()), ("finished", INSTANT), ("value", pa.string())])
    made = dict(named)
    if made.get("living") is not None:
        made["living"] = living_of(made["living"])
    if made.get("expected") is not None:
        made["expected"] = pa.table({"job_id": sorted(made["expected"])}, EXPECTED)
    if made.get("results") is not None:
        made["results"] = pa.Table.from_pylist(list(map(dict, made["results"])), results)
    return made


def audit(rows: Iterable[Mapping[str, Any]], queries: Any = None, **named: Any) -> Any:
    """Audit rows on an engine, DuckDB by default; see that the oracle says the same."""
    from dueline.spark.pipeline import audit_queries
    from dueline.spark.pipeline.queries import Duck
    from tests.harness.spark import audit_oracle

    rows = list(rows)
    said = audit_queries.audit(queries or Duck(), columns_of(rows), **views_of(named))
    oracle = audit_oracle.audit(rows, **named)
    assert bare(said.findings) == bare(oracle.findings)
    assert said[1:] == oracle[1:]
    return said
