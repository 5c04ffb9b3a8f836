"""Values that take long to read: a thread reads them, and pages wait for a moment only."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar, cast

from dueline.core.clock import Clock

T = TypeVar("T")

RESTS = 9
"""A value is not read again for this many times as long as it took: workers need the store, too."""

WAIT_S = 0.1
"""How long a page waits for a value, in seconds."""


class Kept(Generic[T]):
    """A value that is kept for some time. Threads may share it.

    Args:
        read: Reads the value.
        max_age_us: Age in microseconds after which it is read again.
        clock: This machine's clock.
    """

    def __init__(self, read: Callable[[], T], max_age_us: int, clock: Clock) -> None:
        self._read = read
        self._max_age_us = max_age_us
        self._clock = clock
        self._lock = threading.Lock()
        self._known: Future[T] | None = None
        self._reading: Future[T] | None = None
        self._next_us = 0

    def get(self) -> T | None:
        """Return the value; one that is older while it is read again, None while it is read first.

        Raises:
            DuelineError: It could not be read; the next call tries again.
        """
        with self._lock:
            if self._reading is None and (
                self._known is None or self._clock.monotonic_us() >= self._next_us
            ):
                self._reading = Future()
                thread = threading.Thread(target=self._run, args=(self._reading,), daemon=True)
                thread.start()
            reading = self._reading
        if reading is not None:
            try:
                return reading.result(timeout=WAIT_S)
            except TimeoutError:
                pass
        return None if self._known is None else self._known.result()

    def _run(self, future: "Future[T]") -> None:
        began_us = self._clock.monotonic_us()
        value: T | None = None
        failure: BaseException | None = None
        try:
            value = self._read()
        except BaseException as error:  # noqa: BLE001  (raised where the page waits)
            failure = error
        ended_us = self._clock.monotonic_us()
        with self._lock:
            self._known, self._reading = None if failure else future, None
            self._next_us = ended_us + max(self._max_age_us, RESTS * (ended_us - began_us))
        if failure is None:
            future.set_result(cast("T", value))
        else:
            future.set_exception(failure)
