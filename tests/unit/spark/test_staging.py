"""Writes that show as a whole (P2)."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Dueline
from dueline.core.errors import StoreUnavailable
from tests.harness.spark.writers import app, batches_of, dying, living, ran, writer_of

__all__ = ["app", "ran"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let tasks lay their files in a folder of the test's."""
    made = tmp_path / "staged"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    yield made
    assert not list(made.iterdir())


def staged(app: Dueline, write: str = "monday") -> Any:
    """Make a writer whose rows show as a whole."""
    return writer_of(app, writeMode="staged", writeId=write)


def test_nothing_shows_before_the_commit_and_all_of_it_after(app: Dueline, ran: list[int]) -> None:
    from dueline.spark.writing.sink import written

    parts = [staged(app).write(batches_of(range(*span))) for span in ((0, 40), (30, 60), (0, 0))]
    assert living(app) == 0
    staged(app).commit([*parts, None])
    assert living(app) == 60
    assert written(app.store, "monday") == (70, 60, 0, 0)
    app.run_worker(burst=True)
    assert sorted(ran) == list(range(60))


def test_a_batch_that_is_replayed_after_its_jobs_have_run_puts_nothing(
    app: Dueline, ran: list[int]
) -> None:
    from dueline.spark.writing.sink import written

    for _ in range(2):
        staged(app).commit([staged(app).write(batches_of(range(20)))])
        app.run_worker(burst=True)
    assert len(ran) == 20
    assert written(app.store, "monday") == (20, 20, 0, 0)
    staged(app, "tuesday").commit([staged(app, "tuesday").write(batches_of(range(20)))])
    assert living(app) == 20


def test_a_job_that_fails_in_the_middle_shows_nothing(app: Dueline) -> None:
    whole = staged(app).write(batches_of(range(20)))
    with pytest.raises(OSError, match="dies"):
        staged(app).write(dying(range(25)))
    staged(app).abort([whole, None])
    assert living(app) == 0


def test_a_driver_that_dies_in_the_commit_shows_nothing_and_may_repeat_it(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = staged(app)
    parts = [writer.write(batches_of(range(20)))]
    with monkeypatch.context() as patch:
        patch.setattr("dueline.stores.sqlite.store.SqliteStore.together", _refuse)
        with pytest.raises(StoreUnavailable):
            staged(app).commit(parts)
    assert living(app) == 0
    staged(app).commit(parts)
    assert living(app) == 20


def _refuse(*_: object) -> None:
    raise StoreUnavailable("The disk is full.")


def test_rows_are_checked_before_the_commit(app: Dueline) -> None:
    import pyarrow as pa

    bad = pa.RecordBatch.from_pylist([{"job_id": "a", "payload": "no list"}])
    with pytest.raises(BadInput, match="is not a call"):
        staged(app).write(iter([bad]))
    with pytest.raises(BadInput, match="Did you mean staged"):
        writer_of(app, writeMode="stage")


@pytest.mark.long
def test_a_job_of_spark_that_fails_in_one_task_shows_nothing(
    spark: Any, app: Dueline, tmp_path: Path
) -> None:
    from dueline.spark import enqueue

    flag = tmp_path / "may-pass"

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if 99 in batch.column("id").to_pylist() and not flag.exists():
                raise OSError("one task fails")
            yield batch

    frame = spark.range(100, numPartitions=2).mapInArrow(pass_on, "id long")
    rows = frame.selectExpr("concat('n', id) AS job_id", "concat('[', id, ']') AS payload")
    options = {"queue": "mail", "task": "note", "writeMode": "staged", "writeId": "monday"}
    with pytest.raises(Exception, match="one task fails"):
        enqueue(rows, app.url, **options)
    assert living(app) == 0
    flag.touch()
    assert enqueue(rows, app.url, **options) == (100, 100, 0, 0)
    assert living(app) == 100
