"""What commands of the pipeline need, and what they say of a lake that is behind."""

import subprocess
import sys
from pathlib import Path
from shutil import rmtree

import pytest

pytest.importorskip("deltalake")

from pyarrow import parquet

from dueline import Dueline
from dueline.log import trimming
from tests.harness.shell import Shell
from tests.harness.spark.tables import (
    app_with_a_past,
    live_on,
    made,
    quiet,
    rows_in,
    table_in,
)


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Be in the folder of the store, which no setting names."""
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, capsys)


@pytest.mark.parametrize("command", ["audit", "archive --to one"])
def test_a_command_that_copies_says_that_other_tables_lack_the_rows(
    shell: Shell, app: Dueline, command: str
) -> None:
    words = ("--store", app.url, "pipeline", *command.split(), "--engine", "duckdb")
    assert "the other tables lack" not in shell(*words).err  # there are none
    made(shell.folder / "lake", app).run([], quiet)
    again = [word if word != "one" else "two" for word in words]
    assert "the other tables lack" not in shell(*again).err
    live_on(app, 10)
    last = [word if word != "one" else "three" for word in words]
    answer = shell(*last)
    assert answer.code == 0
    assert "the other tables lack these rows until `dueline pipeline run`" in answer.err


@pytest.mark.parametrize("command", ["report", "vacuum --dry-run", "optimize"])
def test_a_command_that_reads_only_tables_needs_no_store(
    shell: Shell, app: Dueline, command: str
) -> None:
    made(shell.folder / "lake", app).run([], quiet)
    answer = shell("pipeline", *command.split())
    assert answer.code == 0, answer.err


@pytest.mark.parametrize("is_new", [True, False])
def test_tables_that_an_audit_left_behind_are_not_called_damaged(
    shell: Shell, app: Dueline, *, is_new: bool
) -> None:
    lake = shell.folder / "lake"
    if not is_new:
        made(lake, app).run([], quiet)
        live_on(app, 10)
    made(lake, app).audit(quiet)
    answer = shell("--store", app.url, "-o", "json", "pipeline", "verify")
    verdicts = {one["check"]: one["verdict"] for one in answer.data}
    assert answer.code == 0
    assert verdicts["bronze holds the store's history"] == "good"
    assert verdicts["silver has each attempt once"] == "behind"
    assert "update them with `dueline pipeline run`" in answer.err
    made(lake, app).run([], quiet)
    answer = shell("--store", app.url, "-o", "json", "pipeline", "verify")
    assert {one["verdict"] for one in answer.data} == {"good"}


def test_gold_that_is_behind_silver_is_not_called_damaged(shell: Shell, app: Dueline) -> None:
    lake = shell.folder / "lake"
    made(lake, app).run([], quiet)
    live_on(app, 10)
    made(lake, app).run(["bronze", "silver"], quiet)
    answer = shell("--store", app.url, "-o", "json", "pipeline", "verify")
    verdicts = [one["verdict"] for one in answer.data]
    assert (answer.code, verdicts) == (0, ["good"] * 2 + ["behind"] * 5)


@pytest.mark.parametrize("table", ["silver", "gold_minute"])
def test_a_row_that_is_missing_in_a_table_that_is_behind_is_bad(
    shell: Shell, app: Dueline, table: str
) -> None:
    lake = shell.folder / "lake"
    made(lake, app).run([], quiet)
    rmtree(lake / table)
    assert shell("--store", app.url, "pipeline", "verify").code == 6
    made(lake, app).run([], quiet)
    live_on(app, 10)
    made(lake, app).audit(quiet)
    file = Path(table_in(lake, table).view().paths[0])
    kept = parquet.read_table(file, partitioning=None)
    parquet.write_table(kept.slice(1), file)
    assert shell("--store", app.url, "pipeline", "verify").code == 6


def test_an_audit_names_the_time_at_which_trimmed_history_begins(
    shell: Shell, app: Dueline
) -> None:
    now_us = app.store.clock_us()
    for shard in range(3):
        trimming.trim(app.store, "mail!history", shard, before_us=now_us, version=b"v" * 16)
    words = ("--store", app.url, "-o", "json", "pipeline", "audit", "--engine", "duckdb")
    (_, mail) = shell(*words).data["queues"]
    assert (mail["queue"], mail["verdict"]) == ("mail", "not audited")
    live_on(app, 10)
    answer = shell(*words)
    assert [one["verdict"] for one in answer.data["queues"]] == ["not audited", "clean"]
    assert f"mail: the tables begin at {mail['since'][:19]}" in answer.err
    assert "jobs enqueued before are not judged." in answer.err


@pytest.mark.parametrize("option", ["--attempts", "--capacity"])
def test_a_task_that_no_row_has_is_refused(shell: Shell, app: Dueline, option: str) -> None:
    words = ("--store", app.url, "pipeline", "audit", "--engine", "duckdb", option)
    answer = shell(*words, "count to 30=2")
    assert answer.code == 2
    assert "No row of the history has the task 'count to 30'." in answer.err
    assert "count to 300" in answer.err
    assert shell(*words, "count to 300=99").code == 0


@pytest.mark.parametrize("is_first", [True, False])
def test_a_lake_of_another_store_is_refused_before_a_row_is_left_out(
    shell: Shell, app: Dueline, *, is_first: bool
) -> None:
    (shell.folder / "other").mkdir()
    other = app_with_a_past(shell.folder / "other")
    live_on(other, 10)
    lake = shell.folder / "lake"
    words = ("pipeline", "run", "--engine", "duckdb", "--out", str(lake))
    assert shell("--store", other.url, *words).code == 0
    if not is_first:
        live_on(app, 11)
        live_on(other, 11)
        made(lake, other).run([], quiet)
    before = rows_in(lake, "bronze")
    live_on(app, 12)
    if is_first:
        made(shell.folder / "own", app).run([], quiet)
        rmtree(lake)
        (shell.folder / "own").rename(lake)
        app, before = other, rows_in(lake, "bronze")
    answer = shell("--store", app.url, *words)
    assert answer.code == 5
    assert "they hold the history of another store." in answer.err
    assert rows_in(lake, "bronze") == before


def test_a_run_that_finds_nothing_new_imports_no_engine(shell: Shell, app: Dueline) -> None:
    """A schedule may start it each minute."""
    made(shell.folder / "lake", app).run([], quiet)
    words = ["--store", app.url, "pipeline", "run", "--engine", "duckdb"]
    script = (
        "import sys\nfrom dueline.cli import run\n"
        f"assert run({words}) == 0\n"
        "print({'pandas', 'duckdb', 'sqlglot', 'pyspark'} & sys.modules.keys())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=shell.folder, capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines()[-1] == "set()"
