"""Signal handlers that a process sets for itself alone.

A process that is forked gets back what handled the signals before. A program that is executed gets
the default, since the kernel resets handlers. It would keep `SIG_IGN`, so that is never set here.
"""

import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Final

from dueline.core.system import at_fork

Handler = Callable[[int, FrameType | None], object]
Former = Callable[[int, FrameType | None], object] | int | None

_former: Final[dict[tuple[int, Handler], Former]] = {}
"""What handled a signal before a handler of `set_handlers`."""


def signals_to_stop() -> list[int]:
    """Return SIGTERM, SIGINT, and SIGHUP unless that is ignored, as after `nohup`."""
    hang_ups: list[int] = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []  # Windows has none
    stops = [number for number in hang_ups if signal.getsignal(number) is not signal.SIG_IGN]
    return [signal.SIGTERM, signal.SIGINT, *stops]


def set_handlers(numbers: Iterable[int], handler: Handler) -> None:
    """Handle signals in this process, but not in those that it starts.

    Only the main thread can do so.
    """
    for number in numbers:
        _former[number, handler] = signal.getsignal(number)
        signal.signal(number, handler)


def reset_handlers(handler: Handler) -> None:
    """Restore what handled signals before a handler, where it still does."""
    for number, own in [*_former]:
        if own is handler:
            former = _former.pop((number, own))
            if signal.getsignal(number) is handler:
                signal.signal(number, signal.SIG_DFL if former is None else former)


class _Mask(threading.local):
    """The signal mask of a thread that forks.

    A signal that reached the new process with the handlers of this one would be lost.
    """

    saved: Iterable[int] | None = None


_mask: Final = _Mask()


def _block() -> None:
    if _former:
        numbers = {number for number, _ in _former}
        _mask.saved = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)


def _unblock() -> None:
    if _mask.saved is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _mask.saved)
        _mask.saved = None


def _reset_all() -> None:
    if _former:
        signal.set_wakeup_fd(-1)  # the parent would receive signals of this process
    for number in {number for number, _ in _former}:
        current = former = signal.getsignal(number)
        while callable(former) and (number, former) in _former:
            former = _former[number, former]
        if former is not current:
            signal.signal(number, signal.SIG_DFL if former is None else former)
    _former.clear()
    _unblock()


at_fork(before=_block, after_in_parent=_unblock, after_in_child=_reset_all)
