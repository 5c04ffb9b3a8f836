"""Raises an exception in another thread, where it harms nothing; see `safe_points`.

CPython raises an asynchronous exception at the next instruction that lets other threads run: also
just after `acquire` took a lock. So it is not sent before the thread is at a safe point. From
Python 3.12 on, `sys.monitoring` calls back in the thread itself, at each safe point of the code
that it runs. Python 3.11 has none of this, see `_Tracing`.
"""

import ctypes
import gc
import inspect
import sys
import threading
import time
from collections.abc import Callable, Container
from functools import partial
from itertools import compress, islice, starmap
from operator import attrgetter, is_, itemgetter
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple, Protocol

from dueline.worker.safe_points import (
    is_application,
    is_clean,
    is_harmless_call,
    loops_of,
    points_of,
)

AGAIN_AFTER_S: Final = 1.0
"""How long after an exception the next one is raised, if code goes on nevertheless."""

LOOKS_MAX: Final = 5
"""Maximum number of times that Python 3.11 looks at a thread in a row."""

LOOK_EVERY_S: Final = 0.001

COLLECT_FOR_S: Final = 0.003
"""How long Python 3.11 lets threads collect garbage at once."""

COLLECT_AT_ONCE: Final = (1, 1_000_000, 1_000_000)
"""Thresholds with which Python 3.11 collects young objects, at nearly every new one."""


class Strike(NamedTuple):
    """What is raised in a thread.

    error: the class. package: top-level package of the handler. raised: notes that it is raised.
    is_due: returns whether enough time has passed since.
    """

    error: type[BaseException]
    package: str
    raised: Callable[[], object]
    is_due: Callable[[], bool]


class _Way(Protocol):
    """A way to raise exceptions in threads."""

    def strike(self, thread: int, strike: Strike) -> None:
        """Raise an exception at a safe point of a thread, once, soon or later."""
        ...

    def release(self, thread: int) -> None:
        """Raise nothing in the thread that calls this any more."""
        ...


class Interrupt:
    """Lets one thread raise an exception in another while that is inside of something.

    Attributes:
      inside: What the thread is in now; None between.
    """

    __slots__ = ("_guard", "_is_struck", "_raised_s", "_thread", "inside")

    def __init__(self) -> None:
        self.inside: object | None = None
        self._thread = 0
        self._guard = threading.Lock()
        self._is_struck = False
        self._raised_s = -AGAIN_AFTER_S

    def send(self, inside: object, error: type[BaseException], package: str) -> None:
        """Raise an exception in the thread at its next safe point, if it is still inside of this.

        It may never come to one, so call this repeatedly. If the code goes on after it was raised,
        it is raised again after AGAIN_AFTER_S.
        """
        with self._guard:
            if self.inside is inside and self._is_due():
                self._is_struck = True
                WAY.strike(self._thread, Strike(error, package, self._note, self._is_due))

    def _is_due(self) -> bool:
        return time.monotonic() - self._raised_s >= AGAIN_AFTER_S

    def _note(self) -> None:
        self._raised_s = time.monotonic()

    def enter(self, inside: object) -> None:
        """Enter something: from now on this thread may be interrupted."""
        self._thread = threading.get_ident()
        self._raised_s = -AGAIN_AFTER_S
        self.inside = inside

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

    def strike(self, thread: int, strike: Strike) -> None:
        with self._guard:
            if not self._has_tool():
                return
            self._struck[thread] = strike
            innermost = sys._current_frames().get(thread)  # noqa: SLF001  (public, but for its name)
            for frame in loops_of(innermost, strike.package):
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

    def release(self, thread: int) -> None:
        with self._guard:
            self._struck.pop(thread, None)
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
        if strike is not None:
            frame = sys._getframe(1)  # noqa: SLF001  (public, but for its name)
            if is_clean(frame, strike.package):
                self._struck.pop(thread, None)
                strike.raised()
                raise strike.error
        return None


class _Tracing:
    """Traces a thread from inside, and looks at it from outside (Python 3.11).

    A thread that creates objects is made to collect garbage, and so calls back: it begins to trace
    the application's functions, until one is at a safe point. A thread that only computes or sleeps
    is sent an asynchronous exception while it is seen at a safe point, or in a call that takes
    nothing which must be released; see `_send`.
    """

    def __init__(self) -> None:
        self._struck: dict[int, Strike] = {}
        self._traced: set[int] = set()

    def strike(self, thread: int, strike: Strike) -> None:
        if thread in self._traced or self._look(thread, strike):
            return
        self._struck[thread] = strike
        if self._begin not in gc.callbacks:
            gc.callbacks.append(self._begin)
        self._collect()

    def release(self, thread: int) -> None:
        self._struck.pop(thread, None)
        if thread in self._traced:
            self._traced.discard(thread)
            sys.settrace(None)
        # An exception that was sent has been raised, since the code went on at a safe point.

    def _collect(self) -> None:
        """Let threads collect garbage at once for a moment, and so call back."""
        thresholds = gc.get_threshold()
        gc.set_threshold(*COLLECT_AT_ONCE)
        time.sleep(COLLECT_FOR_S)
        if gc.get_threshold() == COLLECT_AT_ONCE:
            gc.set_threshold(*thresholds)

    def _begin(self, _phase: str, _found: object) -> None:
        """Begin to trace this thread if it is to be interrupted."""
        strike = self._struck.pop(threading.get_ident(), None) if self._struck else None
        if strike is not None:
            self._trace(strike)

    def _trace(self, strike: Strike) -> None:
        """Trace this thread until it is at a safe point, unless something else traces it."""
        thread = threading.get_ident()
        if sys.gettrace() is not None:
            return

        def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401
            if event == "call":
                return watch(frame)
            is_turn = frame.f_lasti in points_of(frame.f_code).turns
            if is_turn and strike.is_due() and is_clean(frame, strike.package):
                self._traced.discard(thread)
                strike.raised()
                raise strike.error
            return trace

        def watch(frame: FrameType) -> Any:  # noqa: ANN401  (`trace` or None)
            if not is_application(frame, strike.package) or not points_of(frame.f_code).turns:
                return None
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
            return trace

        self._traced.add(thread)
        interrupted = sys._getframe(2)  # noqa: SLF001  (that of the caller's caller)
        for frame in loops_of(interrupted, strike.package):
            frame.f_trace = watch(frame)
        sys.settrace(trace)

    def _look(self, thread: int, strike: Strike) -> bool:
        """Send the exception if the thread is at a safe point; return whether it was."""
        for look in range(LOOKS_MAX):
            if look:
                time.sleep(LOOK_EVERY_S)
            top = sys._current_frames().get(thread)  # noqa: SLF001  (public, but for its name)
            if top is None:
                return False
            offset = top.f_lasti
            if next(loops_of(top, strike.package), None) is not top:
                continue
            if top.f_code.co_flags & inspect.CO_GENERATOR:  # others may call it before it is sent
                continue
            if not is_clean(top, strike.package):
                continue
            is_call = is_harmless_call(top, offset)
            places = {offset} if is_call else points_of(top.f_code).turns
            if offset in places and self._send(thread, self._armed(strike), top, places):
                self._struck.pop(thread, None)
                strike.raised()
                return True
        return False

    def _armed(self, strike: Strike) -> type[BaseException]:
        """Return a class whose instance, made where it is raised, begins to trace the thread.

        For it may be raised in `time.sleep` in a `try`, and be caught there each time.
        """
        error, trace = strike.error, self._trace

        def __init__(raised: BaseException, *_: object) -> None:  # noqa: N807
            error.__init__(raised)  # a debugger makes the interpreter pass a value
            raised.__class__ = error
            trace(strike)

        return type(error.__name__, (error,), {"__init__": __init__})

    def _send(
        self, thread: int, error: type[BaseException], top: object, places: Container[int]
    ) -> bool:
        """Send an exception if a thread is at one of some places; return whether it was.

        A thread that waits there to run again raises at this very instruction: at a backward jump,
        or at the end of `time.sleep`. Between the look and the exception it must not run: both are
        one call into C that neither lets other threads run nor collects garbage.
        """
        now = map(itemgetter(thread), islice(iter(sys._current_frames, None), 1))  # noqa: SLF001
        at = map(attrgetter("f_lasti"), filter(partial(is_, top), now))
        arguments = [(ctypes.c_ulong(thread), ctypes.py_object(error))]
        sent = starmap(_set_async_exc, compress(arguments, map(places.__contains__, at)))
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            return bool(next(sent, 0))
        except KeyError:  # the thread has ended
            return False
        finally:
            if is_collecting:
                gc.enable()


_set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc

WAY: Final[_Way] = _Monitoring() if hasattr(sys, "monitoring") else _Tracing()
