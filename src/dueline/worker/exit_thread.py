"""A thread that finishes what must be done before its process exits."""

import atexit
import threading
from collections.abc import Callable
from typing import Final

EXIT_WAIT_S: Final = 5.0
"""How long the exit of a process waits for such a thread."""


class ExitThread:
    """A daemon thread that is asked to end when the process exits, and waited for.

    Args:
      work: What it does.
      hurry: Asks it to end soon; callable from any thread.
      name: Its name.
    """

    def __init__(
        self, work: Callable[[], object], hurry: Callable[[], object], *, name: str
    ) -> None:
        self._work = work
        self._hurry = hurry
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start it."""
        atexit.register(self._exit)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        finally:
            atexit.unregister(self._exit)

    def _exit(self) -> None:
        self._hurry()
        self._thread.join(EXIT_WAIT_S)
