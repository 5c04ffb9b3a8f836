"""Blobs in a folder, of this machine or one that machines share."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import get_ident


class FolderPlace:
    """Blobs as files of a folder, each written as a whole and flushed to the disk.

    Args:
        folder: The folder; created when the first blob is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def address(self, name: str) -> str:
        """Return the address of a blob, for people."""
        return (self._folder / name).as_uri()

    def write(self, name: str, data: bytes) -> None:
        """Write a file under another name, flush it, and rename it."""
        path = self._folder / name
        _make_folder(path.parent)
        # Maintenance removes what a process that was killed leaves, with the folder of its hour.
        draft = path.with_name(f"{path.name}.{os.getpid()}-{get_ident()}")
        try:
            with draft.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        _flush_folder(path.parent)

    def read(self, name: str) -> bytes:
        """Read a file."""
        return (self._folder / name).read_bytes()

    def remove(self, name: str) -> None:
        """Remove a file, or the folder of an hour if it is empty."""
        path = self._folder / name
        if path.is_dir():
            with suppress(OSError):  # a blob was written there meanwhile
                path.rmdir()
        else:
            path.unlink(missing_ok=True)

    def names(self, folder: str) -> Sequence[str]:
        """Return the names in a folder."""
        try:
            return sorted(path.name for path in (self._folder / folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return ()


def _make_folder(folder: Path) -> None:
    """Create a folder and those above it, and flush their entries to the disk."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _flush_folder(folder.parent)


def _flush_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
