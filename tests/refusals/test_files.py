"""Files that cannot hold a queue, or are damaged."""

import os
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from dueline.app import Dueline
from dueline.clock import SystemClock
from dueline.errors import (
    BadInput,
    DuelineError,
    SchemaMismatch,
    StoreCorrupt,
    StoreUnavailable,
)
from dueline.handle import Job
from dueline.history import attempts
from dueline.job import Token
from dueline.policy import Retry
from dueline.store import SETTINGS_PARTITION, Want
from dueline.stores import sqlite_connection, sqlite_file
from dueline.stores.sqlite import SqliteStore

PAGE_BYTES = 4096
HEADER_BYTES = 100
READ_ONLY_IF_FLIPPED = (18, 19)
"""SQLite reads, and does not write, a file whose format it does not know how to write."""

NOBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may do this")


def app_on(path: Path) -> Dueline:
    return Dueline(f"sqlite:///{path}")


def fill(path: Path) -> None:
    """Make a queue with jobs short and long, finished, dead and scheduled; close it cleanly."""
    app = app_on(path)

    def work(number: int, body: str = "") -> int:
        if number % 10 == 9:
            raise KeyError(number)
        return number

    task = app.task(name="work", retry=Retry(attempts=1))(work)
    task.enqueue_many([(number,) for number in range(60)])
    app.run_worker(burst=True)
    task.enqueue_many([(number, "x" * 3000) for number in range(20)])
    task.using(after=3600, priority=5, tenant="other").enqueue_many([(n,) for n in range(200)])
    app.close()


def everything(path: Path) -> tuple[object, ...]:
    """Open a queue, read all that is in it, and claim one job."""
    app = app_on(path)
    try:
        store = app.store
        names = app.queues.catalog.names()
        queues = [*names, *(f"{name}!dead" for name in names)]
        lanes = [lane for queue in queues for lane in app.queues.lanes_of(queue)]
        jobs = [store.scan(lane, after=None, until_us=None, limit=10_000).jobs for lane in lanes]
        found = store.find([job.id for some in jobs for job in some])
        history = list(attempts(store, "default", 1))
        states = [app.job(one.job).status for one in history]
        records = store.read(SETTINGS_PARTITION, after=None, limit=100)
        claimed = store.claim(
            [Want(lane, 5) for lane in lanes],
            limit=3,
            now_us=store.clock_us(),
            lease_us=1,
            worker="w",
            token=Token(bytes(range(16))),
        )
        ids = [job.id for job in claimed.jobs]
        return (lanes, jobs, found, history, states, records, ids)
    finally:
        app.close()


def tried(path: Path) -> tuple[object, ...] | DuelineError:
    """Do so, and answer what was read, or the error, which names the file and what to do."""
    try:
        return everything(path)
    except DuelineError as error:
        found = error
    assert str(path) in found.message
    assert found.hint
    return found


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "queue.db"
    fill(path)
    assert sorted(one.name for one in path.parent.iterdir()) == ["queue.db"]
    return path


@pytest.fixture(scope="module")
def intact(good: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    copy = tmp_path_factory.mktemp("copy") / "queue.db"
    shutil.copy(good, copy)
    return everything(copy)


def test_a_database_cut_at_any_page_is_corrupt(
    good: Path, intact: tuple[object, ...], tmp_path: Path
) -> None:
    data = good.read_bytes()
    assert len(data) > 30 * PAGE_BYTES
    for cut in range(PAGE_BYTES, len(data) + 1, PAGE_BYTES):
        path = tmp_path / f"{cut}.db"
        path.write_bytes(data[:cut])
        found = tried(path)
        if isinstance(found, DuelineError):
            assert isinstance(found, StoreCorrupt), f"cut at {cut}: {found}"
            assert cut < len(data)
        else:
            assert found == intact, f"cut at {cut} of {len(data)}"


@pytest.mark.parametrize("cut", [1, 15, 16, 99, 100, 511, 4095, 4097, 3 * 4096 + 1000])
def test_a_database_cut_inside_a_page_is_corrupt(good: Path, tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.db"
    path.write_bytes(good.read_bytes()[:cut])
    with pytest.raises(StoreCorrupt):
        everything(path)


def test_a_flipped_byte_of_the_header_is_an_error_or_harmless(
    good: Path, intact: tuple[object, ...], tmp_path: Path
) -> None:
    data = good.read_bytes()
    chance = random.Random(1)
    for place in range(HEADER_BYTES):
        flipped = bytearray(data)
        flipped[place] ^= 1 << chance.randrange(8) if place % 2 else chance.randrange(1, 256)
        path = tmp_path / f"{place}.db"
        path.write_bytes(flipped)
        found = tried(path)
        if isinstance(found, DuelineError):
            is_told = isinstance(found, StoreCorrupt) or place in READ_ONLY_IF_FLIPPED
            assert is_told, f"byte {place}: {found}"
        else:
            assert found == intact, f"byte {place}: {data[place]} -> {flipped[place]}"


@pytest.mark.parametrize(
    "content", [b"no database at all\n" * 1000, b"x", b"\0" * 8192, b"SQLite format 3\0" * 512]
)
def test_what_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match=r"notes\.txt"):
        everything(path)
    assert path.read_bytes() == content
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]


def stranger(path: Path, *, journal: str, version: int = 0, application: int = 0) -> None:
    """Make another program's database; its connection is in another process, and killed."""
    settings = {"journal_mode": journal, "user_version": version, "application_id": application}
    pragmas = "".join(f"PRAGMA {name} = {value};" for name, value in settings.items())
    rows = "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1), (2)"
    program = """
import apsw, os, signal, sys
apsw.Connection(sys.argv[1]).execute(sys.argv[2]).fetchall()
os.kill(os.getpid(), signal.SIGKILL)
"""
    command = [sys.executable, "-c", program, str(path), pragmas + rows]
    subprocess.run(command, check=False, timeout=60)


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
@pytest.mark.parametrize(("version", "application"), [(0, 0), (1, 0), (1, 7), (0, 7)])
def test_a_database_of_another_program_is_refused_and_left_alone(
    tmp_path: Path, journal: str, version: int, application: int
) -> None:
    path = tmp_path / "theirs.db"
    stranger(path, journal=journal, version=version, application=application)
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    with pytest.raises(SchemaMismatch, match="of another program"):
        everything(path)
    after = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    assert after["theirs.db"] == before["theirs.db"]
    assert after.get("theirs.db-wal", b"") == before.get("theirs.db-wal", b"")


@pytest.mark.parametrize("version", [2, 99, -1, 2**31 - 1, -(2**31)])
def test_a_schema_of_another_release_is_refused_and_left_alone(
    good: Path, tmp_path: Path, version: int
) -> None:
    path = tmp_path / "queue.db"
    data = bytearray(good.read_bytes())
    data[60:64] = version.to_bytes(4, signed=True)
    path.write_bytes(data)
    with pytest.raises(SchemaMismatch, match="schema"):
        everything(path)
    assert path.read_bytes() == data


# Rights and places


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Make a folder that other users can reach."""
    folder = Path("/tmp") / f"dueline-test-{os.getpid()}-{os.urandom(4).hex()}"  # noqa: S108
    folder.mkdir()
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


AS_ANOTHER = """
import os, sys
from dueline import Dueline
from dueline.errors import DuelineError
import dueline.stores.sqlite
from importlib import resources
resources.files("dueline.stores").joinpath("sqlite.sql").read_text()
os.setgroups([]); os.setgid({user}); os.setuid({user})
app = Dueline(sys.argv[1])
try:
    app.store.describe()
except DuelineError as error:
    print(type(error).__name__, error.message, "|", error.hint)
else:
    print("opened")
"""


def as_another(path: Path, user: int = NOBODY) -> str:
    """Open a queue as another user, in another process."""
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER.replace("{user}", str(user)), f"sqlite:///{path}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
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
def test_a_file_of_ones_own_in_a_shared_folder_is_opened(open_folder: Path) -> None:
    open_folder.chmod(0o1777)
    assert as_another(open_folder / "queue.db") == "opened\n"
    with pytest.raises(BadInput, match="belongs to another user"):
        everything(open_folder / "queue.db")


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
    assert list(folder.iterdir()) == []
    folder.chmod(0o1777)
    everything_of_an_empty_queue(folder / "queue.db")


def everything_of_an_empty_queue(path: Path) -> None:
    app = app_on(path)
    assert app.queues.catalog.names() == []
    app.close()


@pytest.mark.parametrize("target", ["queue.db", "nowhere"])
def test_a_symbolic_link_is_refused(good: Path, tmp_path: Path, target: str) -> None:
    shutil.copy(good, tmp_path / "queue.db")
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / target)
    with pytest.raises(BadInput, match="symbolic link"):
        everything(link)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.db", "queue.db"]


@pytest.mark.parametrize("kind", sorted(sqlite_file.NETWORK_FILE_SYSTEMS))
def test_a_network_file_system_is_refused(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mounts"
    place = str(tmp_path / "far away").replace(" ", "\\040")
    mounts.write_text(f"disk / ext4 rw 0 0\nserver:/x {place} {kind} rw 0 0\n")
    (tmp_path / "far away").mkdir()
    with pytest.raises(BadInput, match="network file system"):
        sqlite_file.prepare(tmp_path / "far away" / "queue.db", mounts=mounts)
    assert list((tmp_path / "far away").iterdir()) == []
    sqlite_file.prepare(tmp_path / "near.db", mounts=mounts)


def test_the_last_mount_on_a_folder_counts(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"a / ext4 rw 0 0\nb {tmp_path} ext4 rw 0 0\nc {tmp_path} nfs4 rw 0 0\n")
    with pytest.raises(BadInput, match="network file system"):
        sqlite_file.prepare(tmp_path / "queue.db", mounts=mounts)


@pytest.mark.parametrize("version", ["3.7.0", "3.40.1", "3.50.4", "3.51.2"])
def test_a_library_with_the_race_is_refused(version: str) -> None:
    with pytest.raises(BadInput, match=version.replace(".", r"\.")):
        sqlite_connection.check_library(version)


def test_a_library_without_the_race_passes() -> None:
    for version in ("3.51.3", "3.52.0", "4.0.0"):
        sqlite_connection.check_library(version)
    sqlite_connection.check_library()


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
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip(f"no small disk can be mounted: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@AS_ROOT
@pytest.mark.parametrize("size", [10, 900, 30_000])
def test_a_full_disk_refuses_and_loses_nothing(small_disk: Path, size: int) -> None:
    app = app_on(small_disk / "queue.db")

    def work(number: int, body: str) -> int:
        return number

    task = app.task(name="work")(work)
    ballast = small_disk / "ballast"
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
    again = app_on(small_disk / "queue.db")
    assert {again.job(job.id).status for job in stored} == {"done"}
    again.close()


def count(app: Dueline) -> int:
    return sum(
        len(app.store.scan(lane, after=None, until_us=None, limit=100_000).jobs)
        for lane in app.queues.lanes_of("default")
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
