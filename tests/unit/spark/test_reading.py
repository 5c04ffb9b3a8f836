"""Tables read once (P1)."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from dueline import Dueline
from dueline.core.lane import dead_queue
from dueline.core.store import Row
from dueline.jobs.history import attempts
from tests.harness.spark.readers import WAITING

BOTH = {"mail": 4, "bills": 2}


def oracle(app: Dueline, chosen: Mapping[str, int] = BOTH) -> Counter[tuple[object, ...]]:
    """Read the attempts as the engine does."""
    return Counter(
        (one.job, one.fence, one.outcome, one.started_us)
        for queue, shards in chosen.items()
        for one in attempts(app.store, queue, shards)
    )


def micros(moment: datetime | None) -> int:
    """Turn what Spark answers (naive, in this process's zone) into microseconds."""
    return 0 if moment is None else round(moment.astimezone(UTC).timestamp() * 1e6)


def test_the_format_is_found_and_attempts_are_those_of_the_engine(
    spark: Any, shop: Dueline
) -> None:
    frame = (
        spark.read.format("dueline").option("store", shop.url).option("table", "attempts").load()
    )
    rows = frame.select("job_id", "attempt", "outcome", "started").collect()
    found = Counter((row[0], row[1], row[2], micros(row[3])) for row in rows)
    assert found == oracle(shop)
    assert {row.outcome for row in rows} == {"done", "retried", "dead"}


def test_jobs_are_the_rows_that_live_and_the_dead(spark: Any, shop: Dueline) -> None:
    from dueline.spark import read

    found = {row.job_id: row for row in read(spark, shop.url, "jobs").collect()}
    expected = {
        job.id.hex(): job
        for name in (*BOTH, *map(dead_queue, BOTH))
        for job in shop.queues.engine.jobs_of(name)
    }
    assert found.keys() == expected.keys()
    for job_id, job in expected.items():
        row = found[job_id]
        assert bytes(row.payload) == job.body
        assert (row.task, row.tenant, row.priority) == (
            job.task,
            job.lane.tenant,
            job.lane.priority,
        )
        assert micros(row.due) == job.due_us
    assert Counter(row.state for row in found.values())["scheduled"] == WAITING
    assert {row.queue for row in found.values() if row.state == "dead"} == {"mail", "bills"}


def test_a_temporary_view_reads_a_projection_and_prunes(spark: Any, shop: Dueline) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW past USING dueline"
        f" OPTIONS (store '{shop.url}', table 'attempts', pushdown 'true')"
    )
    found = spark.sql("SELECT count(*) AS n FROM past WHERE queue = 'bills' AND outcome = 'done'")
    expected = sum(key[2] == "done" for key in oracle(shop, {"bills": 2}))
    assert found.collect()[0].n == expected > 0
    narrow = spark.read.format("dueline").schema("outcome string, attempt int")
    frame = narrow.options(store=shop.url, table="attempts").load()
    assert frame.groupBy("outcome").count().count() == 3


def test_what_one_query_leaves_out_is_there_for_the_next(spark: Any, shop: Dueline) -> None:
    # Spark 4.3 keeps the plan of the last query whose conditions a source was told of.
    from dueline.spark import read

    frame = read(spark, shop.url, "attempts")
    bills = "queue = 'bills'"
    expected = len(oracle(shop))
    assert frame.where(bills).count() == len(oracle(shop, {"bills": 2})) < expected
    assert frame.count() == expected
    both = frame.where(bills).unionAll(frame.where("queue <> 'bills'"))
    assert both.count() == expected


def test_a_frame_is_planned_once_and_a_new_one_has_what_came_since(
    spark: Any, shop: Dueline
) -> None:
    from dueline.spark import read

    shop.store.append([Row("visits", 0, 5, b"first", b"{}")])
    frame = read(spark, shop.url, "stream", stream="visits")
    assert frame.count() == 1
    shop.store.append([Row("visits", 0, shop.store.clock_us(), b"second", b"{}")])
    assert frame.count() == 1
    assert read(spark, shop.url, "stream", stream="visits").count() == 2


def test_errors_reach_the_caller_in_words_and_plans_show_no_password(
    spark: Any, shop: Dueline, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Exception, match="Did you mean table"):
        spark.read.format("dueline").options(store=shop.url, tabel="jobs").load()
    secret = "cassandra://me:s3cret-word@127.0.0.1:1/jobs"  # noqa: S105  (nobody's)
    frame = spark.read.format("dueline").options(store=secret, table="jobs").load()
    frame.explain("extended")
    with pytest.raises(Exception) as caught:  # noqa: PT011  (nobody listens there)
        frame.count()
    out, err = capfd.readouterr()
    assert "s3cret-word" not in f"{caught.value}{out}{err}"
