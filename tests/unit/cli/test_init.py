"""`dueline init`."""

import sys

import pytest
import typer

from dueline.cli.commands.init import DEFAULT_STORE
from tests.harness.shell import Shell


@pytest.fixture
def empty(bare_shell: Shell) -> Shell:
    """Make an empty folder."""
    (bare_shell.folder / "tasks.py").unlink()
    return bare_shell


def test_what_it_writes_runs(empty: Shell) -> None:
    answer = empty("init", "-o", "json")
    assert answer.code == 0
    assert answer.data == {"store": DEFAULT_STORE, "made": ["dueline.toml", "tasks.py"]}
    assert "dueline enqueue tasks.hello Ann" in answer.err
    assert (empty.folder / "jobs.db").exists()
    assert empty("enqueue", "tasks.hello", "Ann").code == 0
    assert empty("worker", "--burst").code == 0
    data = empty("jobs", "list", "--state", "done", "-o", "json").data
    assert [task["task"] for task in data] == ["tasks.hello"]


def test_the_store_of_the_flag_is_written_down(empty: Shell) -> None:
    assert empty("--store", "sqlite:///other.db", "init").code == 0
    text = (empty.folder / "dueline.toml").read_text(encoding="utf-8")
    assert text == 'store = "sqlite:///other.db"\napp = "tasks:app"\n'


def test_nothing_is_written_over(bare_shell: Shell) -> None:
    before = (bare_shell.folder / "tasks.py").read_text(encoding="utf-8")
    answer = bare_shell("init")
    assert (answer.code, answer.why) == (5, "The file tasks.py exists already.")
    assert (bare_shell.folder / "tasks.py").read_text(encoding="utf-8") == before
    assert not (bare_shell.folder / "dueline.toml").exists()
    assert not (bare_shell.folder / "jobs.db").exists()


def test_a_store_that_cannot_be_opened_leaves_nothing_behind(empty: Shell) -> None:
    assert empty("--store", "nosuch://place", "init").code == 7
    assert list(empty.folder.iterdir()) == []


def test_on_a_terminal_the_store_is_asked_for(
    empty: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(typer, "prompt", lambda *_, **__: "sqlite:///asked.db")
    answer = empty("init")
    assert answer.code == 0
    for scheme in ("sqlite", "postgresql", "cassandra"):
        assert f"{scheme}://" in answer.err
    assert (empty.folder / "asked.db").exists()
