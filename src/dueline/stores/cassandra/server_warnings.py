"""Warnings of servers: one line a minute for each kind, without statements.

Reads beside drained queues cross deleted rows until `gc_grace_seconds` have passed. Servers warn of
each such read, and the driver logs each warning with its statement.
"""

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from cassandra.cluster import Session

from dueline.core.text import one_line

log = logging.getLogger("dueline.cassandra")

EVERY_S: Final = 60.0
"""Minimum time between two lines of one kind, in seconds."""

_SHOWN_MAX: Final = 200
_KINDS_MAX: Final = 20
_OF_A_SERVER: Final = "Server warning: %s"
_STATEMENT: Final = re.compile(r" (for|of) query |; ")
_TOMBSTONES: Final = "tombstone"
_CROSSED: Final = (
    "%d reads crossed more deleted rows than tombstone_warn_threshold. That is usual beside queues "
    "that were drained, and ends after gc_grace_seconds; `dueline doctor` has the numbers."
)


class ServerWarnings:
    """Counts warnings by kind, and logs each kind at most once a minute; thread-safe.

    Args:
        monotonic_s: A clock, in seconds.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._logged_s: dict[str, float] = {}

    def note(self, text: str) -> None:
        """Count a warning; log its kind if that was not logged in the last minute."""
        kind = _TOMBSTONES
        if _TOMBSTONES not in text:
            kind = re.sub(r"\d+", "N", one_line(_STATEMENT.split(text)[0]))[:_SHOWN_MAX]
        now_s = self._monotonic_s()
        with self._lock:
            if kind not in self._counts and len(self._counts) >= _KINDS_MAX:
                kind = "other warnings"
            self._counts[kind] = self._counts.get(kind, 0) + 1
            if now_s - self._logged_s.get(kind, now_s - EVERY_S) < EVERY_S:
                return
            count, self._counts[kind], self._logged_s[kind] = self._counts[kind], 0, now_s
        if kind == _TOMBSTONES:
            log.info(_CROSSED, count)
        else:
            log.warning("A server warns: %s (%d times)", kind, count)


WARNINGS: Final = ServerWarnings(time.monotonic)

_decoding = threading.local()


def _is_foreign(record: logging.LogRecord) -> bool:
    """Count a warning of dueline's own sessions; return whether the driver may log a record."""
    if record.msg != _OF_A_SERVER or not getattr(_decoding, "is_own", False):
        return True
    WARNINGS.note(str(record.args[0] if isinstance(record.args, tuple) else record.args))
    return False


class CountingProtocol(Session.client_protocol_handler):  # type: ignore[misc]  # without types
    """Decodes answers; warnings in them are counted."""

    @classmethod
    def decode_message(cls, *args: Any, **named: Any) -> Any:  # noqa: ANN401  (the driver's)
        """Return a decoded answer."""
        _decoding.is_own = True
        try:
            return super().decode_message(*args, **named)
        finally:
            _decoding.is_own = False


def count_warnings(session: Session) -> None:
    """Count the warnings that a session receives, instead of logging each."""
    session.client_protocol_handler = CountingProtocol
    logging.getLogger("cassandra.protocol").addFilter(_is_foreign)  # once, however often
