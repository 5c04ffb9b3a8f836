"""SIGTERM, SIGINT and SIGHUP as graceful stops."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from typing import Final

from dueline.core.process_signals import reset_handlers, set_handlers, signals_to_stop
from dueline.core.system import IS_POSIX

SAME_REQUEST_S: Final = 0.5
"""Signals within this time are one request: a terminal and a parent process both send theirs."""

MAIN_STUCK_S: Final = 1.0
"""How often a thread looks for signals that the main thread does not receive, in seconds."""

_END: Final = 0
"""In place of a signal's number: no more come."""

_BYTES: Final = 1024

SIGNALLED = 128
"""What the number of a signal is added to, for the exit code."""


class Requests:
    """Counts signals that follow each other at once as one request."""

    def __init__(self) -> None:
        self._counted_s = float("-inf")

    def is_new(self, now_s: float) -> bool:
        """Return whether a signal that is received now counts."""
        if now_s - self._counted_s < SAME_REQUEST_S:
            return False
        self._counted_s = now_s
        return True


@contextmanager
def passed_on(then: Callable[[int], object]) -> Iterator[Sequence[int]]:
    """Catch SIGTERM and SIGINT in the block; yield those received so far, in order.

    SIGHUP, which the end of a terminal sends, is caught unless it is ignored, as after `nohup`.
    Only the main thread can catch signals; in other threads nothing is caught. Signals less than
    half a second after one that counted do not count. Processes that are started in the block
    handle signals as before it.

    Args:
      then: called for each signal with the number received so far, in its own thread. In the
        signal handler it could deadlock, because the main thread may hold the lock that `then`
        needs, as `Event.set` needs the lock of `Event.clear` and `Event.wait`; and it would not
        run while the main thread waits for a disk.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    numbers = signals_to_stop()
    inside, outside = socket.socketpair()
    inside.settimeout(MAIN_STUCK_S)
    outside.settimeout(0)

    def pass_on() -> None:
        requests = Requests()
        while True:
            try:
                caught = inside.recv(_BYTES)
            except TimeoutError:
                _take_over(numbers)
                continue
            for number in caught:
                if number == _END:
                    return
                if number in numbers and requests.is_new(monotonic()):
                    received.append(number)
                    then(len(received))

    def catch(_number: int, _frame: FrameType | None) -> None:
        """Do nothing: the interpreter has written the number, also while this thread hangs."""

    thread = threading.Thread(target=pass_on, name="dueline-signals", daemon=True)
    thread.start()
    former_fd = signal.set_wakeup_fd(outside.fileno(), warn_on_full_buffer=False)
    set_handlers(numbers, catch)
    try:
        yield received
    finally:
        reset_handlers(catch)
        signal.set_wakeup_fd(former_fd)
        outside.send(bytes([_END]))
        thread.join()
        inside.close()
        outside.close()


def _take_over(numbers: Sequence[int]) -> None:
    """Let this thread receive signals that the main thread, waiting for a disk, cannot.

    The kernel has chosen the main thread for them. A thread that unblocks them is asked again.
    """
    if IS_POSIX:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
