"""Sessions that were ended before their time.

A session is a signed time, so it needs no record. A log-out stores one, until that time: the
session has ended in every process that shows the store, also after a restart.
"""

import hashlib
from collections.abc import Callable
from typing import Final

from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.pagination import record_at
from dueline.core.store import Put

PARTITION: Final = "ended-sessions"


class EndedSessions:
    """The sessions that were ended by a log-out.

    Args:
        engine: Returns the store.
    """

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine

    def has(self, session: str) -> bool:
        """Return whether a session was ended.

        Raises: StoreUnavailable: nobody knows.
        """
        return record_at(self._engine().store, PARTITION, _key_of(session)) is not None

    def add(self, session: str, until_s: int) -> None:
        """End a session that would end at a time in seconds UTC.

        Raises: StoreUnavailable: it may go on.
        """
        engine = self._engine()
        expires_us = (until_s + 60) * SECOND_US  # the store's clock may be ahead
        put = Put(_key_of(session), engine.ids.token(), b"1", None, expires_us)
        engine.store.commit(PARTITION, (put,))


def _key_of(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()
