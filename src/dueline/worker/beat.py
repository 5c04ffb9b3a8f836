"""Keeps claims alive, says who is alive."""

import threading
from collections.abc import Callable

from dueline.errors import DuelineError
from dueline.worker.log import log

BEATS_A_LEASE = 3


class Beat:
    """A thread of its own, so that no handler and no slow claim keeps it from beating.

    In a process whose handlers hold the interpreter lock longer than two thirds of a lease it
    cannot beat either: such handlers belong into child processes (`processes=`).
    """

    def __init__(self, beat: Callable[[], int]) -> None:
        """Take what one beat does; it answers the shortest lease now held, in microseconds."""
        self._beat = beat
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name="dueline-beat", daemon=True)

    def start(self) -> None:
        """Start beating."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the beat that is under way."""
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise what ended the beat, if something has: a worker without one cannot go on."""
        if self._failure is not None:
            raise self._failure

    def _loop(self) -> None:
        wait_s = 0.0
        while not self._stop.wait(wait_s):
            try:
                wait_s = self._beat() / BEATS_A_LEASE / 1e6
            except DuelineError as error:
                log.warning("a beat failed: %s", error)
                wait_s = min(wait_s, 1.0) or 0.1
            except BaseException as error:  # noqa: BLE001  (the worker's own thread raises it)
                self._failure = error
                return
