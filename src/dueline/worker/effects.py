"""Writes the effects of decided outcomes."""

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from dueline.core.store import Store
from dueline.jobs import decisions
from dueline.jobs.decisions import Decision

AHEAD_MAX: Final = 2
"""Maximum number of groups of endings whose effects are under way: one is written, one waits."""

WAITING_MAX: Final = 1000
"""Maximum number of endings in a group that waits; later ones join it."""


class Effects:
    """Writes effects at once, or next to the worker's loop where each write is a round trip.

    Once an outcome is stored, nothing depends on when its effects are: a reader of the job finds
    the outcome in its row. Ends that others may wait for are an exception.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._under_way: deque[Future[None]] = deque()
        self._thread: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._waiting: list[Decision] = []

    def write(self, decided: Sequence[Decision]) -> None:
        """Write the effects of outcomes, or let the thread do it."""
        if self._store.scope != "network":
            decisions.carry(self._store, decided)
            return
        decisions.carry(self._store, [end for end in decided if end.is_awaited])
        later = [end for end in decided if not end.is_awaited]
        if not later:
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="dueline-effects")
        with self._lock:
            self._waiting += later
            waiting = len(self._waiting)
        while self._under_way and self._under_way[0].done():
            self._finish(len(self._under_way) - 1)
        if waiting > WAITING_MAX:
            self._finish(AHEAD_MAX - 1)
        if len(self._under_way) < AHEAD_MAX:  # otherwise the last one has not begun
            self._under_way.append(self._thread.submit(self._write_waiting))

    def close(self) -> None:
        """Wait for the effects that are under way."""
        self._finish(0)
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _write_waiting(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        decisions.carry(self._store, waiting)

    def _finish(self, most: int) -> None:
        """Wait until at most this many groups are under way; raise what made one fail."""
        while len(self._under_way) > most:
            self._under_way.popleft().result()
