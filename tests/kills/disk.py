"""The small disk that the loop fills up."""

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

BYTES = 24 * 2**20
CHUNK = b"\0" * 4096


class MountError(Exception):
    """No disk can be mounted here."""


class SmallDisk:
    """A file system of some megabytes."""

    def __init__(self, folder: Path) -> None:
        """Take the folder where it is mounted."""
        self._ballast = folder / "ballast"
        self._file = folder / "queue.db"
        self.url = f"sqlite:///{self._file}"

    def fill(self) -> None:
        """Leave no byte free, and no space in the write-ahead log: the next write needs some."""
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(self._file)) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with self._ballast.open("ab", buffering=0) as ballast:
            try:
                while ballast.write(CHUNK) == len(CHUNK):
                    pass
            except OSError:
                return

    def free(self) -> None:
        """Take the ballast off it."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, *, size: int = BYTES) -> Iterator[SmallDisk]:
    """Mount a disk at an empty folder until the end of the block.

    Raises: MountError, in the words of the system; root may mount.
    """
    what = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)]
    made = subprocess.run(what, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise MountError(made.stderr.strip())
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


class FrozenDisk:
    """A file system that stands still at times: whatever writes to it waits, and no signal ends it.

    A thread in such a wait keeps its process until the disk goes on: see `has_ended`.
    """

    def __init__(self, folder: Path) -> None:
        """Take the folder where it is mounted."""
        self._folder = folder
        self.url = f"sqlite:///{folder / 'queue.db'}"

    def freeze(self) -> None:
        """Let it stand still."""
        subprocess.run(["fsfreeze", "--freeze", str(self._folder)], check=True)

    def thaw(self) -> None:
        """Let it go on, if it stands still."""
        subprocess.run(
            ["fsfreeze", "--unfreeze", str(self._folder)], check=False, capture_output=True
        )


@contextmanager
def frozen_disk(folder: Path, image: Path, *, size: int = 4 * BYTES) -> Iterator[FrozenDisk]:
    """Mount a disk at an empty folder until the end of the block.

    Args: image: a new file that holds it.
    Raises: MountError, in the words of the system; root may mount.
    """
    with image.open("wb") as file:
        file.truncate(size)
    for command in (
        ["mkfs.ext4", "-q", str(image)],
        ["mount", "-o", "loop", str(image), str(folder)],
    ):
        try:
            made = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise MountError(str(error)) from error
        if made.returncode != 0:
            raise MountError(made.stderr.strip())
    folder.chmod(0o700)
    disk = FrozenDisk(folder)
    try:
        yield disk
    finally:
        disk.thaw()
        subprocess.run(["umount", "-l", str(folder)], check=True)


def has_ended(pid: int) -> bool:
    """Return whether a process has ended, but for threads that wait for a disk."""
    states = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            states.append(stat.read_text().rpartition(")")[2].split()[0])
    return all(state in "DZX" for state in states)
