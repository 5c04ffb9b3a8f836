"""A reload: data enqueues the same ids again after their jobs ended (P5)."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")


from dueline import Dueline, Retry
from dueline.jobs.history import attempts
from tests.harness.spark import replay_oracle
from tests.harness.spark.audits import audit
from tests.harness.spark.past_oracle import state_at
from tests.harness.spark.readers import reader_of, rows_of
from tests.harness.spark.tables import BORN, SECOND, attempt, history_of, made, quiet, rows_in

KEYS = 40
FAILING = 4
"""Keys whose first attempt of each night fails, and so has a row of history of its own."""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Dueline]:
    """Make a store in which two nights have enqueued and run the same keys."""
    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")
    app.queue("load", shards=2, history="arguments")
    failed: set[tuple[str, int]] = set()

    @app.task(name="load", queue="load", retry=Retry(attempts=2, base=0.001, cap=0.001))
    def load(night: str, number: int) -> None:
        if number < FAILING and (night, number) not in failed:
            failed.add((night, number))
            raise ValueError(f"the first attempt in {night}")

    for night in ("monday", "tuesday"):
        enqueue(app, night)
        app.run_worker(burst=True)
    yield app
    app.close()


def enqueue(app: Dueline, night: str, due: int | None = None) -> int:
    """Enqueue the keys as a write of Spark's does."""
    import pyarrow as pa

    from dueline.spark.writing.enqueue import put_all
    from dueline.spark.writing.rows_to_jobs import INSTANT, Form, chunks_of

    rows = pa.RecordBatch.from_pylist(
        [
            {"job_id": f"key {number}", "payload": f'["{night}", {number}]', "due": due}
            for number in range(KEYS)
        ],
        schema=pa.schema([("job_id", pa.string()), ("payload", pa.string()), ("due", INSTANT)]),
    )
    chunks = chunks_of([rows], Form("load", "load"), KEYS, app.queues.engine.time.earliest_us())
    return put_all(app.queues.engine, chunks, night, 0, keep_us=10**9).added


def test_a_history_holds_each_attempt_of_each_night(app: Dueline) -> None:
    # F3: once, and by ids that no other run of the job has
    told = list(attempts(app.store, "load", 2, everything=True))
    assert Counter(one.outcome for one in told) == {
        "enqueued": 2 * KEYS, "retried": 2 * FAILING, "done": 2 * KEYS,
    }  # fmt: skip


def test_the_table_of_attempts_gives_each_row_an_id_of_its_own(app: Dueline) -> None:

    for page in ("7", "20000"):
        rows = list(rows_of(reader_of(app, table="attempts", fetchSize=page)))
        assert len(rows) == len({row["id"] for row in rows}) == 4 * KEYS + 2 * FAILING


def test_tables_count_both_nights_and_the_audit_finds_nothing(app: Dueline, tmp_path: Path) -> None:
    pipe = made(tmp_path / "lake", app)
    pipe.run([], quiet)
    lake = tmp_path / "lake"
    assert sum(rows_in(lake, "silver").values()) == 2 * (KEYS + FAILING)
    minutes = [dict(one) for one in rows_in(lake, "gold_minute").elements()]
    assert sum(one["done"] for one in minutes) == 2 * KEYS
    flow = [dict(one) for one in rows_in(lake, "flow").elements()]
    assert sum(one["came"] for one in flow) == sum(one["went"] for one in flow) == 2 * KEYS
    said = pipe.audit(quiet)
    assert said.findings == []
    assert ("load", "clean") in [(one.queue, one.verdict) for one in said.queues]


def test_a_night_after_the_tables_were_made_adds_to_them(app: Dueline, tmp_path: Path) -> None:
    steps = made(tmp_path / "steps", app)
    steps.run([], quiet)
    enqueue(app, "wednesday")
    app.run_worker(burst=True)
    steps.run([], quiet)
    made(tmp_path / "whole", app).run([], quiet)
    for table in ("silver", "gold_minute", "flow"):
        assert rows_in(tmp_path / "steps", table) == rows_in(tmp_path / "whole", table), table
    assert sum(rows_in(tmp_path / "steps", "silver").values()) == 3 * (KEYS + FAILING)


def test_a_job_that_vanished_is_lost_though_its_id_lives_again_or_ran_before(
    app: Dueline, tmp_path: Path
) -> None:
    # the first run of `lost` left no end; its id has been enqueued again, and waits
    later = BORN + 1000 * SECOND
    cut_off = [attempt("lost", 1, "retried")]
    assert found_in(audit(cut_off, living={("lost", later)})) == [("lost", BORN, 1)]
    times = dict.fromkeys(("enqueued", "claimed", "started", "ended"), later)
    again = attempt("lost", 1, "retried", **times)
    both = [*cut_off, again]
    assert found_in(audit(both, living={"lost"})) == [("lost", BORN, 1)]
    assert found_in(audit(both, living={("lost", later)})) == [("lost", BORN, 1)]
    enqueue(app, "wednesday", due=app.queues.engine.time.latest_us() + 3600 * SECOND)
    job = next(app.queues.engine.jobs_of("load"))
    pipe = made(tmp_path / "lake", app)
    assert pipe.audit(quiet).findings == []
    delete(app, job.id)
    assert [
        (one["verdict"], one["job_id"], one["enqueued_us"]) for one in pipe.audit(quiet).findings
    ] == [("lost", job.id.hex(), job.enqueued_us)]


def delete(app: Dueline, job_id: bytes) -> None:
    """Let a job vanish without a word, as no store should."""
    import sqlite3

    with sqlite3.connect(app.url.removeprefix("sqlite:///").partition("?")[0]) as rows:
        assert rows.execute("DELETE FROM jobs WHERE id = ?", (job_id,)).rowcount == 1


def found_in(said: Any) -> list[tuple[str, int, int]]:
    """Name the runs and attempts of findings, all of which are of lost jobs."""
    assert {one["verdict"] for one in said.findings} <= {"lost"}
    return [(one["job_id"], one["enqueued"], one["attempt"]) for one in said.findings]


def test_the_past_knows_the_last_run_of_a_job(app: Dueline) -> None:

    enqueue(app, "wednesday")
    lines = history_of(app, "load", 2)
    states = Counter(one["state"] for one in state_at(lines, app.queues.engine.time.latest_us()))
    assert states == {"waiting": KEYS}
    second = sorted({line["enqueued"] for line in lines})[1]
    assert Counter(one["state"] for one in state_at(lines, second - 1)) == {"done": KEYS}


def test_what_is_replayed_are_the_arguments_of_the_run_that_ended_last(app: Dueline) -> None:
    from dueline.spark.pipeline.replay import Chosen

    enqueue(app, "wednesday")  # and has not run yet
    lines = history_of(app, "load", 2)
    ended = replay_oracle.ends(lines, Chosen(outcomes=("done",)))
    calls = replay_oracle.with_arguments(lines, ended)
    assert len(calls) == KEYS
    assert all(b"tuesday" in one["payload"] for one in calls)


@pytest.mark.long
def test_spark_makes_the_same_tables_and_the_same_audit(
    spark: Any, app: Dueline, tmp_path: Path
) -> None:
    pipes = {engine: made(tmp_path / engine, app, engine=engine) for engine in ("duckdb", "spark")}
    for night in ("wednesday", "thursday"):
        for pipe in pipes.values():
            pipe.run([], quiet)
        enqueue(app, night)
        if night == "wednesday":
            app.run_worker(burst=True)
    delete(app, next(app.queues.engine.jobs_of("load")).id)
    said = {engine: pipe.audit(quiet) for engine, pipe in pipes.items()}
    for table in ("silver", "gold_minute", "gold_lateness", "flow", "poison"):
        both = [rows_in(tmp_path / engine, table) for engine in pipes]
        assert both[0] == both[1], table
    assert sum(rows_in(tmp_path / "spark", "silver").values()) == 3 * (KEYS + FAILING)
    assert len(said["duckdb"].findings) == 1
    assert said["spark"].findings == said["duckdb"].findings
