"""Rows of a queue file that another program wrote wrongly, or a disk has damaged."""
# ruff: noqa: S608

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from dueline.api.application import Dueline
from dueline.cli import run
from dueline.cli.errors import Exit
from dueline.core.errors import NotFound
from dueline.core.job import JobId
from dueline.stores.sqlite.damage import DAMAGED

JOBS = 6

WRONG_TYPES = {
    "text as a time": "UPDATE jobs SET at_us = 'soon' WHERE rowid = 3",
    "text as a position": "UPDATE jobs SET pos_us = 'first' WHERE rowid = 3",
    "a number as an id": "UPDATE jobs SET id = 17 WHERE rowid = 3",
    "text as a fence": "UPDATE jobs SET fence = 'x' WHERE rowid = 3",
    "a fence that cannot be raised": "UPDATE jobs SET fence = 9223372036854775807 WHERE rowid = 3",
    "a blob as a task": "UPDATE jobs SET task = x'ff00' WHERE rowid = 3",
    "a number as options": "UPDATE jobs SET opts = 5 WHERE rowid = 3",
    "a number as an outcome": "UPDATE jobs SET outcome = 7 WHERE rowid = 3",
    "a blob as a tenant": "UPDATE lanes SET tenant = x'c3' WHERE tenant = 'other'",
    "text as a listing": "UPDATE lanes SET listing = 'now' WHERE tenant = 'other'",
    "text as a mark": "INSERT INTO marks VALUES ('default', 0, 'x', 'y')",
    "a mark beyond all numbers": (
        "INSERT INTO dueline_stream_marks VALUES ('history/default', 0, 9223372036854775807)"
    ),
    "a number as a record": "UPDATE records SET value = 5 WHERE partition = 'presence'",
}
"""Statements that put values of a wrong type into a file; job 3 is the one of the other tenant."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
def app(path: Path) -> Iterator[Dueline]:
    app = Dueline(f"sqlite:///{path}")
    yield app
    app.close()


def execute(path: Path, statement: str) -> None:
    """Run a statement as another program."""
    database = apsw.Connection(str(path))
    database.execute(statement)
    database.close()


@pytest.mark.parametrize("statement", WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_a_value_of_a_wrong_type_is_refused(app: Dueline, path: Path, statement: str) -> None:
    work = app.task(name="work")(lambda _: None)
    tenants = ["", "", "other", "", "", ""]
    for number, tenant in enumerate(tenants):
        work.using(tenant=tenant).enqueue(number)
    execute(path, "INSERT INTO records VALUES ('presence', 'x', x'01', x'', NULL)")
    with pytest.raises(apsw.ConstraintError):
        execute(path, statement)


@pytest.mark.parametrize("column", ["task", "worker", "error"])
def test_text_that_is_none_stops_no_other_job(app: Dueline, path: Path, column: str) -> None:
    # STRICT tables take it, and a flipped bit makes it
    seen: list[int] = []
    work = app.task(name="work")(seen.append)
    jobs = [work.enqueue(number) for number in range(JOBS)]
    execute(
        path,
        f"UPDATE jobs SET {column} = CAST(x'776f726bc3' AS TEXT), errors = 1"
        f" WHERE id = x'{jobs[2].id}'",
    )
    app.run_worker(burst=True)
    assert sorted(seen) == [0, 1, 3, 4, 5]
    assert app.store.describe()["damaged rows"] == (
        f"1: jobs {jobs[2].id} ({column} is text that cannot be read)"
    )


def test_a_lane_whose_tenant_is_no_text_takes_its_jobs_along_and_is_named(
    app: Dueline, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[int] = []
    work = app.task(name="work")(seen.append)
    for number in range(JOBS):
        work.using(tenant="other" if number == 2 else "").enqueue(number)
    execute(path, "UPDATE lanes SET tenant = CAST(x'c3' AS TEXT) WHERE tenant = 'other'")
    app.run_worker(burst=True)
    assert sorted(seen) == [0, 1, 3, 4, 5]
    database = apsw.Connection(str(path))
    rows = database.execute(f"SELECT place, reason, statement FROM {DAMAGED}").fetchall()
    database.close()
    damaged = [[str(cell) for cell in row] for row in rows]
    assert [place.split()[0] for place, *_ in damaged] == ["lanes", "jobs"]
    assert run(["--store", f"sqlite:///{path}", "doctor"]) == Exit.CHECK
    said = capsys.readouterr().err
    for place, reason, again in damaged:
        assert place in said
        assert reason in said
        assert again.startswith(f"INSERT INTO {place.split()[0]}")


def test_what_was_set_aside_can_be_put_back(app: Dueline, path: Path) -> None:
    jobs = [app.task(name="work")(lambda _: None).enqueue(1)]
    execute(path, "UPDATE jobs SET task = CAST(x'776f726bc3' AS TEXT), error = 'it''s'")
    with pytest.raises(NotFound):
        _ = jobs[0].status
    database = apsw.Connection(str(path))
    statement = database.execute(f"SELECT statement FROM {DAMAGED}").get
    database.execute(statement.replace("CAST(x'776f726bc3' AS TEXT)", "'work'"))
    database.execute(f"DELETE FROM {DAMAGED}")
    database.close()
    assert jobs[0].status == "ready"
    assert "damaged rows" not in app.store.describe()
    app.run_worker(burst=True)
    assert jobs[0].status == "done"


def test_a_job_whose_arguments_are_lost_is_dead_with_a_reason(app: Dueline, path: Path) -> None:
    seen: list[int] = []
    work = app.task(name="work")(lambda number, _: seen.append(number))
    jobs = [work.enqueue(number, "x" * 5000) for number in range(JOBS)]
    execute(path, f"DELETE FROM bodies WHERE id = x'{jobs[2].id}'")
    app.run_worker(burst=True)
    assert sorted(seen) == [0, 1, 3, 4, 5]
    assert jobs[2].status == "dead"
    row = app.queues.find(JobId(bytes.fromhex(jobs[2].id))).row
    assert row is not None
    assert "arguments" in row.error
