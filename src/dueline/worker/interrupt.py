"""Raises an exception in another thread, where it harms nothing; see `safe_points`.

CPython raises an asynchronous exception at the next instruction that lets other threads run: also
just after `acquire` took a lock. So none is sent. The thread calls back at each safe point of the
code that it runs, and raises the exception itself: by `sys.monitoring` from Python 3.12 on, and by
tracing on Python 3.11.
"""

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, NoReturn, Protocol

from dueline.worker.safe_points import frames_of, is_application, is_clean, loops_of, points_of

AGAIN_AFTER_S: Final = 1.0
"""How long after an exception the next one is raised, if code goes on nevertheless."""


class Strike:
    """An exception that is to be raised in a thread.

    Attributes:
      error: Its class.
      package: Top-level package of the handler.
      places: Where it was raised. A strike that ends at the first place has none.
    """

    __slots__ = ("_raised", "error", "package", "places")

    def __init__(
        self, error: type[BaseException], package: str, raised: Callable[[], object], *, again: bool
    ) -> None:
        self.error = error
        self.package = package
        self.places: set[tuple[CodeType, int]] | None = set() if again else None
        self._raised = raised

    def hits(self, frame: FrameType) -> bool:
        """Return whether to raise at a frame's instruction, and note that it is raised."""
        place = (frame.f_code, frame.f_lasti)
        if place[1] not in points_of(frame.f_code).turns or not is_clean(frame, self.package):
            return False
        if self.places is not None:
            if place in self.places:
                return False
            self.places.add(place)
        self._raised()
        return True


class _Thread(NamedTuple):
    """A thread of this process.

    id: its identifier. state: address of the interpreter's data of it; None if not needed.
    tracer, profiler: functions of a debugger and a profiler, when it first called a handler.
    """

    id: int
    state: int | None = None
    tracer: Any = None
    profiler: Any = None


class _Way(Protocol):
    """A way to raise exceptions in threads."""

    def here(self) -> _Thread:
        """Return the thread that calls this; `_HERE` keeps it."""
        ...

    def strike(self, thread: _Thread, strike: Strike, frames: Iterable[FrameType]) -> None:
        """Raise an exception at a safe point of a thread, soon or later.

        Args:
            thread: The thread.
            strike: The exception.
            frames: What the thread runs next, besides what it runs now.
        """
        ...

    def release(self, thread: _Thread) -> None:
        """Raise nothing more in this thread, which calls this."""
        ...


class Interrupt:
    """Lets one thread raise an exception in another while that is inside of something.

    Attributes:
      inside: What the thread is in now; None between.
    """

    __slots__ = ("_guard", "_is_struck", "_raised_s", "_thread", "inside")

    def __init__(self) -> None:
        self.inside: object | None = None
        self._thread = _Thread(0)
        self._guard = threading.Lock()
        self._is_struck = False
        self._raised_s: float | None = None

    def send(self, inside: object, error: type[BaseException], package: str) -> None:
        """Raise an exception in the thread at its next safe point, if it is still inside of this.

        It may never come to one, so call this repeatedly. If the code goes on after it was raised,
        it is raised again after AGAIN_AFTER_S, and then in each loop that the code gets to: what
        swallows it may stand between two loops.
        """
        with self._guard:
            if self.inside is not inside:
                return
            raised_s = self._raised_s
            if raised_s is None or time.monotonic() - raised_s >= AGAIN_AFTER_S:
                self._is_struck = True
                strike = Strike(error, package, self._note, again=raised_s is not None)
                WAY.strike(self._thread, strike, ())

    def _note(self) -> None:
        self._raised_s = time.monotonic()

    def enter(self, inside: object) -> None:
        """Enter something: from now on this thread may be interrupted."""
        self._thread = _HERE.thread
        self._raised_s = None
        self.inside = inside

    def expect(self, error: type[BaseException], package: str, coroutine: object) -> None:
        """Raise an exception in this thread, which has entered, in each loop of a coroutine.

        That is resumed next, and has caught this exception or its cancellation before.
        """
        with self._guard:
            self._is_struck = True
            strike = Strike(error, package, self._note, again=True)
            WAY.strike(self._thread, strike, frames_of(coroutine))

    def leave(self) -> None:
        """Leave it; no exception is raised in later code."""
        with self._guard:
            self.inside = None
            if self._is_struck:
                self._is_struck = False
                WAY.release(self._thread)


class _Monitoring:
    """Calls back at safe points of the code that runs in a thread (Python 3.12 or later)."""

    def __init__(self) -> None:
        self._monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        self._tool: int | None = None
        self._guard = threading.Lock()
        self._struck: dict[int, Strike] = {}
        self._codes: dict[CodeType, None] = {}

    def here(self) -> _Thread:
        return _Thread(threading.get_ident())

    def strike(self, thread: _Thread, strike: Strike, frames: Iterable[FrameType]) -> None:
        with self._guard:
            if not self._has_tool():
                return
            self._struck[thread.id] = strike
            innermost = sys._current_frames().get(thread.id)  # noqa: SLF001  (public, but for its name)
            for frame in (*loops_of(innermost, strike.package), *frames):
                code = frame.f_code
                if code not in self._codes and points_of(code).turns:
                    self._codes[code] = None
                    events = self._monitoring.events.INSTRUCTION
                    self._monitoring.set_local_events(self._tool, code, events)

    def _has_tool(self) -> bool:
        """Take one of the two tools without a meaning of their own, if it is free."""
        for number in () if self._tool is not None else (4, 3):
            try:
                self._monitoring.use_tool_id(number, "dueline")
            except ValueError:
                continue
            self._tool = number
            events = self._monitoring.events.INSTRUCTION
            self._monitoring.register_callback(number, events, self._at)
            break
        return self._tool is not None

    def release(self, thread: _Thread) -> None:
        with self._guard:
            self._struck.pop(thread.id, None)
            if self._struck or self._tool is None:
                return
            for code in self._codes:
                self._monitoring.set_local_events(self._tool, code, 0)
            self._codes.clear()
            self._monitoring.free_tool_id(self._tool)
            self._tool = None

    def _at(self, code: CodeType, offset: int) -> object:
        """Raise in this thread, if it is the one and this is a safe point."""
        if offset not in points_of(code).turns:
            return self._monitoring.DISABLE
        thread = threading.get_ident()
        strike = self._struck.get(thread)
        if strike is not None and strike.hits(sys._getframe(1)):  # noqa: SLF001  (public)
            if strike.places is None:
                self._struck.pop(thread, None)
            raise strike.error
        return None


class _Tracing:
    """Traces a thread, as a debugger does that attaches to it (Python 3.11).

    The interpreter calls back in the thread itself before the next line of any code. From there on
    the application's functions are traced, until one is at a safe point. A debugger's own function
    is put back at the end of the handler.
    """

    def __init__(self) -> None:
        pointer, api = ctypes.c_void_p, ctypes.pythonapi
        self._state = api.PyThreadState_Get
        self._state.restype = pointer
        self._set_trace = api._PyEval_SetTrace  # noqa: SLF001  (what 3.12 made public)
        self._set_trace.argtypes = [pointer, pointer, pointer]
        function = ctypes.PYFUNCTYPE(ctypes.c_int, pointer, pointer, ctypes.c_int, pointer)
        self._callback = function(self._begin)
        self._struck: dict[int, Strike] = {}

    def here(self) -> _Thread:
        number = threading.get_ident()
        return _Thread(number, self._state(), sys.gettrace(), sys.getprofile())

    def strike(self, thread: _Thread, strike: Strike, frames: Iterable[FrameType]) -> None:
        del frames  # their functions are called in the thread, so they will be traced
        if thread.id not in self._struck or strike.places is not None:
            self._struck[thread.id] = strike
        # The handler itself may have ended the tracing since the last time.
        self._set_trace(thread.state, ctypes.cast(self._callback, ctypes.c_void_p), None)

    def release(self, thread: _Thread) -> None:
        self._struck.pop(thread.id, None)
        sys.settrace(thread.tracer)
        sys.setprofile(thread.profiler)

    def _begin(self, *_: object) -> int:
        self.trace_from(sys._getframe(1))  # noqa: SLF001  (public, but for its name)
        return 0

    def trace_from(self, innermost: FrameType, *_: object) -> None:
        """Trace the functions that this thread runs, and those that it will call."""
        strike = self._struck.get(threading.get_ident())
        if strike is not None:
            trace = partial(self._trace, strike)
            for frame in loops_of(innermost, strike.package):
                frame.f_trace = trace(frame, "call", None)
            sys.settrace(trace)
            sys.setprofile(_HERE.thread.profiler)

    def _trace(self, strike: Strike, frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401
        """Raise in this thread at a safe point; return what traces the frame."""
        thread = threading.get_ident()
        if self._struck.get(thread) is not strike:
            return None
        if event == "call":
            turns = points_of(frame.f_code).turns
            if not turns or not is_application(frame, strike.package):
                return None
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
            return partial(self._trace, strike)
        if strike.hits(frame):
            if strike.places is None:
                del self._struck[thread]
                raise strike.error  # which ends the tracing
            self._raise_and_go_on(strike.error)
        return frame.f_trace

    def _raise_and_go_on(self, error: type[BaseException]) -> NoReturn:
        """Raise, which ends the tracing, and begin it anew if the code goes on.

        Then it returns from a function or calls one, or else it drops the exception.
        """
        sys.setprofile(self.trace_from)
        raised = error()
        raised.dropped = _Dropped(self)  # type: ignore[attr-defined]
        try:
            raise raised
        finally:
            del raised  # the traceback refers to this frame


class _Dropped:
    """Part of an exception that ends with it."""

    __slots__ = ("_tracing",)

    def __init__(self, tracing: _Tracing) -> None:
        self._tracing = tracing

    def __del__(self) -> None:
        self._tracing.trace_from(sys._getframe(1))  # noqa: SLF001  (public, but for its name)


WAY: Final[_Way] = _Monitoring() if hasattr(sys, "monitoring") else _Tracing()


class _Here(threading.local):
    """The thread that asks, described when it first asks."""

    def __init__(self) -> None:
        self.thread = WAY.here()


_HERE: Final = _Here()
