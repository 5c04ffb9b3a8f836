"""Indexes that do not agree with their tables."""

from pathlib import Path

import apsw
import pytest

from dueline.admin.health import examine
from dueline.api.application import Dueline
from dueline.cli import run
from dueline.cli.errors import Exit

JOBS = 50


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


def hide(path: Path) -> None:
    """Take half of the jobs out of an index, as one flipped bit can."""
    database = apsw.Connection(str(path))
    page = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'jobs_by_time'").get
    size = database.pragma("page_size")
    database.pragma("wal_checkpoint(truncate)")
    database.close()
    data = bytearray(path.read_bytes())
    start = (page - 1) * size
    assert data[start] == 10  # a leaf of an index
    cells = int.from_bytes(data[start + 3 : start + 5])
    assert cells == JOBS
    data[start + 3 : start + 5] = (cells // 2).to_bytes(2)
    path.write_bytes(data)


def enqueue(path: Path) -> None:
    app = Dueline(f"sqlite:///{path}")
    app.task(name="work")(lambda _: None).enqueue_many([(number,) for number in range(JOBS)])
    app.close()


def test_jobs_that_an_index_hides_are_found(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    enqueue(path)
    hide(path)
    app = Dueline(f"sqlite:///{path}")
    seen: list[int] = []
    app.task(name="work")(seen.append)
    app.run_worker(burst=True)
    app.close()
    assert len(seen) < JOBS  # no worker can know
    assert run(["--store", f"sqlite:///{path}", "doctor"]) == Exit.CHECK
    said = capsys.readouterr()
    assert "missing from index jobs_by_time" in said.err


def test_rebuilt_indexes_bring_hidden_jobs_back(path: Path) -> None:
    enqueue(path)
    hide(path)
    database = apsw.Connection(str(path))
    database.execute("REINDEX")
    database.close()
    app = Dueline(f"sqlite:///{path}")
    seen: list[int] = []
    app.task(name="work")(seen.append)
    app.run_worker(burst=True)
    assert sorted(seen) == list(range(JOBS))
    (check,) = [one for one in examine(app.queues.engine).checks if one.name == "indexes"]
    assert check.verdict == "good"
    app.close()


def test_a_comparison_that_takes_too_long_is_given_up(path: Path) -> None:
    enqueue(path)
    app = Dueline(f"sqlite:///{path}")
    app.task(name="work")(lambda _: None).enqueue_many([(number,) for number in range(5_000)])
    (check,) = [
        one for one in examine(app.queues.engine, compare_us=0).checks if one.name == "indexes"
    ]
    assert check.verdict == "warning"
    assert "--time" in check.advice
    assert app.queues.engine.store.describe()["integrity"] == "ok"
    app.close()
