"""Raises JobTimeout in another thread."""

import ctypes
import threading

from dueline.core.errors import JobTimeout

ARRIVAL_STEPS_MAX = 10_000
"""An exception that a thread raises in itself arrives within a few steps of the interpreter."""


class Interrupt:
    """Lets one thread raise JobTimeout in another while that is inside of something.

    Attributes:
      inside: What the thread is in now; None between.
    """

    __slots__ = ("_guard", "_is_armed", "_thread", "inside")

    def __init__(self) -> None:
        self.inside: object | None = None
        self._thread = 0
        self._guard = threading.Lock()
        self._is_armed = False

    def send(self, inside: object) -> bool:
        """Raise JobTimeout in the thread if it is still inside of this; return whether it was.

        It is raised between two Python instructions: a call into C that does not return is not
        interrupted.
        """
        with self._guard:
            if self.inside is not inside or self._is_armed:
                return False
            self._is_armed = True
            _raise_in(self._thread)
            return True

    def enter(self, inside: object) -> None:
        """Enter something: from now on this thread may be interrupted."""
        self._thread = threading.get_ident()
        self.inside = inside

    def leave(self) -> None:
        """Leave it, with no JobTimeout pending for later code.

        Whether one was raised is unknown, since the handler may have caught it. So one is raised
        here, in place of a pending one. (Cancelling it would work, too, but CPython 3.11 then keeps
        checking for it: every call is slower, and under a tracer never returns.)
        """
        with self._guard:
            self.inside = None
            is_armed, self._is_armed = self._is_armed, False
        if is_armed:
            try:
                _raise_in(threading.get_ident())
                for _ in range(ARRIVAL_STEPS_MAX):
                    pass
            except JobTimeout:
                return


def _raise_in(thread: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(JobTimeout))
