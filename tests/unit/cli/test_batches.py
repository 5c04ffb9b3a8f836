"""`dueline batches` (W16)."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.shell import Shell


@pytest.fixture
def tasks(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401
    """Import the folder's tasks."""
    monkeypatch.delitem(sys.modules, "tasks", raising=False)
    importlib.invalidate_caches()
    monkeypatch.syspath_prepend(str(Path.cwd()))
    return importlib.import_module("tasks")


def shown(shell: Shell, *words: str) -> Any:  # noqa: ANN401
    return shell.app("batches", *words, "-o", "json").data


def test_batches_are_shown_and_changed(shell: Shell, tasks: Any) -> None:  # noqa: ANN401
    # W16
    assert shell.app("batches", "list").err.startswith("No batches.")
    tasks.add.map(range(3), name="sums")
    batch = tasks.fail.map(["no", "never"], name="bad")
    explained = shell.app("jobs", "explain", batch.job(1).id).out
    assert "It is the item 1 of the batch bad." in explained
    assert shown(shell, "retry", "bad")["retried"] == 0
    shell.app("worker", "--until-done", "--no-monitor")
    assert shell.app("batches", "watch", "sums").code == 0
    assert shell.app("batches", "watch", "bad").code == 1
    head, bad, sums = shell.app("batches", "list").out.splitlines()
    assert head.split()[:7] == ["BATCH", "TASK", "QUEUE", "ITEMS", "LEFT", "DONE", "DEAD"]
    assert bad.split()[3:7] == ["2", "0", "0", "2"]
    assert sums.split()[3:7] == ["3", "0", "3", "0"]
    assert "ValueError: never" in shell.app("batches", "show", "bad").out
    assert shown(shell, "retry", "bad", "--dry-run")["matching"] == 2
    assert shown(shell, "retry", "bad")["retried"] == 2
    assert shown(shell, "cancel", "bad")["cancelled"] == 2
    assert shown(shell, "show", "bad")["cancelled"] == 2


def test_a_batch_that_goes_on_times_out(shell: Shell, tasks: Any) -> None:  # noqa: ANN401
    tasks.add.map(range(3), name="sums")
    answer = shell.app("batches", "watch", "sums", "--timeout", "0.1s")
    assert answer.code == 124
    assert "3 of 3 jobs that have not ended" in answer.err


def test_an_unknown_batch_is_named(shell: Shell) -> None:
    answer = shell.app("batches", "show", "none")
    assert answer.code == 4
    assert "There is no batch 'none'." in answer.err
