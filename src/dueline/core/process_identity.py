"""Where a process runs, and whether it still does.

What is said here of another process is proof, or nothing: two processes see each other only on
one machine, since the same boot, among the same process numbers.
"""

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")
_STATE, _STARTED = 0, 19  # places in what follows the name in /proc/PID/stat
_ENDED: Final = ("Z", "X")


class Whereabouts(NamedTuple):
    """A process, wherever it is.

    space: the machine, its boot and its process numbers; empty where that cannot be told.
    pid: its number there. born: when it began, since numbers are given again.
    """

    space: str
    pid: int
    born: str


def own() -> Whereabouts:
    """Tell where this process runs; nowhere that others could tell, but on Linux."""
    with suppress(OSError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        numbers = (_PROC / "self/ns/pid").readlink()
        born = _stat(os.getpid())[_STARTED]
        return Whereabouts(f"{socket.gethostname()}/{boot}/{numbers}", os.getpid(), born)
    return Whereabouts("", 0, "")


def is_gone(other: Whereabouts, here: Whereabouts) -> bool:
    """Tell whether a process has ended for certain, as seen from here; False where unknown."""
    if not here.space or other.space != here.space:
        return False
    try:
        os.kill(other.pid, 0)  # the only sign of those that /proc hides from us
    except ProcessLookupError:
        return True
    except OSError:
        return False
    with suppress(OSError):
        told = _stat(other.pid)
        return told[_STARTED] != other.born or told[_STATE] in _ENDED
    return False


def worker_name() -> str:
    """Make a worker's id: `<host>:<pid>:<random>`."""
    return f"{socket.gethostname()}:{os.getpid()}:{os.urandom(4).hex()}"


def _stat(pid: int) -> list[str]:
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
