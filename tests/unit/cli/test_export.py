"""`dueline export` and `dueline import store` (R16)."""

import pytest

from dueline.cli.commands import export
from tests.harness.shell import Shell


def test_a_store_is_exported_and_imported(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "GRACE_US", 0)
    job = shell.enqueue("tasks.add", "1")
    answer = shell.app("export", "files", "-o", "json")
    assert answer.code == 0, answer.err
    assert answer.data["jobs"] == 1
    assert shell.app("export", "files").code == 5
    answer = shell("--store", "sqlite:///new.db", "import", "store", "files", "-o", "json")
    assert answer.code == 0, answer.err
    assert answer.data["jobs"] == 1
    assert job in shell("--store", "sqlite:///new.db", "jobs", "list").out
    again = shell("--store", "sqlite:///new.db", "import", "store", "files")
    assert again.code == 0
    assert "was imported before" in again.err


def test_what_cannot_be_imported_is_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "GRACE_US", 0)
    shell.enqueue("tasks.add", "1")
    answer = shell.app("import", "store", "nowhere")
    assert answer.code == 2
    assert "no complete export" in answer.why
    shell.app("export", "files")
    answer = shell.app("import", "store", "files")
    assert answer.code == 5
    assert "not empty" in answer.err
    assert shell.app("import", "store", "files", "--merge").code == 0
