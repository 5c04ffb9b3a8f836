"""What cannot be done, told in three lines (R15)."""

import errno
import os
from pathlib import Path

import apsw
import pytest

from tests.harness.shell import Shell

LIST = ("jobs", "list")


def test_without_a_store_there_is_nothing_to_work_with(bare_shell: Shell) -> None:
    answer = bare_shell(*LIST)
    assert (answer.code, answer.out) == (7, "")
    assert answer.why == "No store is named."
    answer = bare_shell("enqueue", "tasks.add", "1")
    assert (answer.code, answer.why) == (7, "No application is named.")
    assert list(bare_shell.folder.glob("*.db")) == []


def test_an_application_that_is_not_named_is_looked_for(bare_shell: Shell) -> None:
    answer = bare_shell("worker")
    assert (answer.code, answer.why) == (7, "No application is named.")
    assert answer.err.endswith("or use dueline.toml. Found here: tasks:app.\n")


def test_a_package_that_is_not_here_is_not_to_be_installed(bare_shell: Shell) -> None:
    answer = bare_shell("worker", "shop.app:app")
    assert (answer.code, answer.why[-23:]) == (7, "No module named 'shop'.")
    assert "try: Check the name and the current folder. Found here: tasks:app.\n" in answer.err


def test_a_command_that_reads_does_not_speak_of_writing(shell: Shell) -> None:
    answer = shell.app("jobs", "show", "123")
    assert answer.code == 2
    assert answer.err.startswith("dueline: invalid input; nothing was done\n")


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("store = ", "cannot be read"),
        ("stor = 'sqlite:///jobs.db'", "unknown or invalid key 'stor'"),
        ("store = 3", "unknown or invalid key 'store'"),
    ],
)
def test_a_configuration_that_cannot_be_read_exits_7(shell: Shell, written: str, why: str) -> None:
    (shell.folder / "dueline.toml").write_text(written)
    answer = shell(*LIST)
    assert answer.code == 7
    assert why in answer.why


@pytest.mark.parametrize(
    ("app", "why"),
    [
        ("nothing:app", "The application module 'nothing' cannot be imported"),
        ("tasks:nothing", "The module 'tasks' has no 'nothing'."),
        ("tasks:add", "tasks:add is a Task, not a Dueline application."),
        ("nothing.py:app", "There is no file nothing.py."),
        ("broken:app", "fails while it is imported: ZeroDivisionError"),
    ],
)
def test_an_app_that_cannot_be_had_exits_7(shell: Shell, app: str, why: str) -> None:
    (shell.folder / "broken.py").write_text("1 / 0")
    answer = shell("--app", app, *LIST)
    assert answer.code == 7
    assert why in answer.why


@pytest.mark.parametrize(
    "store", ["nothing", "mysql://host/x", "sqlite:///x.db?what=1", "sqlite://"]
)
def test_an_address_of_no_store_exits_7(shell: Shell, store: str) -> None:
    answer = shell("--store", store, *LIST)
    assert (answer.code, answer.out) == (7, "")
    assert store in answer.why


def test_a_password_is_not_shown(shell: Shell) -> None:
    assert "secret" not in shell("--store", "mysql://me:secret@host/x", *LIST).err


def test_a_file_that_is_no_database_is_left_as_it_is(shell: Shell) -> None:
    (shell.folder / "jobs.db").write_text("shopping list\n" * 100)
    answer = shell.app("enqueue", "tasks.add", "1")
    assert (answer.code, answer.out) == (3, "")
    assert "is not a SQLite database" in answer.why
    assert (shell.folder / "jobs.db").read_text() == "shopping list\n" * 100


def test_the_database_of_another_program_is_left_as_it_is(bare_shell: Shell) -> None:
    other = apsw.Connection("jobs.db")
    other.execute("CREATE TABLE songs (title)")
    other.close()
    answer = bare_shell.app("enqueue", "tasks.add", "1")
    assert answer.code == 3
    assert len(answer.why) > 20


def test_a_store_of_a_newer_schema_exits_3(shell: Shell) -> None:
    shell.enqueue("tasks.add", "1")
    other = apsw.Connection("jobs.db")
    other.execute("PRAGMA user_version = 99")
    other.close()
    for words in (LIST, ("doctor",), ("enqueue", "tasks.add", "1")):
        answer = shell.app(*words)
        assert (answer.code, answer.out) == (3, "")
        assert "99" in answer.why


def test_a_folder_that_is_not_there_exits_3(shell: Shell) -> None:
    answer = shell("--store", "sqlite:///no/jobs.db", "limits", "set", "api", "2")
    assert answer.code == 3
    assert "no/jobs.db cannot be opened: No such file or directory." in answer.why
    assert not Path("no").exists()


def test_a_folder_without_rights_exits_3(
    bare_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("dueline.stores.sqlite.file.os.open", refuse)  # root has all rights
    answer = bare_shell.app("enqueue", "tasks.add", "1")
    assert (answer.code, answer.out) == (3, "")
    assert "cannot be opened: Permission denied." in answer.why
    assert not Path("jobs.db").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["nothing"], "No such command 'nothing'"),
        (["jobs"], "Missing command"),
        (["jobs", "nothing"], "No such command 'nothing'"),
        (["jobs", "show"], "Missing argument 'ID'"),
        (["--bogus", "doctor"], "No such option: --bogus"),
        (["-o", "xml", "version"], "'xml' is not one of"),
        (["jobs", "list", "--store"], "--store needs a value"),
        (["enqueue", "tasks.add", "1", "--priority", "high"], "'high' is not a valid int"),
        (
            ["jobs", "reschedule", "ff", "--after", "5s", "--due", "2027-01-01T00:00Z"],
            "Pass exactly one of --after and --due.",
        ),
    ],
)
def test_what_is_no_command_exits_2(shell: Shell, words: list[str], why: str) -> None:
    answer = shell(*words)
    assert (answer.code, answer.out) == (2, "")
    assert why in answer.why


def test_the_store_of_the_flag_goes_before_the_app_s_own(
    bare_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUELINE_STORE", "sqlite:///environment.db")
    bare_shell.enqueue("tasks.add", "1")
    assert [path.name for path in bare_shell.folder.glob("*.db")] == ["jobs.db"]
    bare_shell.app("--store", "sqlite:///flag.db", "enqueue", "tasks.add", "1")
    assert len(bare_shell("--store", "sqlite:///flag.db", *LIST, "-o", "json").data) == 1
    assert bare_shell(*LIST).why == "There is no store at environment.db."


def test_app_and_store_are_found_in_the_environment_and_the_file(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shell.folder / "dueline.toml").write_text("store = 'sqlite:///file.db'\napp = 'tasks:app'\n")
    assert shell("enqueue", "tasks.add", "1").code == 0
    assert len(shell(*LIST, "-o", "json").data) == 1
    (shell.folder / "dueline.toml").unlink()
    monkeypatch.setenv("DUELINE_APP", "tasks:app")
    assert len(shell(*LIST, "-o", "json").data) == 1


def test_the_heading_of_a_missing_setup_does_not_name_another_cause(shell: Shell) -> None:
    answer = shell("--store", "sqlite:///jobs.db?mode=0777", *LIST)
    assert answer.code == 7
    assert answer.err.startswith("dueline: the configuration is incomplete or wrong\n")
