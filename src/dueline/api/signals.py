"""SIGTERM, SIGINT and SIGHUP as graceful stops."""

import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def passed_on(then: Callable[[int], object]) -> Iterator[Sequence[int]]:
    """Catch SIGTERM and SIGINT in the block; yield those received so far, in order.

    SIGHUP, which the end of a terminal sends, is caught unless it is ignored, as after `nohup`.
    Only the main thread can catch signals; in other threads nothing is caught.

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

    def catch(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        arrived.put(len(received))

    def pass_on() -> None:
        while (count := arrived.get()) is not None:
            then(count)

    thread = threading.Thread(target=pass_on, name="dueline-signals", daemon=True)
    thread.start()
    hang_up = [getattr(signal, "SIGHUP", None)]  # Windows has none
    more = [one for one in hang_up if one and signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, catch) for number in (*ENDING, *more)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        arrived.put(None)
        thread.join()
