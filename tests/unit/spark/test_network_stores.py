"""Tables, queries and jobs of Spark on a real Cassandra, PostgreSQL and Redis."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline, Retry
from dueline.jobs.history import attempts
from tests.harness.addresses import address
from tests.harness.cassandra_node import PATIENT, expect_node, session_on_a_node
from tests.harness.postgres import schemas
from tests.harness.spark.crew import Crew, expect_on_a_cluster
from tests.harness.spark.tables import made, quiet, rows_in
from tests.harness.spark.writers import batches_of, notes, noting, writer_of
from tests.unit.spark.standalone import Cluster

ROWS, JOBS, SHARDS = 200, 40, 3
FAILS, KILLS_ONCE = 7, 13
END_S = 300


@pytest.fixture(
    params=[
        pytest.param("cassandra", marks=pytest.mark.cassandra),
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("redis", marks=pytest.mark.redis),
    ],
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Make an empty store."""
    if request.param != "cassandra":
        with address(request.param, tmp_path) as made:
            yield made
        return
    expect_node()
    with session_on_a_node("spark") as session:
        yield f"{session.place}?{PATIENT}"


@pytest.fixture
def app(url: str) -> Iterator[Dueline]:
    """Make an application that is nowhere to be imported."""
    app = Dueline(url)
    yield app
    app.close()


def breaking(batches: Iterator[Any]) -> Iterator[Any]:
    """Fail once in each task, when a part is written already."""
    from pyspark import TaskContext

    for place, batch in enumerate(batches):
        if place == 2 and TaskContext.get().attemptNumber() == 0:
            raise OSError("the first attempt")
        yield batch


@pytest.mark.long
def test_a_table_is_enqueued_once_and_what_became_of_it_is_followed_and_audited(
    spark: Any, app: Dueline, tmp_path: Path
) -> None:
    # P1, P2, P3, P11: tasks that fail, a write that is repeated after its jobs have run
    from dueline.spark import Written, enqueue, read
    from dueline.spark.writing.sink import written

    ran: list[int] = []

    @app.task(name="note", queue="mail", retry=Retry(attempts=1))
    def note(number: int) -> int:
        ran.append(number)
        if number == FAILS:
            raise ValueError(number)
        return -number

    app.queue("mail", shards=SHARDS, history="all")
    app.queues.engine.catalog.settings("mail")  # is stored now, for other processes
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    frame = spark.range(0, ROWS, 1, 2).selectExpr(
        "concat('n', id) AS job_id", "concat('[', id, ']') AS payload"
    )
    broken = frame.mapInArrow(breaking, frame.schema)
    once: dict[str, Any] = {"queue": "mail", "task": "note", "writeId": "monday", "chunkRows": 10}
    assert enqueue(broken, app.url, **once).rows == ROWS
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    jobs = read(spark, app.url, "jobs", queue="mail")
    assert read(spark, app.url, "results", queue="mail").isEmpty()
    assert {json.loads(bytes(row.payload))[0] for row in jobs.collect()} == set(range(ROWS))
    app.run_worker(burst=True)
    again = writer_of(app, **once)
    again.commit([again.write(batches_of(range(ROWS)))])
    assert written(app.store, "monday") == Written(rows=ROWS, added=0)
    app.run_worker(burst=True)
    assert Counter(ran) == Counter(range(ROWS))
    results = read(spark, app.url, "results", queue="mail").collect()
    assert {row.value for row in results} == {str(-n) for n in range(ROWS) if n != FAILS}

    told = Counter(
        (one.job, one.outcome) for one in attempts(app.store, "mail", SHARDS, everything=True)
    )
    assert Counter(word for _, word in told.elements()) == {
        "enqueued": ROWS,
        "done": ROWS - 1,
        "dead": 1,
    }
    assert followed(spark, app, tmp_path / "checkpoint") == told
    said = made(tmp_path / "lake", app).audit(quiet)
    assert {one.queue: one.verdict for one in said.queues}["mail"] == "clean"
    assert "lost" in said.looked_for
    assert rows_in(tmp_path / "lake", "bronze").total() == 2 * ROWS


@pytest.mark.long
@pytest.mark.parametrize("on_unique", ["existing", "reject"])
def test_a_write_takes_the_key_of_a_job_that_has_expired(app: Dueline, on_unique: str) -> None:
    # C12, C15
    import pyarrow as pa

    from dueline.spark.writing.enqueue import put_all
    from dueline.spark.writing.rows_to_jobs import Form, in_order, new_jobs

    engine = app.queues.engine
    app.queue("mail", shards=1)
    form = Form("mail", "send", mode="reject" if on_unique == "reject" else "existing")
    gone = datetime.now(UTC) - timedelta(seconds=5)
    for write, cells in {"w": {"expires": gone}, "x": {}}.items():
        row = {"job_id": write, "payload": "[1]", "unique_key": "ann"} | cells
        batch = new_jobs(pa.RecordBatch.from_pylist([row]), form, now_us=engine.store.clock_us())
        done = put_all(engine, [in_order(batch)], write, 0, keep_us=3_600_000_000)
        assert (done.added, done.held) == (1, 0)
    assert len(list(engine.jobs_of("mail"))) == 1


def followed(spark: Any, app: Dueline, checkpoint: Path) -> Counter[tuple[str, str]]:
    """Follow the events to their end, some at a time."""
    found: list[tuple[str, str]] = []

    def note(frame: Any, _batch: int) -> None:
        found.extend((row.job_id, row.kind) for row in frame.select("job_id", "kind").collect())

    frame = spark.readStream.format("dueline").options(
        store=app.url, table="events", queue="mail", maxRowsPerTrigger=ROWS
    )
    writer = frame.load().writeStream.foreachBatch(note)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(END_S)
    return Counter(found)


@pytest.mark.long
def test_jobs_run_on_spark_each_once_and_that_of_a_process_that_died_again(
    spark: Any, app: Dueline, tmp_path: Path
) -> None:
    # A4
    from dueline.spark import consume

    note, ran = noting(tmp_path), tmp_path
    app.queue("work", shards=SHARDS, lease=6)

    @app.task(name="work", queue="work")
    def work(number: int) -> int:
        is_first = not [*ran.glob(f"{number}.*.ran")]  # a claim may be released unstarted
        note(number)
        if number == KILLS_ONCE and is_first:
            os.kill(os.getpid(), signal.SIGKILL)
        return -number

    jobs = work.enqueue_many([(number,) for number in range(JOBS)])
    query = consume(spark, app, "work", members=1, burst=True)
    assert query.awaitTermination(END_S)
    assert notes(tmp_path) == Counter(dict.fromkeys(range(JOBS), 1) | {KILLS_ONCE: 2})
    assert jobs[KILLS_ONCE].result(timeout=1) == -KILLS_ONCE
    assert not list(app.queues.engine.jobs_of("work"))


@pytest.mark.postgres
def test_a_staged_write_to_postgres_shows_as_a_whole() -> None:
    from dueline.spark import Written
    from dueline.spark.writing.sink import written

    with schemas() as made:
        app = Dueline(made.fresh())
        ran: list[int] = []
        app.task(name="note", queue="mail", retry=Retry(attempts=1))(ran.append)
        options: dict[str, Any] = {"queue": "mail", "task": "note", "writeId": "tuesday"}
        staged = [writer_of(app, writeMode="staged", **options) for _ in range(3)]
        parts = [one.write(batches_of(range(ROWS))) for one in staged[:2]]
        assert not list(app.queues.engine.jobs_of("mail"))
        staged[2].commit(parts)
        assert written(app.store, "tuesday") == Written(rows=2 * ROWS, added=ROWS)
        app.run_worker(burst=True)
        assert sorted(ran) == list(range(ROWS))
        app.close()


@pytest.mark.long
def test_executors_of_a_cluster_that_are_killed_lose_nothing_and_double_nothing(
    url: str, machines: Cluster, tmp_path: Path
) -> None:
    from tests.unit.spark import cluster

    crew = Crew(tmp_path, **{cluster.STORE_VARIABLE: url})
    expect_on_a_cluster(crew, machines, tmp_path, Dueline(url))
