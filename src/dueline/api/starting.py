"""Start of what works for a store on a server that may be unavailable now."""

import threading
from collections.abc import Callable
from itertools import count
from typing import Final, TypeVar

from dueline.api.connection import Connection
from dueline.api.service_manager import notify
from dueline.core.errors import StoreMoved, StoreReplaced, StoreUnavailable
from dueline.core.logging import log
from dueline.worker.backoff import BACK_OFF_S

T = TypeVar("T")

START_EXTENDED: Final = "EXTEND_TIMEOUT_USEC=60000000"
"""Has systemd wait for READY=1: an attempt to connect may take half of that."""


def is_awaited(app: Connection, error: StoreUnavailable) -> bool:
    """Return whether a start waits until an error is over: its store is on a server."""
    return not isinstance(error, StoreReplaced | StoreMoved) and app.store.scope == "network"


def started_when_available(
    app: Connection, start: Callable[[], T], is_stopped: threading.Event, *, name: str
) -> T | None:
    """Start something; repeat it while the store's server is unavailable, as after a start.

    A file that cannot be opened is an error at once.

    Args:
      app: The application.
      start: Starts it, and returns it.
      is_stopped: Set when it is not wanted any more.
      name: What is started, for the log.

    Returns:
      What was started; None if it was stopped before.
    """
    shortest_s, longest_s = BACK_OFF_S
    for attempt in count():
        try:
            return start()
        except StoreUnavailable as error:
            if not is_awaited(app, error):
                raise
            log.warning("the %s waits, because the store is unavailable: %s", name, error)
        notify(f"STATUS=The store is unavailable.\n{START_EXTENDED}")
        if is_stopped.wait(min(longest_s, shortest_s * 2 ** min(attempt, 10))):
            break
    return None
