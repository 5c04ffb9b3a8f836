"""Files that are damaged, or no queue (R15)."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dueline.core.errors import (
    DuelineError,
    SchemaMismatch,
    StoreCorrupt,
)
from tests.harness.queue_files import everything, fill

PAGE_BYTES = 4096
HEADER_BYTES = 100
READ_ONLY_IF_FLIPPED = (18, 19)
"""SQLite reads, and does not write, a file whose format it does not know how to write."""


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


@pytest.mark.long
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
    subprocess.run(command, check=False, timeout=300)


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


@pytest.mark.parametrize("version", [3, 99, -1, 2**31 - 1, -(2**31)])
def test_a_schema_of_another_release_is_refused_and_left_alone(
    good: Path, tmp_path: Path, version: int
) -> None:
    path = tmp_path / "queue.db"
    data = bytearray(good.read_bytes())
    data[60:64] = version.to_bytes(4, signed=True)
    path.write_bytes(data)
    with pytest.raises(SchemaMismatch, match=rf"has schema {version}; this dueline knows 2\."):
        everything(path)
    assert path.read_bytes() == data


def test_a_schema_that_no_release_has_made_is_refused_and_left_alone(
    good: Path, tmp_path: Path
) -> None:
    path = tmp_path / "queue.db"
    data = bytearray(good.read_bytes())
    data[60:64] = (1).to_bytes(4)
    path.write_bytes(data)
    words = r"has schema 1: a development version before 1\.0 made it"
    with pytest.raises(SchemaMismatch, match=words):
        everything(path)
    assert path.read_bytes() == data
