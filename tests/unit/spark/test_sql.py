"""One SQL text, two engines: the same rows, whatever the data."""

from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")
parquet = pytest.importorskip("pyarrow.parquet")

from dueline.spark.pipeline.queries import Derived, Duck, Files, Spark, Value  # noqa: E402

INSTANT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("queue", pa.string()), ("job_id", pa.string()), ("tenant", pa.string()),
        ("attempt", pa.int32()), ("outcome", pa.string()), ("error", pa.string()),
        ("at", INSTANT), ("started", INSTANT), ("ended", INSTANT),
    ]
)  # fmt: skip
TEXTS = (
    "plain", "it's", 'a "b"', "back\\slash\\n", "new\nline", "tab\t", "größer", "日本", "🐢🐢",
    "e\u0301", "", "%_", "{rows}", ":queue", "$queue", "--", "';DROP TABLE rows", "0xdeadbeef 12",
)  # fmt: skip


def hostile() -> Any:
    """Return attempts that repeat, lack times and tenants, and are named unkindly."""
    rows = []
    for number in range(400):
        text = TEXTS[number % len(TEXTS)]
        at = 1_790_000_000_000_000 + number // 7 * 29_999_999
        started = None if number % 11 == 0 else at + (number % 13 - 3) * 1_000_003
        rows.append(
            {
                "queue": TEXTS[number % 5], "job_id": f"{number % 90:032x}",
                "tenant": None if number % 4 == 0 else text, "attempt": number // 90 + 1,
                "outcome": ("done", "retried", "crashed", "dead")[number % 4],
                "error": None if number % 3 else f"{text} at {number}", "at": at,
                "started": started, "ended": at + number**3,
            }
        )  # fmt: skip
    rows += rows[::9]
    return pa.Table.from_pylist(rows, SCHEMA)


FUNCTIONS = {
    "windows": """
        SELECT job_id, attempt, outcome,
            row_number() OVER (PARTITION BY job_id ORDER BY attempt, at, outcome) AS place,
            lag(outcome) OVER (PARTITION BY job_id ORDER BY attempt, at, outcome) = 'crashed'
                AS is_takeover,
            coalesce(count_if(outcome = 'dead') OVER (PARTITION BY job_id ORDER BY attempt, at,
                outcome ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS deaths,
            min(tenant) OVER (PARTITION BY job_id) AS tenant,
            first_value(tenant) OVER (PARTITION BY job_id ORDER BY attempt, at, outcome) AS first
        FROM (SELECT DISTINCT * FROM rows)""",
    "sums": """
        SELECT queue, tenant, date_trunc('minute', ended) AS minute, count(*) AS attempts,
            count_if(outcome = 'done') AS done, coalesce(sum(attempt), 0) AS total,
            sum(unix_micros(ended) - unix_micros(started)) AS run_us, max(started) AS last,
            count(DISTINCT job_id) AS jobs, avg(attempt) AS mean, max(outcome = 'dead') AS dead
        FROM rows GROUP BY ALL""",
    "histogram": """
        SELECT queue, CAST(CASE WHEN span <= 0 THEN 0 ELSE length(bin(span)) END AS INT) AS step,
            count(*) AS attempts
        FROM (SELECT queue, unix_micros(ended) - unix_micros(started) AS span FROM rows)
        WHERE span IS NOT NULL GROUP BY 1, 2""",
    "texts": """
        SELECT DISTINCT error, length(error) AS size, substring(error, 2, 5) AS part,
            regexp_replace(error, '[0-9a-fA-F]{8,}|[0-9]+', '#') AS fingerprint,
            sha2(error, 256) AS digest, concat(queue, ':', coalesce(tenant, '?')) AS name,
            error LIKE '%at%' AS has_at, lower(error) AS low
        FROM rows""",
    "joins": """
        WITH ends AS (SELECT job_id, max(attempt) AS last FROM rows GROUP BY job_id)
        SELECT r.job_id, r.attempt, e.last, greatest(r.started, r.ended) AS late
        FROM rows r JOIN ends e ON r.job_id = e.job_id AND r.attempt < e.last
        WHERE NOT EXISTS (SELECT 1 FROM others o WHERE o.job_id = r.job_id)
        UNION ALL
        SELECT rows.job_id, rows.attempt, NULL, NULL FROM rows
        LEFT ANTI JOIN others ON rows.job_id = others.job_id""",
    "sets": """
        SELECT job_id, size(collect_set(outcome)) AS outcomes,
            count(DISTINCT CASE WHEN outcome = 'dead' THEN error END) AS errors,
            sort_array(collect_set(attempt)) AS attempts,
            size(filter(collect_set(attempt), one -> one > 2)) AS few,
            size(coalesce(collect_set(CASE WHEN outcome = 'dead' THEN error END), array())) AS dead
        FROM rows GROUP BY job_id""",
    "explode": """
        SELECT job_id, attempt, rule FROM (
            SELECT job_id, attempt, explode(array(
                CASE WHEN ended < started THEN 'ended first' END,
                CASE WHEN started IS NULL THEN 'no start' END)) AS rule FROM rows)
        WHERE rule IS NOT NULL""",
    "values": """
        SELECT queue, attempt, at, :text AS text, attempt div :few AS whole, attempt % 2 AS odd,
            attempt / 2 AS half, timestamp_micros(:now) AS now, :nothing AS nothing
        FROM rows WHERE array_contains(:queues, queue) AND unix_micros(at) < :now
            AND (tenant = :text OR tenant IS NULL)""",
}
VALUES: dict[str, Value] = {
    "queues": list(TEXTS[:3]), "few": 2, "now": 1_790_000_900_000_000, "nothing": None, "other": 1,
}  # fmt: skip


def lines(table: Any) -> list[str]:
    """Return the rows, in some order."""
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_both_engines_return_the_same_rows(spark: Any, name: str) -> None:
    rows = hostile()
    views = {"rows": rows, "others": rows.slice(0, 20)}
    for text in ("it's", "back\\slash\\n", "{rows}", "🐢🐢") if name == "values" else ("",):
        values = VALUES | {"text": text}
        duck = Duck().run(FUNCTIONS[name], views, values).table()
        by_spark = Spark(spark).run(FUNCTIONS[name], views, values).table(duck.schema)
        assert duck.num_rows
        assert lines(duck) == lines(by_spark)


def test_views_are_derived_from_others_and_take_the_same_values(spark: Any) -> None:
    views = {
        "rows": hostile(),
        "first": Derived("SELECT * FROM few WHERE attempt = 1"),
        "few": Derived("WITH each AS (SELECT * FROM rows) SELECT * FROM each WHERE queue = :queue"),
    }
    sql = """WITH some AS (SELECT job_id FROM first) SELECT count(*) AS n FROM some
        WHERE job_id IN (SELECT job_id FROM few)"""
    for queue in TEXTS[:5]:
        wanted = {row["job_id"] for row in views["rows"].to_pylist() if row["queue"] == queue}
        for engine in (Duck(), Spark(spark)):
            found = engine.run(sql, views, {"queue": queue}).table()
            assert found.to_pylist()[0]["n"] >= len(wanted) > 0


def test_files_of_several_versions_are_read_as_one_table(spark: Any, tmp_path: Path) -> None:
    schema = pa.schema([("day", pa.string()), ("id", pa.int32()), ("new", pa.string())])
    for day, table in (
        ("2026-11-24", pa.table({"id": pa.array([1, 2], pa.int32())})),
        ("2026-11-25", pa.table({"id": pa.array([3], pa.int32()), "new": ["é"]})),
    ):
        folder = tmp_path / f"day={day}"
        folder.mkdir()
        parquet.write_table(table, folder / "part.parquet")
    files = Files(sorted(map(str, tmp_path.glob("*/*.parquet"))), schema, str(tmp_path))
    for sql in ("SELECT * FROM rows", "SELECT day, count(new) AS n FROM rows GROUP BY day"):
        duck = Duck().run(sql, {"rows": files}).table()
        assert lines(duck) == lines(Spark(spark).run(sql, {"rows": files}).table(duck.schema))
    ordered = "SELECT * FROM rows ORDER BY id"
    assert Duck().run(ordered, {"rows": files}).table(schema).to_pylist() == [
        {"day": "2026-11-24", "id": 1, "new": None},
        {"day": "2026-11-24", "id": 2, "new": None},
        {"day": "2026-11-25", "id": 3, "new": "é"},
    ]
    for engine in (Duck(), Spark(spark)):
        none = engine.run("SELECT * FROM rows", {"rows": Files((), schema)}).table(schema)
        assert none.num_rows == 0
        assert none.schema == schema


def test_a_result_larger_than_memory_comes_in_batches() -> None:
    rows = pa.table({"number": range(300_000)})
    result = Duck().run("SELECT sum(number) OVER (ORDER BY number) AS s FROM rows", {"rows": rows})
    sizes = [batch.num_rows for batch in result.batches()]
    assert sum(sizes) == 300_000
    assert len(sizes) > 1


def test_views_are_those_that_are_given_and_the_session_keeps_its_own(spark: Any) -> None:
    hidden = pa.table({"a": [1]})
    with pytest.raises(duckdb.CatalogException):
        Duck().run("SELECT * FROM hidden", {}).table()
    spark.range(7).createOrReplaceTempView("rows")
    names = spark.sql("SHOW VIEWS").collect()
    assert Spark(spark).run("SELECT rows.a FROM rows", {"rows": hidden}).table().num_rows == 1
    assert spark.table("rows").count() == 7
    assert spark.sql("SHOW VIEWS").collect() == names
    spark.catalog.dropTempView("rows")
