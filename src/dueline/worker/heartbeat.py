"""Keeps claims alive, says who is alive."""

import threading
import time
from collections.abc import Callable

from dueline.core.errors import DuelineError, StoreReplaced
from dueline.core.logging import log

BEATS_A_LEASE = 3

BETWEEN_S = 0.5
"""How often the thread looks after what is not as old as a beat: progress, wishes."""


class Beat:
    """A thread of its own, so that no handler and no slow claim keeps it from beating.

    In a process whose handlers hold the interpreter lock longer than two thirds of a lease it
    cannot beat either: such handlers belong into child processes (`processes=`).
    """

    def __init__(
        self,
        beat: Callable[[], int],
        between: Callable[[], object] = lambda: None,
        *,
        wakeup: threading.Event,
    ) -> None:
        """Take what one beat does, and what is done between beats.

        Args:
          beat: answers the shortest lease now held, in microseconds.
          wakeup: set when something has ended the beat, so that nobody waits on without it.
        """
        self._beat = beat
        self._between = between
        self._wakeup = wakeup
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
        every_s = wait_s = 0.0
        due_s = time.monotonic()
        while not self._stop.wait(wait_s):
            try:
                if time.monotonic() >= due_s:
                    every_s = self._beat() / BEATS_A_LEASE / 1e6
                    due_s = time.monotonic() + every_s
            except StoreReplaced as error:  # no later beat can succeed
                self._fail(error)
                return
            except DuelineError as error:
                log.warning("a beat failed: %s", error)
                due_s = time.monotonic() + (min(every_s, 1.0) or 0.1)
            except BaseException as error:  # noqa: BLE001  (the worker's own thread raises it)
                self._fail(error)
                return
            self._do_between()
            wait_s = max(0.0, min(due_s - time.monotonic(), BETWEEN_S))

    def _do_between(self) -> None:
        try:
            self._between()
        except DuelineError as error:  # it is done again soon, and beats say it louder
            log.info("progress or wishes have to wait: %s", error)
        except BaseException as error:  # noqa: BLE001  (see above)
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Beat no more, and let the worker, who may be waiting, see why."""
        self._failure = error
        self._stop.set()
        self._wakeup.set()
