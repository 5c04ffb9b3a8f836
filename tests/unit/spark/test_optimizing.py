"""Many small files made few, without a row changed; files without use deleted (P5)."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline
from tests.harness.spark.tables import live_on, made, quiet, rows_in, table_in

TABLES = ("bronze", "silver", "gold_minute", "gold_lateness", "flow", "poison")
STEPS = 4


@pytest.fixture
def lake(tmp_path: Path) -> tuple[Path, Dueline, Any]:
    """Let jobs run, and copy, again and again; the last time into bronze only."""
    app = Dueline(f"sqlite:///{tmp_path / 'jobs.db'}?synchronous=NORMAL")
    app.queue("mail", shards=2, history="all")
    pipe = made(tmp_path / "lake", app)
    for step in range(STEPS):
        live_on(app, 10 + step)
        pipe.run(["bronze"] if step == STEPS - 1 else [], quiet)
    return tmp_path / "lake", app, pipe


def tables(root: Path) -> dict[str, Counter[Any]]:
    """Read all rows."""
    return {table: rows_in(root, table) for table in TABLES}


@pytest.mark.long
def test_no_row_is_changed_and_later_runs_go_on(
    lake: tuple[Path, Dueline, Any], tmp_path: Path
) -> None:
    # silver has not seen the last batch, which optimize puts into one file with earlier ones
    root, app, pipe = lake
    before, reader = tables(root), table_in(root, "bronze").view()
    found = {one["table"]: one for one in pipe.optimize(quiet)}
    assert (found["bronze"]["files_before"], found["bronze"]["files"]) == (STEPS, 1)
    assert tables(root) == before
    assert all(Path(path).is_file() for path in reader.paths)
    pipe.run([], quiet)
    live_on(app, 30)
    pipe.run([], quiet)
    assert all(one.is_good for one in pipe.verify())
    made(tmp_path / "whole", app).run([], quiet)
    assert tables(root) == tables(tmp_path / "whole")
    assert not any(one["files"] for one in pipe.vacuum(168))
    assert sum(one["files"] for one in pipe.vacuum(0, dry_run=True)) >= STEPS
    pipe.vacuum(0)
    assert not any(Path(path).is_file() for path in reader.paths)
    assert tables(root) == tables(tmp_path / "whole")


def test_the_commands_optimize_and_vacuum(
    lake: tuple[Path, Dueline, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dueline.cli import run

    root, app, _ = lake
    words = ["--store", app.url, "-o", "json", "pipeline"]
    for name in ("optimize", "vacuum"):
        assert run([*words, name, "--out", str(root)]) == 0
        told = json.loads(capsys.readouterr().out)["data"]
        assert {one["table"] for one in told} >= {"bronze", "silver", "gold_minute"}
        assert run([*words, name, "--out", str(tmp_path / "none")]) == 4
        capsys.readouterr()
