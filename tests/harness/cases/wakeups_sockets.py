"""Datagrams to the workers of a queue file."""

import threading

from dueline.stores.sqlite.wakeup import (
    SocketListener,
    SocketWakeups,
)

TAKEN_S_MAX = 10.0


class TakenAtOnce(threading.Event):
    """News that a worker takes in the very moment they come."""

    def __init__(self) -> None:
        super().__init__()
        self.listener: SocketListener | None = None
        self.taken = threading.Semaphore(0)

    def set(self) -> None:
        super().set()
        if self.listener is not None and self.listener.take():
            self.taken.release()


def taken_at_once(wakeups: SocketWakeups) -> None:
    """Take each wake-up while its thread still announces it."""
    wakeup = TakenAtOnce()
    listener = wakeups.listen(["default"], wakeup)
    assert isinstance(listener, SocketListener)
    wakeup.listener = listener
    try:
        for _ in range(3):
            wakeups.wake(["default"])
            assert wakeup.taken.acquire(timeout=TAKEN_S_MAX)
    finally:
        listener.close()
