"""Ids of jobs from what names them in data: in Python, Spark, and the sink (P2)."""

from typing import Any

import pytest

from tests.harness.spark.writers import new_jobs_of

TEXTS = [
    "order 17", "", "ü", "0190a6f3-3c5e-7bbb-8000-000000000001",
    "0190A6F33C5E7BBB8000000000000001", "{0190a6f3-3c5e-7bbb-8000-000000000001}",
    "urn:uuid:0190a6f3-3c5e-7bbb-8000-000000000001", "0190a6f3-3c5e-7bbb-8000-00000000000g",
    "0190a6f33c5e7bbb80000000000000 1", "0190a6f33c5e7bbb8000000000000_001",
    "0190a6f3-3c5e-7bbb-8000-000000000001\n", "a" * 31, "a" * 32, "a" * 33, "a\0b",
]  # fmt: skip
UUIDS = (3, 4, 5, 6)


def enqueued(column: str, queue: str = "mail") -> list[str]:
    """Name the jobs that are made of the texts."""
    rows = [{"payload": "[]", column: text, "queue": queue} for text in TEXTS]
    return [one.id.hex() for one in new_jobs_of(rows)]


def test_the_id_of_a_text_is_that_of_the_job_which_is_enqueued() -> None:
    from dueline.spark import job_id_of

    ids = [job_id_of(text) for text in TEXTS]
    assert ids == enqueued("job_id")
    assert {ids[place] for place in UUIDS} == {"0190a6f33c5e7bbb8000000000000001"}
    assert len(set(ids)) == len(ids) - len(UUIDS) + 1
    assert [job_id_of(one) for one in ids] == ids  # an id names itself


@pytest.mark.parametrize("queue", ["mail", "bills"])
def test_the_id_of_a_dedupe_key_is_that_of_its_queue(queue: str) -> None:
    from dueline.spark import job_id_of

    ids = [job_id_of(text, queue) for text in TEXTS]
    assert ids == enqueued("dedupe_key", queue)
    assert len(set(ids)) == len(ids)
    assert set(ids).isdisjoint(map(job_id_of, TEXTS))


def test_spark_computes_the_same_ids(spark: Any) -> None:
    from pyspark.sql import functions as F  # noqa: N812

    from dueline.spark import job_id, job_id_of

    frame = spark.createDataFrame([(text,) for text in TEXTS], "name string")
    both = job_id("name"), job_id(F.col("name"), "mail"), job_id("name", F.lit("bills"))
    found = [tuple(row) for row in frame.select("name", *both).collect()]
    assert found == [
        (text, job_id_of(text), job_id_of(text, "mail"), job_id_of(text, "bills")) for text in TEXTS
    ]
