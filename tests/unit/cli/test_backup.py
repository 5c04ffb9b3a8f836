"""`dueline backup`, `dueline restore`, and stores that do not exist (R16)."""

import threading
from pathlib import Path

import apsw
import pytest

from dueline import Dueline
from tests.harness.shell import Shell

READING = [
    ("jobs", "list"), ("jobs", "show", "0" * 32), ("jobs", "explain", "0" * 32), ("dead", "list"),
    ("queues", "list"), ("queues", "show", "mail"), ("limits", "list"), ("schedules", "list"),
    ("streams", "list"), ("shards", "list"), ("flows", "list"), ("workers", "list"), ("stats",),
    ("doctor",), ("health",), ("health", "--ready"), ("events",), ("top",),
    ("backup", "copy.db"), ("export", "copy"), ("dead", "retry", "--all", "--yes"),
]  # fmt: skip


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_a_command_that_reads_creates_no_store(shell: Shell, words: tuple[str, ...]) -> None:
    answer = shell("--store", "sqlite:///typo.db", *words)
    assert not (shell.folder / "typo.db").exists()
    assert (answer.code, answer.why) == (7, "There is no store at typo.db.")
    assert "dueline init" in answer.err


def test_a_command_that_declares_settings_creates_the_store(shell: Shell) -> None:
    answer = shell("--store", "sqlite:///new.db", "limits", "set", "api", "2")
    assert answer.code == 0, answer.err
    assert (shell.folder / "new.db").exists()


def test_a_backup_is_made_in_use_checked_and_restored(shell: Shell) -> None:
    job = shell.enqueue("tasks.add", "1")
    app = Dueline("sqlite:///jobs.db")
    app.engine.catalog.names()  # another connection is open
    answer = shell.app("backup", "copy.db", "-o", "json")
    app.close()
    assert answer.code == 0, answer.err
    copy = shell.folder / "copy.db"
    assert answer.data == {"copy": "copy.db", "bytes": copy.stat().st_size, "check": "ok"}
    assert copy.stat().st_mode & 0o777 == 0o600
    assert not [*shell.folder.glob("*.part")]
    for file in shell.folder.glob("jobs.db*"):
        file.unlink()
    answer = shell.app("restore", "copy.db")
    assert answer.code == 0, answer.err
    assert job in shell.app("jobs", "list").out


def test_writes_go_on_while_a_backup_is_made(shell: Shell) -> None:
    app = Dueline("sqlite:///jobs.db")
    task = app.task(name="late")(lambda n: n)
    stop = threading.Event()
    done: list[object] = []

    def write() -> None:
        while not stop.is_set():
            done.append(task.enqueue(len(done)))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        codes = [shell.app("backup", f"copy-{number}.db").code for number in range(5)]
    finally:
        stop.set()
        thread.join()
        app.close()
    assert codes == [0] * 5
    counts = []
    for number in range(5):
        database = apsw.Connection(str(shell.folder / f"copy-{number}.db"))
        counts.append(database.execute("SELECT count(*) FROM jobs").get)
        database.close()
    assert counts == sorted(counts)
    assert counts[-1] <= len(done)


def test_nothing_is_overwritten(shell: Shell) -> None:
    (shell.folder / "copy.db").write_bytes(b"mine")
    assert shell.app("backup", "copy.db").code == 5
    assert (shell.folder / "copy.db").read_bytes() == b"mine"
    assert shell.app("backup", "good.db").code == 0
    answer = shell.app("restore", "good.db")
    assert (answer.code, answer.why) == (5, f"The file {Path('jobs.db')} exists already.")
    (shell.folder / "jobs.db").rename(shell.folder / "old.db")
    (shell.folder / "jobs.db-wal").write_bytes(b"")  # it would damage the restored file
    assert shell.app("restore", "good.db").code == 5


def test_what_is_damaged_or_foreign_is_not_restored(shell: Shell) -> None:
    (shell.folder / "foreign.db").write_bytes(b"")
    (shell.folder / "text.db").write_bytes(b"no database at all" * 100)
    shell.enqueue("tasks.add", "1")
    assert shell.app("backup", "good.db").code == 0
    content = bytearray((shell.folder / "good.db").read_bytes())
    content[5000:9000] = bytes(4000)
    (shell.folder / "damaged.db").write_bytes(content)
    for name in ("foreign", "text", "damaged"):
        answer = shell("--store", "sqlite:///new.db", "restore", f"{name}.db")
        assert answer.code == 3, (name, answer.err)
        assert not (shell.folder / "new.db").exists()
    assert shell("--store", "sqlite:///new.db", "restore", "nosuch.db").code == 4


def test_only_sqlite_files_are_copied(shell: Shell) -> None:
    answer = shell("--store", "memory://", "backup", "copy.db")
    assert (answer.code, answer.why) == (2, "memory:// is not a SQLite file.")
