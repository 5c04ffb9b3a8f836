"""Identity of a process, and whether it still runs.

Another process is only judged if it runs on the same machine, since the same boot, in the same
PID namespace.
"""

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")
_STATE, _STARTED = 0, 19  # positions after the name in /proc/PID/stat
_ENDED: Final = ("Z", "X")
_STOPPED: Final = ("T", "t")

importing: Final = threading.Event()
"""Set in a child process of a worker while it imports the application."""


class Whereabouts(NamedTuple):
    """The identity of a process.

    space: machine, boot and PID namespace; empty if unknown. pid: process number in it.
    started: start time of the process, because numbers are reused.
    """

    space: str
    pid: int
    started: str


def own() -> Whereabouts:
    """Return the identity of this process; without `space` except on Linux."""
    with suppress(OSError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        numbers = (_PROC / "self/ns/pid").readlink()
        started = _stat(os.getpid())[_STARTED]
        return Whereabouts(f"{socket.gethostname()}/{boot}/{numbers}", os.getpid(), started)
    return Whereabouts("", 0, "")


def is_gone(other: Whereabouts, here: Whereabouts) -> bool:
    """Return whether a process has certainly ended; False if unknown."""
    if not here.space or other.space != here.space:
        return False
    try:
        os.kill(other.pid, 0)  # also works for processes that /proc hides
    except ProcessLookupError:
        return True
    except OSError:
        return False
    with suppress(OSError):
        status = _stat(other.pid)
        return status[_STARTED] != other.started or status[_STATE] in _ENDED
    return False


def is_stopped(other: Whereabouts, here: Whereabouts) -> bool:
    """Return whether a process is certainly stopped, as by SIGSTOP; False if unknown."""
    if not here.space or other.space != here.space:
        return False
    with suppress(OSError):
        status = _stat(other.pid)
        return status[_STARTED] == other.started and status[_STATE] in _STOPPED
    return False


def worker_name() -> str:
    """Return a new id of a worker: `<host>:<pid>:<random>`."""
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it cannot be read."""
    try:
        pages = int((_PROC / str(pid) / "statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def resident_bytes_with_children() -> int:
    """Return the resident memory of this process and its child processes; 0 if unknown."""
    children: set[int] = set()
    for path in _PROC.glob("self/task/*/children"):
        with suppress(OSError):  # the thread has ended
            children.update(map(int, path.read_text(encoding="ascii").split()))
    return sum(map(resident_bytes, [os.getpid(), *children]))


def _stat(pid: int) -> list[str]:
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
