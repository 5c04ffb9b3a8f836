"""Calls that wait for a disk: no signal ends a thread in one, so that others watch over it."""

import os
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock, Thread, get_ident
from typing import Any, Final, Generic, Self, TypeVar
from weakref import WeakSet

from dueline.core.clock import SECOND_US
from dueline.core.durations import span_text
from dueline.core.errors import StoreUnavailable

LIMIT_US: Final = 10 * SECOND_US
"""Default time that a call may wait for its disk, in microseconds."""

RESUMED_S: Final = 0.2
"""How long a call of a process that was stopped may take to go on, in seconds."""

IDLE_S: Final = 5.0
"""Time after which a thread that reads nothing more ends, in seconds."""

T = TypeVar("T")

_all: Final[WeakSet["DiskWait"]] = WeakSet()


class _Read(Generic[T]):
    """A call that another thread makes. is_over: Locked until then."""

    def __init__(self, call: Callable[[], T]) -> None:
        self.is_over = Lock()
        self.is_over.acquire()
        self._call = call
        self._answers: list[T] = []
        self._error: BaseException | None = None

    def make(self) -> None:
        """Make the call."""
        try:
            self._answers.append(self._call())
        except BaseException as error:  # noqa: BLE001  (raised in the thread that waits)
            self._error = error

    def answer(self) -> T:
        """Return its value, or raise its exception."""
        if self._error is not None:
            raise self._error
        return self._answers[0]


class _Reader(Thread):
    """A thread that makes calls, one after the other, until it is idle for IDLE_S."""

    def __init__(self, idle: list["_Reader"]) -> None:
        super().__init__(name="dueline-read", daemon=True)
        self.reads: SimpleQueue[_Read[Any]] = SimpleQueue()
        self._idle = idle

    def run(self) -> None:
        """Make calls."""
        while True:
            try:
                read = self.reads.get(timeout=IDLE_S)
            except Empty:
                try:
                    self._idle.remove(self)
                except ValueError:  # a thread has taken it, whose call comes
                    continue
                return
            read.make()
            self._idle.append(self)
            read.is_over.release()
            del read  # with what it refers to


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
        self._readers: list[_Reader] = []
        self._process = os.getpid()
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
        """Return what `read` returns, which may call the store; it runs in another thread.

        Raises:
          StoreUnavailable: The disk does not answer; the thread stays until it does.
        """
        if self.holder == get_ident():  # only this thread can read before its transaction ends
            return read()
        call = _Read(read)
        self._reader().reads.put(call)
        while not call.is_over.acquire(timeout=max(RESUMED_S, self.left_us() / SECOND_US)):
            if not self.left_us():
                raise self.error()
        return call.answer()

    def _reader(self) -> _Reader:
        """Return a thread that waits for a call."""
        if self._process != os.getpid():  # the threads of the parent process are not in this one
            self._readers, self._process = [], os.getpid()
        try:
            return self._readers.pop()
        except IndexError:
            reader = _Reader(self._readers)
            reader.start()
            return reader

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
