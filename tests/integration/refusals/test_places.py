"""Places that cannot hold a queue, and a full disk (R14)."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from dueline.api.application import Dueline
from dueline.api.connect import open_store
from dueline.api.job_handle import Job
from dueline.core.clock import SystemClock
from dueline.core.errors import (
    BadInput,
    ConfigError,
    DuelineError,
    StoreUnavailable,
)
from dueline.core.wakeup import Signal
from dueline.stores.sqlite import file
from dueline.stores.sqlite.store import SqliteStore
from tests.harness.queue_files import app_on, everything, fill
from tests.kills.disk import MountError, small_disk

NOBODY = 65534
SHARED = "?shared_folder=allow"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may do this")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Make a folder that other users can reach."""
    folder = Path(tempfile.gettempdir()) / f"dueline-test-{os.getpid()}-{os.urandom(4).hex()}"
    folder.mkdir()
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


AS_ANOTHER = """
import os, sys
from dueline import Dueline
from dueline.core.errors import DuelineError
import dueline.stores.sqlite.store
from importlib import resources
resources.files("dueline.stores.sqlite").joinpath("schema.sql").read_text()
os.setgroups([]); os.setgid({user}); os.setuid({user})
app = Dueline(sys.argv[1])
try:
    app.store.describe()
    if "mode" in sys.argv[1]:
        app.task(name="work")(print).enqueue()
except DuelineError as error:
    print(type(error).__name__, error.message, "|", error.hint)
else:
    print("opened")
"""


def as_another(path: Path, user: int = NOBODY, options: str = "") -> str:
    """Open a queue as another user, in another process."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            AS_ANOTHER.replace("{user}", str(user)),
            f"sqlite:///{path}{options}",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@AS_ROOT
def test_a_folder_without_rights_is_refused(open_folder: Path) -> None:
    said = as_another(open_folder / "queue.db")
    assert said.startswith("StoreUnavailable The queue file")
    assert "Permission denied" in said
    assert "give this user the right" in said
    assert list(open_folder.iterdir()) == []


@AS_ROOT
def test_a_foreign_owner_is_refused(open_folder: Path) -> None:
    path = open_folder / "queue.db"
    fill(path)
    path.chmod(0o666)
    before = path.read_bytes()
    said = as_another(path)
    assert said.startswith("BadInput")
    assert "belongs to another user (uid 0)" in said
    assert path.read_bytes() == before


@AS_ROOT
def test_a_file_of_ones_own_in_a_shared_folder_is_opened_if_asked_for(open_folder: Path) -> None:
    open_folder.chmod(0o1777)
    path = open_folder / "queue.db"
    assert as_another(path).startswith("BadInput The folder")
    assert list(open_folder.iterdir()) == []
    assert as_another(path, options=SHARED) == "opened\n"
    with pytest.raises(BadInput, match="belongs to another user"):
        everything_of_an_empty_queue(path, SHARED)


@AS_ROOT
@pytest.mark.parametrize("suffix", ["-wal", "-journal", "-shm"])
def test_a_companion_of_another_user_is_refused(open_folder: Path, suffix: str) -> None:
    # SQLite would apply it to the file: the stranger's jobs would run
    path = open_folder / "queue.db"
    fill(path)
    open_folder.chmod(0o1777)
    planted = path.with_name(path.name + suffix)
    planted.write_bytes(b"\0" * 4096)
    os.chown(planted, NOBODY, NOBODY)
    planted.chmod(0o666)
    before = path.read_bytes()
    with pytest.raises(BadInput, match=f"queue.db{suffix} belongs to another user") as caught:
        everything_of_an_empty_queue(path, SHARED)
    assert caught.value.hint
    assert path.read_bytes() == before
    assert planted.exists()


@pytest.mark.parametrize("suffix", ["-wal", "-journal", "-shm"])
@pytest.mark.parametrize("kind", ["symbolic", "hard", "folder"])
def test_a_companion_that_is_a_link_is_refused(tmp_path: Path, suffix: str, kind: str) -> None:
    path = tmp_path / "queue.db"
    fill(path)
    planted = path.with_name(path.name + suffix)
    (tmp_path / "elsewhere").write_bytes(b"\0" * 4096)
    match kind:
        case "symbolic":
            planted.symlink_to(tmp_path / "elsewhere")
        case "hard":
            planted.hardlink_to(tmp_path / "elsewhere")
        case _:
            planted.mkdir()
    before = path.read_bytes()
    with pytest.raises(BadInput, match="is a link or not a regular file"):
        everything_of_an_empty_queue(path)
    assert path.read_bytes() == before
    assert kind == "folder" or (tmp_path / "elsewhere").read_bytes() == b"\0" * 4096


@pytest.mark.long
@AS_ROOT
def test_users_of_a_group_share_a_file_if_asked_to(open_folder: Path) -> None:
    os.chown(open_folder, 0, NOBODY)
    open_folder.chmod(0o2770)
    path, options = open_folder / "queue.db", "?mode=0660"
    app = Dueline(f"sqlite:///{path}{options}")
    app.task(name="work")(print).enqueue()
    listener = app.engine.wakeups.listen(["default"], Signal())
    assert as_another(path).startswith("BadInput")
    assert as_another(path, options=options) == "opened\n"
    assert [one.channel for one in listener.take()] == ["default"]
    assert len(list(app.engine.jobs_of("default"))) == 2
    files = {one.name: stat.S_IMODE(one.stat().st_mode) for one in open_folder.iterdir()}
    listener.close()
    app.close()
    assert files.pop("queue.db-wake") == 0o2770
    assert files == dict.fromkeys(("queue.db", "queue.db-wal", "queue.db-shm"), 0o660)
    assert as_another(path, options=options) == "opened\n"  # without this process
    os.chown(path, 0, 0)
    assert "belongs to another user" in as_another(path, options=options)
    with pytest.raises(ConfigError, match="not a valid SQLite URL"):
        open_store(f"sqlite:///{path}?mode=0666")


def test_an_existing_file_that_others_may_read_is_tightened(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    fill(path)
    path.chmod(0o666)
    before = os.umask(0)
    try:
        app = app_on(path)
        app.task(name="work")(lambda: None).enqueue()
        files = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
        app.close()
    finally:
        os.umask(before)
    assert files == {"queue.db": 0o600, "queue.db-wal": 0o600, "queue.db-shm": 0o600}


def test_a_file_of_another_program_keeps_its_rights(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    theirs = apsw.Connection(str(path))
    theirs.execute("CREATE TABLE theirs (value)")
    theirs.close()
    path.chmod(0o664)
    with pytest.raises(DuelineError, match="of another program"):
        everything_of_an_empty_queue(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o664


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="No such file or directory"):
        everything(tmp_path / "nowhere" / "queue.db")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        everything(tmp_path / "file" / "queue.db")


def test_a_folder_that_everyone_may_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(BadInput, match="written to by everyone"):
        everything(folder / "queue.db")
    folder.chmod(0o1777)
    with pytest.raises(BadInput, match="written to by everyone"):
        everything(folder / "queue.db")
    assert list(folder.iterdir()) == []
    everything_of_an_empty_queue(folder / "queue.db", SHARED)


def everything_of_an_empty_queue(path: Path, options: str = "") -> None:
    app = Dueline(f"sqlite:///{path}{options}")
    assert app.queues.engine.catalog.names() == []
    app.close()


@pytest.mark.parametrize("target", ["queue.db", "nowhere"])
def test_a_symbolic_link_is_refused(tmp_path: Path, target: str) -> None:
    fill(tmp_path / "queue.db")
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / target)
    with pytest.raises(BadInput, match="symbolic link"):
        everything(link)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.db", "queue.db"]


@pytest.mark.parametrize("kind", sorted(file.NETWORK_FILE_SYSTEMS))
def test_a_network_file_system_is_refused(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mounts"
    place = str(tmp_path / "far away").replace(" ", "\\040")
    mounts.write_text(f"disk / ext4 rw 0 0\nserver:/x {place} {kind} rw 0 0\n")
    (tmp_path / "far away").mkdir()
    with pytest.raises(BadInput, match="network file system"):
        file.prepare(tmp_path / "far away" / "queue.db", mounts=mounts)
    assert list((tmp_path / "far away").iterdir()) == []
    file.prepare(tmp_path / "near.db", mounts=mounts)


def test_the_last_mount_on_a_folder_counts(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"a / ext4 rw 0 0\nb {tmp_path} ext4 rw 0 0\nc {tmp_path} nfs4 rw 0 0\n")
    with pytest.raises(BadInput, match="network file system"):
        file.prepare(tmp_path / "queue.db", mounts=mounts)


def test_many_mounts_do_not_make_an_opening_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Find the folder once: each link of its path is a call of the system."""
    calls: list[Path] = []
    resolve = Path.resolve

    def counted(path: Path) -> Path:
        calls.append(path)
        return resolve(path)

    monkeypatch.setattr(Path, "resolve", counted)
    mounts = tmp_path / "mounts"
    mounts.write_text("".join(f"a /{'x' * n} ext4 rw 0 0\n" for n in range(100)))
    file.prepare(tmp_path / "queue.db", mounts=mounts)
    assert calls == [tmp_path]


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.50.4", "3.51.2"])
def test_a_library_with_the_race_is_refused(version: str) -> None:
    with pytest.raises(BadInput, match=version.replace(".", r"\.")):
        file.check_library(version)


def test_a_library_without_the_race_passes() -> None:
    for version in ("3.51.3", "3.52.0", "4.0.0"):
        file.check_library(version)
    file.check_library()


def test_an_old_library_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.46.0")
    with pytest.raises(BadInput, match=r"3\.46\.0"):
        everything(tmp_path / "queue.db")
    assert list(tmp_path.iterdir()) == []


def test_files_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "queue.db", clock=SystemClock(), synchronous="FULL")
        store.sweep("default", 0, now_us=1, width_us=1)
        files = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
        store.close()
    finally:
        os.umask(before)
    assert files == {"queue.db": 0o600, "queue.db-wal": 0o600, "queue.db-shm": 0o600}


# A full disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        with small_disk(folder, size=2 * 2**20):
            yield folder
    except MountError as error:
        pytest.skip(f"no small disk can be mounted: {error}")


@AS_ROOT
@pytest.mark.parametrize("size", [10, 900, 30_000])
def test_a_full_disk_refuses_and_loses_nothing(disk: Path, size: int) -> None:
    app = Dueline(f"sqlite:///{disk}/queue.db?reserve=0")  # test_reserve has the other refusal

    def work(number: int, body: str) -> int:
        return number

    task = app.task(name="work")(work)
    ballast = disk / "ballast"
    ballast.write_bytes(b"x" * 700_000)
    stored: list[Job[int]] = []

    def enqueue_until_refused() -> None:
        while True:
            stored.append(task.enqueue(len(stored), "x" * size))

    with pytest.raises(StoreUnavailable, match="is full; nothing was written") as caught:
        enqueue_until_refused()
    assert type(caught.value) is StoreUnavailable
    assert caught.value.hint
    for _ in range(3):  # it stays so, and what is there can be read
        with pytest.raises(StoreUnavailable, match="is full"):
            task.enqueue(-1, "x" * size)
    assert {job.status for job in stored} == {"ready"}
    assert count(app) == len(stored)
    ballast.unlink()
    stored.append(task.enqueue(len(stored), "x" * size))
    assert app.store.describe()["integrity"] == "ok"
    app.run_worker(burst=True)
    assert {job.status for job in stored} == {"done"}
    app.close()
    again = app_on(disk / "queue.db")
    assert {again.job(job.id).status for job in stored} == {"done"}
    again.close()


def count(app: Dueline) -> int:
    return sum(
        len(app.store.scan(lane, after=None, until_us=None, limit=100_000).jobs)
        for lane in app.queues.engine.lanes_of("default")
    )


def test_every_refusal_has_a_hint(tmp_path: Path) -> None:
    def open_text() -> None:
        (tmp_path / "notes.txt").write_text("no database" * 100)
        everything(tmp_path / "notes.txt")

    calls: list[Callable[[], object]] = [open_text, lambda: everything(tmp_path / "a" / "b.db")]
    for call in calls:
        with pytest.raises(DuelineError) as caught:
            call()
        assert caught.value.hint
