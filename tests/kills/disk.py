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
