"""SIGTERM, SIGINT and SIGHUP as graceful stops."""

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from types import FrameType
from typing import Final

from dueline.core.process_signals import reset_handlers, set_handlers, signals_to_stop

SAME_REQUEST_S: Final = 0.5
"""Signals within this time are one request: a terminal and a parent process both send theirs."""

SIGNALLED = 128
"""What the number of a signal is added to, for the exit code."""


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
        needs, as `Event.set` needs the lock of `Event.clear` and `Event.wait`.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    arrived: queue.SimpleQueue[int | None] = queue.SimpleQueue()  # safe in a signal handler
    counted_s = -SAME_REQUEST_S

    def catch(number: int, _frame: FrameType | None) -> None:
        nonlocal counted_s
        now_s = monotonic()
        if now_s - counted_s >= SAME_REQUEST_S:
            counted_s = now_s
            received.append(number)
            arrived.put(len(received))

    def pass_on() -> None:
        while (count := arrived.get()) is not None:
            then(count)

    thread = threading.Thread(target=pass_on, name="dueline-signals", daemon=True)
    thread.start()
    set_handlers(signals_to_stop(), catch)
    try:
        yield received
    finally:
        reset_handlers(catch)
        arrived.put(None)
        thread.join()
