"""A folder with an app, and a shell in it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline
from tests.harness.shell import TASKS, Shell


@pytest.fixture
def bare_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Shell]:
    """Make a folder with an app in tasks.py, and be there."""
    (tmp_path / "tasks.py").write_text(TASKS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield Shell(tmp_path, capsys)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if file and Path(file).is_relative_to(tmp_path):
            del sys.modules[name]  # another test has a module of that name elsewhere


@pytest.fixture
def shell(bare_shell: Shell) -> Shell:
    """Make the store, too."""
    app = Dueline("sqlite:///jobs.db")
    app.engine.catalog.names()
    app.close()
    return bare_shell
