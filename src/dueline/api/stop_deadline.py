"""Ends a process whose stop takes too long."""

import os
import sys
import threading
import time
from contextlib import suppress
from typing import Final, NoReturn

GRACE_S: Final = 4.0
"""Time after the drain, or after a second signal, in which a worker ends by itself, in seconds."""

FLUSH_S: Final = 0.5
"""How long the end of a process waits for its output, whose lock a handler may hold."""


class StopDeadline:
    """Ends this process after the drain, whatever hangs: a call to a store, a lock, a thread.

    What is not released then becomes due again when its lease expires, as after SIGKILL.

    Args:
      drain_s: Maximum duration of the drain, in seconds.
    """

    def __init__(self, drain_s: float) -> None:
        self._drain_s = drain_s
        self._is_over = threading.Event()
        self._guard = threading.Lock()
        self._until_s = float("inf")

    def stopped(self, code: int, *, hurry: bool) -> None:
        """Note that the worker was asked to stop, callable from any thread.

        Args:
          code: Exit code of the process if it has to be ended.
          hurry: Jobs are to be released at once.
        """
        until_s = time.monotonic() + GRACE_S + (0.0 if hurry else self._drain_s)
        with self._guard:
            is_first, self._until_s = self._until_s == float("inf"), min(self._until_s, until_s)
        if is_first:
            threading.Thread(
                target=self._watch, args=(code,), name="dueline-deadline", daemon=True
            ).start()

    def over(self) -> None:
        """Note that the worker has ended by itself."""
        self._is_over.set()

    def _watch(self, code: int) -> None:
        while not self._is_over.wait(min(0.1, max(0.0, self._until_s - time.monotonic()))):
            if time.monotonic() >= self._until_s:
                # Not by logging, whose lock another thread may hold.
                os.write(2, b"dueline: the worker did not stop in time; its process ends\n")
                os._exit(code)


def end_process(code: int) -> NoReturn:
    """End this process without waiting for its threads, or for what they hold."""
    flush = threading.Thread(target=_flush, daemon=True)
    flush.start()
    flush.join(FLUSH_S)
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
