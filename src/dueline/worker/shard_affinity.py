"""Which shards of a queue a worker polls."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from dueline.coordination.worker_registry import NO_TASKS, KnownTasks, Presence, present
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.jobs.lane_planner import Prospect

WHOLE_EVERY_US: Final = 2 * SECOND_US
"""Interval at which a worker polls all shards, whatever other workers report."""

FRESH_SHARE: Final = 2
"""A heartbeat is sent every third of a lease; one that is older than half of it is stale."""

Place = tuple[str, int, int]
"""A queue, a shard, the width of its buckets."""


class Known(NamedTuple):
    """A live worker. has_room: whether it could take another job when it last reported."""

    worker: str
    has_room: bool


class ShardAffinity:
    """One worker's share of the shards that several workers serve.

    Each shard has one worker that prefers it. On stores where each poll is a round trip and claims
    of one lane contend, this saves the other workers both. While that worker has no free slot, the
    next one helps. Workers without some of its tasks are not counted: they leave those jobs.

    Args:
      engine: The engine.
      worker: The worker's id.
      known: The tasks that it knows.
      is_strict: It leaves the jobs of other workers' shards to them; otherwise it only claims them
        after those of its own.

    Attributes:
      others: Shards that other workers prefer, as `(queue, shard)`.
    """

    def __init__(
        self, engine: Engine, worker: str, known: KnownTasks = NO_TASKS, *, is_strict: bool = True
    ) -> None:
        self._knows = known
        self._is_strict = is_strict
        self.others: frozenset[tuple[str, int]] = frozenset()
        self._engine = engine
        self._worker = worker
        self._whole_us: int | None = None
        self._has_found = True

    def chosen(self, places: Sequence[Place]) -> Sequence[Place]:
        """Return the shards to poll now; at intervals, all of them.

        Unless it is strict, it only reads which workers there are if there were jobs to claim since
        the last call: an idle worker makes one read less.
        """
        if not (self._is_strict or self._has_found):
            return places
        self._has_found = False
        now_us = self._engine.time.earliest_us()
        workers = present(self._engine.store)
        shards = Counter(queue for queue, _, _ in places)
        mine = {queue: self._mine(queue, shards[queue], workers, now_us) for queue in shards}
        self.others = frozenset((queue, n) for queue, n, _ in places if n not in mine[queue])
        if self._whole_us is None or not 0 <= now_us - self._whole_us < WHOLE_EVERY_US:
            self._whole_us = now_us
            return places
        if not self._is_strict:
            return places
        return [place for place in places if place[:2] not in self.others]

    def is_left(self, queue: str, shard: int) -> bool:
        """Return whether a shard's jobs are left to another worker."""
        return self._is_strict and (queue, shard) in self.others

    def preferred(self, prospects: list[Prospect]) -> list[Prospect]:
        """Return what to claim first: the lanes of its own shards, if no other is more urgent.

        Workers with a backlog do not meet in one lane then.
        """
        if self._is_strict or not prospects:
            return prospects
        self._has_found = True
        own = [prospect for prospect in prospects if prospect.lane[:2] not in self.others]
        top = max(prospect.priority for prospect in prospects)
        return own if any(prospect.priority == top for prospect in own) else prospects

    def _mine(
        self, queue: str, shards: int, workers: Sequence[Presence], now_us: int
    ) -> Collection[int]:
        fresh = fresh_workers(self._engine, workers, queue, self._knows, now_us, me=self._worker)
        return preferred_shards(self._worker, queue, shards, fresh)


def fresh_workers(
    engine: Engine,
    workers: Sequence[Presence],
    queue: str,
    known: KnownTasks,
    now_us: int,
    *,
    me: str = "",
) -> tuple[Known, ...]:
    """Return the live workers of a queue that know all of these tasks, and have said so lately.

    me: A worker that is among them whenever it did.
    """
    oldest_us = now_us - engine.catalog.settings(queue).lease_us // FRESH_SHARE
    return tuple(
        Known(worker.worker, worker.held < worker.slots and worker.is_claiming)
        for worker in workers
        if queue in worker.queues
        and (worker.beat_us >= oldest_us or worker.worker == me)
        and worker.known.includes(known)
    )


def affinity_of(engine: Engine, worker: str, known: KnownTasks) -> ShardAffinity | None:
    """Return a worker's affinity; None on stores of one machine, where polls are cheap.

    Stores with transactions read all lanes in one round trip, and skip rows that another worker is
    claiming. There a job does not wait for the worker of its shard while others are idle.
    """
    if engine.store.scope != "network":
        return None
    return ShardAffinity(engine, worker, known, is_strict=not engine.store.transactional)


@lru_cache(maxsize=64)
def preferred_shards(me: str, queue: str, shards: int, living: tuple[Known, ...]) -> frozenset[int]:
    """Return the shards of a queue that a worker polls.

    These are its own, and those of workers without room for which it is the next with room. A
    worker that is not registered yet polls all of them.
    """
    if me not in {known.worker for known in living}:
        return frozenset(range(shards))
    room = {known.worker: known.has_room for known in living}
    most = -(-shards // len(living))  # shares are even
    owned = dict.fromkeys(room, 0)
    mine = set()
    for shard in range(shards):
        ranks = _ranked(queue, shard, room)
        home = next(rank for rank in ranks if owned[rank] < most)
        owned[home] += 1
        helper = home if room[home] else next((rank for rank in ranks if room[rank]), home)
        if me in (home, helper):
            mine.add(shard)
    return frozenset(mine)


def _ranked(queue: str, shard: int, workers: Mapping[str, object]) -> list[str]:
    """Order workers for a shard by a hash of both, the same in every process."""

    def rank(worker: str) -> bytes:
        return blake2b(f"{queue}\0{shard}\0{worker}".encode(), digest_size=8).digest()

    return sorted(workers, key=rank)
