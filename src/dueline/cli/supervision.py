"""Commands end although a call to their disk does not.

No signal ends a thread that waits for a disk, nor the process that has it. So a command runs in a
child process. When a call is overdue, a thread of the child prints the error, and the process that
the caller waits for exits; the child is gone once the disk answers.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from dueline.api.stop_deadline import FLUSH_S, end_process
from dueline.core import disk_wait
from dueline.core.errors import DuelineError

CHECK_S: Final = 0.1
RESUMED_S: Final = 1.0
"""How long a call of a process that was stopped may take to go on, in seconds."""

_FORWARDED: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
_CODE_READY: Final = "SIGUSR1"


def run_supervised(run: Callable[[], int], show: Callable[[DuelineError], int]) -> int:
    """Run a command; return its exit code, also if a call to its disk never returns.

    Args:
      run: The command.
      show: Prints the error of a disk that does not answer, and returns the exit code.
    """
    if not hasattr(signal, "sigwaitinfo"):
        _watch(show, lambda _: None)
        return left(run())
    awaited = {getattr(signal, name) for name in (*_FORWARDED, _CODE_READY, "SIGCHLD")}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    parent, (reader, writer) = os.getpid(), os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return _code_of(child, awaited, reader)
    os.close(reader)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def leave(code: int) -> None:
        os.write(writer, bytes([code]))
        os.kill(parent, getattr(signal, _CODE_READY))

    _watch(show, leave, parent)
    return left(run(), leave)


def left(code: int, leave: Callable[[int], None] = lambda _: None) -> int:
    """Return an exit code; end the process itself if a call to a disk would keep it."""
    if disk_wait.is_any_under_way():
        leave(code)
        end_process(code)
    return code


def _watch(
    show: Callable[[DuelineError], int], leave: Callable[[int], None], parent: int = 0
) -> None:
    """Watch over calls to disks, and over the parent, in a thread."""

    def run() -> NoReturn:
        while True:
            time.sleep(CHECK_S)
            if parent and os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)  # as it was
            if (wait := disk_wait.overdue()) is not None:
                since_us = wait.since_us
                time.sleep(RESUMED_S)
                if wait.since_us == since_us:
                    _give_up(wait.error(), show, leave)

    threading.Thread(target=run, name="dueline-disk", daemon=True).start()


def _give_up(
    error: DuelineError, show: Callable[[DuelineError], int], leave: Callable[[int], None]
) -> NoReturn:
    codes: list[int] = []
    # In a thread: its output may go to the same disk, and another thread may hold its lock.
    printing = threading.Thread(target=lambda: codes.append(show(error)), daemon=True)
    printing.start()
    printing.join(FLUSH_S)
    code = codes[0] if codes else 1
    with suppress(OSError):
        leave(code)
    end_process(code)


def _code_of(child: int, awaited: set[signal.Signals], reader: int) -> int:
    """Forward signals to a child until it ends, or says its exit code; return that."""
    while True:
        received = signal.sigwaitinfo(awaited)
        if received.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else _end_by(signal.Signals(-code))
        elif received.si_signo == getattr(signal, _CODE_READY):
            if received.si_pid == child:
                return os.read(reader, 1)[0]
        elif received.si_code <= 0:  # of a process; the terminal sends them to the child, too
            os.kill(child, received.si_signo)


def _end_by(number: signal.Signals) -> NoReturn:
    """End this process by the signal that ended the child."""
    with suppress(OSError):  # SIGKILL
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    sys.exit(128 + number)
