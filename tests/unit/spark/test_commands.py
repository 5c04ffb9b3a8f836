"""What commands of the pipeline need."""

from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from dueline import Dueline
from tests.harness.shell import Shell
from tests.harness.spark.tables import app_with_a_past, made, quiet


@pytest.fixture
def app(tmp_path: Path) -> Dueline:
    """Make a store with a past."""
    return app_with_a_past(tmp_path)


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """Be in the folder of the store, which no setting names."""
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, capsys)


@pytest.mark.parametrize("command", ["report", "vacuum --dry-run", "optimize"])
def test_a_command_that_reads_only_tables_needs_no_store(
    shell: Shell, app: Dueline, command: str
) -> None:
    made(shell.folder / "lake", app).run([], quiet)
    answer = shell("pipeline", *command.split())
    assert answer.code == 0, answer.err
