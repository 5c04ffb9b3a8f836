"""The duties of process 1, which the first process of a container has."""

import os
import signal
from typing import Final

from dueline.api.signals import SIGNALLED

_FORWARDED: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")


def stay_as_process_one() -> int | None:
    """Continue in a child process if this is process 1, and serve the system here meanwhile.

    Process 1 forwards signals to the child, and reaps processes whose parents have ended. It reaps
    no process that a handler waits for, because those are children of the child.

    Returns:
        None in the process that goes on; the exit code of the child in process 1.
    """
    if os.getpid() != 1 or not hasattr(signal, "sigwait"):
        return None
    awaited = {signal.SIGCHLD, *(getattr(signal, name) for name in _FORWARDED)}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return None
    while True:
        number = signal.sigwait(awaited)
        if number != signal.SIGCHLD:
            os.kill(child, number)
        elif (code := _reap(child)) is not None:
            return code


def _reap(child: int) -> int | None:
    """Reap all processes that have ended; return the exit code of the child if it has."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return SIGNALLED - code if code < 0 else code
        if pid == 0:
            return None
