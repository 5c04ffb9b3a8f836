"""Rows of a queue file that another program wrote wrongly, or a disk has damaged."""
# ruff: noqa: S608

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import apsw
import pytest

from dueline.api.application import Dueline
from dueline.cli import run
from dueline.cli.errors import Exit
from dueline.core.job import JobId
from dueline.stores.sqlite.connection import APPLICATION_ID, SCHEMA_VERSION
from dueline.stores.sqlite.damage import DAMAGED, SCHEMAS, tables

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


def loosely(path: Path) -> None:
    """Make a file as earlier versions did: its tables take any type."""
    database = apsw.Connection(str(path))
    for name in SCHEMAS:
        script = resources.files("dueline.stores.sqlite").joinpath(name).read_text("utf-8")
        script = re.sub(r",\n  CHECK [^\n]*\)(?=,?\n)", "", script)
        script = script.replace(" STRICT, WITHOUT", " WITHOUT").replace(") STRICT;", ");")
        assert "CHECK (" not in script
        for _ in database.execute(script):
            pass
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    database.execute("INSERT INTO records VALUES ('presence', 'x', x'01', '{}', 9000000000000000)")
    lanes = [(1, "default", 0, 0, 0, "", 0), (2, "default", 0, 0, 0, "other", 0)]
    database.executemany("INSERT INTO lanes VALUES (?, ?, ?, ?, ?, ?, ?)", lanes)
    for number in range(1, JOBS + 1):
        lane = 2 if number == 3 else 1
        database.execute(
            "INSERT INTO jobs (lane, pos_us, id, hop, due_us, enqueued_us, task, codec, body, opts,"
            " at_us) VALUES (?, ?, ?, 0, ?, 1, 'work', 0, ?, x'', ?)",
            (lane, number, bytes([number] * 16), number, b"[%d]" % number, number),
        )
    database.close()
    path.chmod(0o600)


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


@pytest.mark.parametrize("statement", WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_a_row_of_a_wrong_type_stops_no_other_job_and_is_named(
    app: Dueline, path: Path, statement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    loosely(path)
    execute(path, statement)
    seen: list[int] = []
    app.task(name="work")(seen.append)
    app.run_worker(burst=True)
    is_of_job = statement.startswith(("UPDATE jobs", "UPDATE lanes"))
    assert sorted(seen) == [
        number for number in range(1, JOBS + 1) if not (is_of_job and number == 3)
    ]
    database = apsw.Connection(str(path))
    rows = database.execute(f"SELECT place, reason, statement FROM {DAMAGED}").fetchall()
    database.close()
    damaged = [[str(cell) for cell in row] for row in rows]
    assert len(damaged) == 1 + statement.startswith("UPDATE lanes"), damaged
    assert run(["--store", f"sqlite:///{path}", "doctor"]) == Exit.CHECK
    said = capsys.readouterr().err
    for place, reason, again in damaged:
        assert place in said
        assert reason in said
        assert again.startswith(f"INSERT INTO {place.split()[0]}")


def test_what_was_set_aside_can_be_put_back(app: Dueline, path: Path) -> None:
    loosely(path)
    execute(path, "UPDATE jobs SET at_us = 'soon', error = 'it''s' WHERE rowid = 3")
    app.task(name="work")(lambda _: None)
    assert app.job("02" * 16).status == "ready"
    database = apsw.Connection(str(path))
    statement = database.execute(f"SELECT statement FROM {DAMAGED}").get
    database.execute(statement.replace("'soon'", "3"))
    database.execute(f"DELETE FROM {DAMAGED}")
    database.close()
    assert app.job("03" * 16).status == "ready"
    assert "damaged rows" not in app.store.describe()
    app.run_worker(burst=True)
    assert app.job("03" * 16).status == "done"


def test_text_in_the_place_of_bytes_is_read_as_before(app: Dueline, path: Path) -> None:
    # other programs may have stored arguments and options as text
    loosely(path)
    execute(path, "UPDATE jobs SET body = '[\"\u00fc\"]', opts = '' WHERE rowid = 2")
    seen: list[object] = []
    app.task(name="work")(seen.append)
    app.run_worker(burst=True)
    assert sorted(map(str, seen)) == sorted(["1", "\u00fc", "3", "4", "5", "6"])
    assert "damaged rows" not in app.store.describe()


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


def test_a_process_of_an_earlier_version_goes_on_beside(app: Dueline, path: Path) -> None:
    loosely(path)
    earlier = apsw.Connection(str(path))
    insert = "INSERT INTO rows VALUES ('log', 0, ?, ?, x'')"
    earlier.execute(insert, (1, b"1"))
    assert len(list(app.queues.engine.lanes_of("default"))) == 2
    for number in range(2, 5):
        earlier.execute(insert, (number, bytes([number])))
    with pytest.raises(apsw.ConstraintError):
        earlier.execute(insert, ("x", b"x"))
    earlier.close()
    execute(path, "PRAGMA quick_check")
    stored = apsw.Connection(str(path))
    found = dict(stored.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'"))
    stored.close()
    assert {name: found[name] for name in tables()} == tables()
