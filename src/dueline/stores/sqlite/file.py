"""Checks of queue files and of the SQLite library."""

import os
import stat
from contextlib import suppress
from pathlib import Path

import apsw

from dueline.core.errors import BadInput, StoreCorrupt, StoreUnavailable
from dueline.core.system import NO_LINK, is_open_to_all, is_own

LIBRARY_MIN = (3, 51, 3)
"""Libraries from 3.7.0 to 3.51.2 can corrupt a file that several processes write and checkpoint
at the same instant (sqlite.org/wal.html#walresetbug)."""

NETWORK_FILE_SYSTEMS = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "ncpfs",
        "afs",
        "ceph",
        "glusterfs",
        "lustre",
        "beegfs",
        "gpfs",
        "ocfs2",
        "gfs2",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.ceph",
        "fuse.s3fs",
        "fuse.rclone",
    }
)
"""File systems on which SQLite's locks between machines cannot be trusted (sqlite.org/wal.html)."""

Identity = tuple[int, int]
"""Device and inode of a file: they stay the same while any process has it open."""

DATABASE_BYTES_MIN = 512
"""SQLite's smallest page."""

COMPANIONS = ("-wal", "-journal", "-shm")
"""Suffixes of the files that SQLite keeps beside a database, and applies to it."""

MOUNTS = Path("/proc/self/mounts")

OWNER_ONLY = 0o600
GROUP_TOO = 0o660
"""Permissions of a queue file: the members of its group may be trusted with it, or not."""


def check_library(version: str = "") -> None:
    """Refuse an SQLite library that is known to corrupt files."""
    version = version or apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")) < LIBRARY_MIN:
        raise BadInput(
            f"SQLite {version} can corrupt a file that several processes write (WAL-reset race).",
            hint="Install the apsw wheel from the package index; it carries a newer library.",
        )


def prepare(
    path: Path, *, may_be_shared: bool = False, mode: int = OWNER_ONLY, mounts: Path = MOUNTS
) -> None:
    """Check that `path` may be a queue file, and create it for its owner or group only.

    Args:
      path: The queue file, absolute; its folder must exist. It is never opened here: closing a
        second descriptor would drop the locks that SQLite holds on it in this process.
      may_be_shared: Whether the folder may be writable for every user.
      mode: Its permissions, OWNER_ONLY or GROUP_TOO.
      mounts: The table of mounted file systems, one a line: device, folder, type.

    Raises:
      BadInput: a symbolic link, a foreign owner of the file or of a companion, a folder that
        every user may write to, or a network file system; nothing was created.
      StoreCorrupt: a file too short to be a database, which SQLite would take for an empty one.
      StoreUnavailable: the folder is missing or its rights forbid it; nothing was created.
    """
    folder = path.parent
    _refuse_name(path)
    try:
        status = folder.stat()
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(20, "not a folder", str(folder))
        if is_open_to_all(status) and not may_be_shared:
            raise BadInput(
                f"The folder {folder} may be written to by everyone: another user could put "
                "jobs into the queue, or destroy it.",
                hint="Choose another folder for the queue, take the right away (chmod o-w), or "
                "add ?shared_folder=allow to the address if you trust every user of the machine.",
            )
        _refuse_network(folder, mounts)
        _create(path, mode)
        _refuse_stranger(path, mode)
        _refuse_scrap(path)
        for companion in _companions(path):
            _refuse_planted(companion, mode)
    except OSError as error:
        raise StoreUnavailable(
            f"The queue file {path} cannot be opened: {error.strerror or error}.",
            hint="Create the folder, or give this user the right to write in it.",
        ) from error


def is_sealed(path: Path) -> bool:
    """Return whether a file is read-only and has no log: a copy on a read-only mount."""
    is_closed = not any(companion.exists() for companion in _companions(path))
    return is_closed and not any(os.access(entry, os.W_OK) for entry in (path, path.parent))


def restrict(path: Path, mode: int = OWNER_ONLY) -> None:
    """Give a queue file and its companions of this user the permissions of group and others."""
    for file in (path, *_companions(path)):
        with suppress(FileNotFoundError):
            status = file.stat(follow_symlinks=False)
            old = stat.S_IMODE(status.st_mode)
            new = old & stat.S_IRWXU | mode & ~stat.S_IRWXU
            if old != new and os.access(file, os.W_OK) and is_own(status):
                file.chmod(new)


def is_of_us(status: os.stat_result, mode: int) -> bool:
    """Return whether a file is this user's, or of a group of this user where that is enough."""
    if is_own(status):
        return True
    return mode == GROUP_TOO and status.st_gid in (os.getegid(), *os.getgroups())


def _companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in COMPANIONS]


def _refuse_planted(companion: Path, mode: int) -> None:
    """Refuse a log or journal of another user: SQLite would apply it."""
    try:
        status = companion.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        raise BadInput(
            f"The file {companion} is a link or not a regular file.",
            hint="Find out who put it there, and remove it.",
        )
    if not is_of_us(status, mode):
        raise BadInput(
            f"The file {companion} belongs to another user (uid {status.st_uid}).",
            hint="Find out who put it there, and remove it; it does not belong to your queue.",
        )


def identity_of(path: Path) -> Identity | None:
    """Return the identity of the file at a path; None for no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _refuse_name(path: Path) -> None:
    try:
        is_folder = path.is_dir()
        str(path).encode()
    except ValueError as error:
        raise BadInput(f"{str(path)!r} is not a file name.", hint="Choose another.") from error
    if is_folder or "\0" in str(path):
        raise BadInput(f"{str(path)!r} is not a file.", hint="Name a file in an existing folder.")


def _refuse_network(folder: Path, mounts: Path) -> None:
    if not mounts.exists():  # not Linux: no table to ask
        return
    place, kind, longest = folder.resolve(), "", -1
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        _, written, mounted, *_ = line.split(" ")
        mount = written.replace("\\040", " ")
        if len(mount) >= longest and place.is_relative_to(mount):
            kind, longest = mounted, len(mount)
    if kind in NETWORK_FILE_SYSTEMS:
        raise BadInput(
            f"The folder {folder} is on a network file system ({kind}), where SQLite may "
            "corrupt a queue.",
            hint="Use a local disk, or a server store if several machines share the queue.",
        )


def _create(path: Path, mode: int) -> None:
    if path.is_symlink():
        raise BadInput(
            f"The queue file {path} is a symbolic link.",
            hint="Name the file that it leads to.",
        )
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | NO_LINK
    with suppress(FileExistsError):
        os.close(os.open(path, flags, OWNER_ONLY))
        path.chmod(mode)  # whatever the umask is


def _refuse_stranger(path: Path, mode: int) -> None:
    status = path.stat()
    if not is_of_us(status, mode):
        raise BadInput(
            f"The queue file {path} belongs to another user (uid {status.st_uid}).",
            hint="Run as that user, choose a file of your own, or add ?mode=0660 to the address "
            "in all processes if the file belongs to a group of this user.",
        )


def _refuse_scrap(path: Path) -> None:
    if 0 < path.stat().st_size < DATABASE_BYTES_MIN:
        raise StoreCorrupt(
            f"The file {path} is too short to be a SQLite database.",
            hint="Choose another file for the queue; this one was left as it is.",
        )
