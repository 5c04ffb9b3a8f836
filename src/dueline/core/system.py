"""What not every operating system has."""

import os
import stat
from collections.abc import Callable
from typing import Final

IS_POSIX: Final = hasattr(os, "register_at_fork")
"""Whether processes can fork, and inherit open files by number."""

_HAS_OWNERS: Final = hasattr(os, "geteuid")

NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)
"""The flag of `os.open` that refuses symbolic links."""

flush_data: Final[Callable[[int], object]] = getattr(os, "fdatasync", os.fsync)
"""Flushes the data of a file, and of its metadata only what reading it needs."""


def at_fork(
    *,
    before: Callable[[], object] = bool,
    after_in_parent: Callable[[], object] = bool,
    after_in_child: Callable[[], object] = bool,
) -> None:
    """Register functions for forks; do nothing on systems without forks."""
    register = getattr(os, "register_at_fork", None)
    if register is not None:
        register(before=before, after_in_parent=after_in_parent, after_in_child=after_in_child)


def is_own(status: os.stat_result) -> bool:
    """Return whether a file belongs to this user; True on systems that do not say."""
    return not _HAS_OWNERS or status.st_uid == os.geteuid()


def is_own_or_of_root(status: os.stat_result) -> bool:
    """Return whether a file belongs to this user or to root; True on systems that do not say."""
    return is_own(status) or status.st_uid == 0


def is_open_to_all(status: os.stat_result) -> bool:
    """Return whether every user may write to a file; False on systems that do not say."""
    return _HAS_OWNERS and bool(status.st_mode & stat.S_IWOTH)


def user_name() -> str:
    """Return the name of this process's user; a variable counts only where files have no owners."""
    if not _HAS_OWNERS:
        import getpass  # noqa: PLC0415  (few systems need it)

        return getpass.getuser()
    import pwd  # noqa: PLC0415  (not on all systems)

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # no such user, as in some containers
        return f"uid {os.geteuid()}"
