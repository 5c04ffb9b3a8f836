"""Calls that wait for a disk: no signal ends a thread in one, so that others watch over it."""

import time
from collections.abc import Callable
from threading import Thread, get_ident
from typing import Final, Self, TypeVar
from weakref import WeakSet

from dueline.core.clock import SECOND_US
from dueline.core.durations import span_text
from dueline.core.errors import StoreUnavailable

LIMIT_US: Final = 10 * SECOND_US
"""Default time that a call may wait for its disk, in microseconds."""

RESUMED_S: Final = 0.2
"""How long a call of a process that was stopped may take to go on, in seconds."""

T = TypeVar("T")

_all: Final[WeakSet["DiskWait"]] = WeakSet()


class DiskWait:
    """The present call of a connection that one thread uses at a time: `with wait:` makes one.

    Times are those of the machine, also in a simulation: its disk is real.

    Attributes:
      place: What the call reads or writes, for messages.
      limit_us: Time without progress after which the disk does not answer, in microseconds.
      since_us: When the call last made progress; 0 without a call.
      holder: The thread that has a transaction open; 0 without one.
    """

    def __init__(self, place: str, limit_us: int = LIMIT_US) -> None:
        self.place = place
        self.limit_us = limit_us
        self.since_us = 0
        self.holder = 0
        self._thread = 0
        _all.add(self)

    def __enter__(self) -> Self:
        """Note that a call of this thread begins."""
        self._thread, self.since_us = get_ident(), time.monotonic_ns() // 1000
        return self

    def progressed(self) -> bool:
        """Note that the disk answered; return False, by which a statement of SQLite goes on."""
        if self.since_us:
            self.since_us = _now_us()
        return False

    def __exit__(self, *_: object) -> None:
        """Note the end of the call of this thread, unless another one has begun since."""
        if self._thread == get_ident():
            self.since_us = 0

    def forget(self) -> None:
        """Drop the call of a thread that does not exist here, in the child of a fork."""
        self.since_us = 0

    def left_us(self) -> int:
        """Return after how long the call is overdue, in microseconds; 0 if it is."""
        since_us = self.since_us
        return max(0, since_us + self.limit_us - _now_us()) if since_us else self.limit_us

    def answer(self, read: Callable[[], T]) -> T:
        """Return what `read` returns, which may call the store; it runs in a thread of its own.

        Raises:
          StoreUnavailable: The disk does not answer; the thread stays until it does.
        """
        if self.holder == get_ident():  # only this thread can read before its transaction ends
            return read()
        from concurrent.futures import Future, wait  # noqa: PLC0415  (loads logging, one use)

        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(read())
            except BaseException as error:  # noqa: BLE001  (raised in the thread that waits)
                answer.set_exception(error)

        Thread(target=run, name="dueline-read", daemon=True).start()
        while not wait([answer], max(RESUMED_S, self.left_us() / SECOND_US)).done:
            if not self.left_us():
                raise self.error()
        return answer.result()

    def error(self) -> StoreUnavailable:
        """Return the error of what cannot wait for the call any longer."""
        return StoreUnavailable(
            f"The disk of {self.place} has not answered for {span_text(self.limit_us)}.",
            hint="Check the disk; calls succeed again once it answers.",
        )


def _now_us() -> int:
    return time.monotonic_ns() // 1000


def overdue() -> DiskWait | None:
    """Return a call of this process whose disk does not answer, or None."""
    return next((wait for wait in list(_all) if not wait.left_us()), None)


def is_any_under_way() -> bool:
    """Return whether a thread of this process is in a call to a disk."""
    return any(wait.since_us for wait in list(_all))
