"""Calls of the application's code, which may raise any exception."""

import logging
import signal
import threading
import traceback
from collections.abc import Callable
from typing import Final, NamedTuple, ParamSpec, TypeVar

from dueline.core.text import indented, storable

P = ParamSpec("P")
T = TypeVar("T")

UNREADABLE: Final = "(its text cannot be shown)"


class Raised(NamedTuple):
    """An exception that a call raised."""

    error: BaseException


def contain(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Raised:
    """Call code of the application; return its value, or the exception as `Raised`.

    SystemExit, KeyboardInterrupt, GeneratorExit and asyncio.CancelledError are failures of that
    code like any other: none of them may end a thread that also works for other jobs.

    Raises: KeyboardInterrupt: Ctrl-C was pressed; see `raise_interrupt`.
    """
    try:
        return function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001  (see above)
        raise_interrupt(error)
        return Raised(error)


def raise_interrupt(error: BaseException) -> None:
    """Raise an exception again if it is a Ctrl-C, not raised by the code itself.

    Python turns SIGINT into KeyboardInterrupt in the main thread, while no other handler of the
    signal is set. Workers and consumers set one: what is raised there comes from the application.
    """
    if (
        type(error) is KeyboardInterrupt
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        raise error


def name_of(error: BaseException) -> str:
    """Return the name of an exception's class, which a metaclass cannot hide."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return storable(name)


def text_of(error: object) -> str:
    """Return `str` of a value, also if its `__str__` raises."""
    text = contain(lambda: storable(str(error)))
    return UNREADABLE if isinstance(text, Raised) else text


class Description(NamedTuple):
    """The stored parts of an exception: class name, text and traceback."""

    name: str
    text: str
    traceback: str


def describe(error: BaseException) -> Description:
    """Return the description of an exception, also if its own code raises.

    A metaclass cannot hide the name. What a store cannot keep is escaped.
    """
    name: str = type.__dict__["__name__"].__get__(type(error))
    try:
        text = str(error)
    except BaseException as raised:  # noqa: BLE001  (see `contain`)
        raise_interrupt(raised)
        text = UNREADABLE
    try:
        shown = "".join(traceback.format_exception(error))
    except BaseException as raised:  # noqa: BLE001  (see `contain`)
        raise_interrupt(raised)
        frames = traceback.format_tb(BaseException.__dict__["__traceback__"].__get__(error))
        shown = f"{''.join(frames)}{name}: {UNREADABLE}\n"
    texts = (name, text, shown)
    return Description(*map(storable, texts))


def log_raised(log: logging.Logger, raised: Raised, message: str, *args: object) -> None:
    """Log an exception of the application's code at level ERROR with its traceback."""
    error = raised.error
    # A formatter calls the exception's own code for its text, notes and cause.
    logged = contain(log.error, message, *args, exc_info=(type(error), error, error.__traceback__))
    if isinstance(logged, Raised):
        log.error(f"{message}\n%s", *args, indented(describe(error).traceback))  # noqa: G004
