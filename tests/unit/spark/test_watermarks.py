"""Histories whose watermark differs from the clock (P11)."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")

from dueline import Dueline
from dueline.api.connect import copy_file
from dueline.core.clock import SystemClock
from dueline.core.errors import Conflict
from dueline.core.store import Store
from dueline.spark.reading import shards
from tests.harness.postgres import schemas
from tests.harness.spark.readers import follower_of, limit_of, rows_between
from tests.harness.spark.tables import made, quiet, rows_in

HOUR_US = 3_600_000_000
JOBS = 20


def verdict_of(pipe: Any) -> tuple[str, int]:
    """Audit a queue."""
    (one,) = pipe.audit(quiet).queues
    return one.verdict, one.findings


def app_on(url: str) -> Dueline:
    """Make an application with a task."""
    app = Dueline(url)
    app.queue("mail", shards=2, history="all")

    @app.task(name="send", queue="mail")
    def send(number: int) -> int:
        return number

    return app


@pytest.fixture
def set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dueline:
    """Copy the history of jobs, set the clock back by an hour, and cancel the jobs."""
    real = SystemClock.wall_us
    monkeypatch.setattr(SystemClock, "wall_us", lambda clock: real(clock) + HOUR_US)
    app = app_on(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")
    jobs = app.task_named("send").enqueue_many([(number,) for number in range(JOBS)])
    pipe = made(tmp_path / "lake", app, queues=("mail",))
    assert pipe.run([], quiet)[0].rows == JOBS
    monkeypatch.setattr(SystemClock, "wall_us", real)
    for job in jobs:
        job.cancel()
    return app


def test_rows_are_copied_after_the_clock_was_set_back(set_back: Dueline, tmp_path: Path) -> None:
    pipe = made(tmp_path / "lake", set_back, queues=("mail",))
    assert verdict_of(pipe) == ("clean", 0)
    assert sum(one["behind"] for one in pipe.status()[1]) == 0
    set_back.task_named("send").enqueue(JOBS)
    set_back.run_worker(burst=True)
    assert pipe.run([], quiet)[0].rows == 2
    assert rows_in(tmp_path / "lake", "bronze").total() == 2 * JOBS + 2
    assert all(check.is_good for check in pipe.verify())


def test_a_query_goes_on_after_the_clock_was_set_back(set_back: Dueline) -> None:
    reader = follower_of(set_back, table="events", queue="mail")
    start = reader.initialOffset()
    end = reader.latestOffset(start, limit_of(reader))
    assert len(list(rows_between(reader, start, end))) == 2 * JOBS


def test_a_sealed_shard_stays_sealed(tmp_path: Path) -> None:
    from dueline.core.watermark import SEALED_US

    store = app_on(f"sqlite:///{tmp_path / 'jobs.db'}").store
    store.close_until("log", 0, at_us=SEALED_US)
    assert shards.close_one(store, shards.Shard("log", "log", 0)) == SEALED_US


def test_jobs_that_end_above_a_held_watermark_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held(store: Store, one: shards.Shard) -> int:
        return store.close_until(one.stream, one.shard, at_us=-1)

    app = app_on(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")
    jobs = app.task_named("send").enqueue_many([(number,) for number in range(JOBS)])
    pipe = made(tmp_path / "lake", app, queues=("mail",))
    pipe.run([], quiet)
    app.run_worker(burst=True)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "close_one", held)
        said = pipe.audit(quiet, expected=[job.id for job in jobs])
        assert (said.queues[0].verdict, said.findings) == ("clean", [])


@pytest.mark.postgres
def test_an_open_transaction_is_named_and_loses_no_job(tmp_path: Path) -> None:
    import psycopg

    told: list[str] = []
    with schemas() as server:
        app = app_on(server.fresh())
        send = app.task_named("send")
        send.enqueue_many([(number,) for number in range(JOBS)])
        pipe = made(tmp_path / "lake", app, queues=("mail",))
        pipe.run([], quiet)
        with psycopg.connect(app.url.partition("?")[0]) as connection:
            send.using(tx=connection).enqueue_many([(number,) for number in range(JOBS)])
            app.run_worker(burst=True)
            assert verdict_of(pipe) == ("clean", 0)
            pipe.run([], told.append)
            assert "wait for a transaction that is open" in told[-1]
        assert verdict_of(pipe) == ("clean", 0)
        assert rows_in(tmp_path / "lake", "bronze").total() == 3 * JOBS
        app.close()


@pytest.mark.parametrize("runs_before", [0, 1])
def test_a_store_that_was_restored_is_refused(tmp_path: Path, runs_before: int) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL"
    app = app_on(url)
    app.queue("bills", history="all")  # is closed first, and holds nothing
    send = app.task_named("send")
    send.enqueue_many([(number,) for number in range(JOBS)])
    pipe = made(tmp_path / "lake", app)
    for _ in range(runs_before):
        pipe.run([], quiet)
    copy_file(url, tmp_path / "backup.db", restores=False)
    app.run_worker(burst=True)
    pipe.run([], quiet)
    app.close()
    for file in tmp_path.glob("jobs.db*"):
        file.unlink()
    copy_file(url, tmp_path / "backup.db", restores=True)
    app = app_on(url)
    before = rows_in(tmp_path / "lake", "bronze")
    app.run_worker(burst=True)  # the same attempts once more
    for _ in range(2):
        with pytest.raises(Conflict, match="the store is older"):
            pipe.run([], quiet)
        with pytest.raises(Conflict, match="the store is older"):
            pipe.audit(quiet)
    assert rows_in(tmp_path / "lake", "bronze") == before
    again = made(tmp_path / "new", app)
    again.run([], quiet)
    assert rows_in(tmp_path / "new", "silver").total() == JOBS
    app.close()


def test_tables_go_on_with_a_new_store(tmp_path: Path) -> None:
    # as after `dueline move`, which leaves the history
    for name in ("a", "b"):
        app = app_on(f"sqlite:///{tmp_path / name}.db?synchronous=NORMAL")
        app.task_named("send").enqueue_many([(number,) for number in range(JOBS)])
        app.run_worker(burst=True)
        assert made(tmp_path / "lake", app).run([], quiet)[0].rows == 2 * JOBS
        app.close()
