"""SIGTERM and SIGINT end what runs."""

import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def passed_on(then: Callable[[int], object]) -> Iterator[Sequence[int]]:
    """Catch SIGTERM and SIGINT in the block; answer those that came, in their order.

    In any thread but the main one, which alone can catch them, nothing is caught.

    Args:
      then: called for each, with how many came so far, in a thread of its own. In the handler
        it could wait for ever: a signal may come while the main thread holds the very lock that
        `then` needs, as `Event.set` needs the one that `Event.clear` and `Event.wait` take.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    arrived: queue.SimpleQueue[int | None] = queue.SimpleQueue()  # a handler may put into it

    def catch(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        arrived.put(len(received))

    def pass_on() -> None:
        while (count := arrived.get()) is not None:
            then(count)

    thread = threading.Thread(target=pass_on, name="dueline-signals", daemon=True)
    thread.start()
    before = {number: signal.signal(number, catch) for number in ENDING}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        arrived.put(None)
        thread.join()
