"""Values that take long to read: a thread reads them, and callers wait for a moment only."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar, cast

from dueline.core.clock import Clock

T = TypeVar("T")

RESTS = 9
"""A value is not read again for this many times as long as it took: workers need the store, too."""

WAIT_S = 0.1
"""How long callers wait for a value if there is an older one, in seconds."""


class CachedValue(Generic[T]):
    """A value that is read again when it is old. Threads may share it.

    Args:
        read: Reads the value; in one thread at a time.
        clock: This machine's clock.
        old_us: Age in microseconds from which on a value is not returned while it is read again:
            callers wait for the new one. None: they get None if the first read takes long.
    """

    def __init__(self, read: Callable[[], T], clock: Clock, *, old_us: int | None = None) -> None:
        self._read = read
        self._clock = clock
        self._old_us = old_us
        self._guard = threading.Lock()
        self._turn = threading.Lock()
        self._known: Future[T] | None = None
        self._reading: Future[T] | None = None
        self._ended_us = self._took_us = 0

    def now(self) -> T:
        """Read the value in this thread.

        Raises:
            DuelineError: It could not be read.
        """
        future: Future[T] = Future()
        self._run(future)
        return future.result()

    def get(self, max_age_us: int) -> T | None:
        """Return the value; a thread reads it again if it is older than this.

        Raises:
            DuelineError: It could not be read; the next call tries again.
        """
        with self._guard:
            known, age_us = self._known, self._clock.monotonic_us() - self._ended_us
            is_due = known is None or age_us > max(max_age_us, RESTS * self._took_us)
            if self._reading is None and is_due:
                self._reading = Future()
                thread = threading.Thread(target=self._run, args=(self._reading,), daemon=True)
                thread.start()
            reading = self._reading
        is_old = self._old_us is not None and (known is None or age_us > self._old_us)
        if reading is not None:
            try:
                return reading.result(timeout=None if is_old else WAIT_S)
            except TimeoutError:
                pass
        return None if known is None else known.result()

    def _run(self, future: "Future[T]") -> None:
        value: T | None = None
        failure: BaseException | None = None
        with self._turn:
            began_us = self._clock.monotonic_us()
            try:
                value = self._read()
            except BaseException as error:  # noqa: BLE001  (raised where callers wait)
                failure = error
            with self._guard:
                self._known = None if failure else future
                if self._reading is future:
                    self._reading = None
                self._ended_us = self._clock.monotonic_us()
                self._took_us = self._ended_us - began_us
            if failure is None:
                future.set_result(cast("T", value))
            else:
                future.set_exception(failure)
