"""How often an idle worker polls where many workers serve the same queues.

Each worker that is notified of jobs polls every few seconds too, since a notification may be lost.
Any of these polls finds the job, so the workers of a large fleet take turns.
"""

from collections.abc import Collection
from contextlib import suppress
from typing import Final

from dueline.coordination.worker_registry import KnownTasks, present
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import StoreUnavailable
from dueline.core.wakeup import FALLBACK_US, FALLBACK_US_MAX
from dueline.worker.shard_affinity import fresh_workers

TURN_US: Final = 240_000
"""Average time between two polls of any of the idle workers of a large fleet: with 20 workers or
fewer, each polls as often as one alone."""

COUNTED_EVERY_US: Final = 60 * SECOND_US
COUNTED_PER_WORKER_US: Final = 600_000
"""Minimum time between two counts of the workers, for each worker that there is."""


class IdleTurns:
    """The share of one worker in the polls of all idle workers of its queues.

    Args:
      engine: The engine.
      queues: The queues that it serves.
      known: The tasks that it knows.
    """

    def __init__(self, engine: Engine, queues: Collection[str], known: KnownTasks) -> None:
        self._engine = engine
        self._queues = queues
        self._known = known
        self._gap_us = FALLBACK_US
        self._again_us = 0

    def gap_us(self) -> int:
        """Return the maximum time between two polls of this worker; counts the workers at times.

        Where each shard is polled by a worker of its own, nobody else finds its jobs.
        """
        if not self._engine.store.transactional:
            return FALLBACK_US
        now_us = self._engine.clock.monotonic_us()
        if now_us >= self._again_us:
            count = 0
            with suppress(StoreUnavailable):
                count = self._count()
            self._gap_us = min(max(FALLBACK_US, count * TURN_US), FALLBACK_US_MAX)
            self._again_us = now_us + max(COUNTED_EVERY_US, count * COUNTED_PER_WORKER_US)
        return self._gap_us

    def _count(self) -> int:
        """Return how many workers with free slots serve the queue of which there are fewest."""
        engine, now_us = self._engine, self._engine.time.earliest_us()
        workers = present(engine.store)
        return min(
            sum(
                worker.has_room
                for worker in fresh_workers(engine, workers, queue, self._known, now_us)
            )
            for queue in self._queues
        )
