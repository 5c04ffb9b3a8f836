"""Which shards a worker looks at."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from dueline.coordination.worker_registry import Presence, present
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine

WHOLE_EVERY_US: Final = 2 * SECOND_US
"""A worker looks at all shards this often, whoever prefers them: correctness rests on nothing
that workers say of themselves."""

FRESH_SHARE: Final = 2
"""A beat is a third of a lease; one that is older than half of it is stale."""

Place = tuple[str, int, int]
"""A queue, a shard, the width of its buckets."""


class Known(NamedTuple):
    """A worker that lives. has_room: for another job, when it last said so."""

    worker: str
    has_room: bool


class ShardAffinity:
    """One worker's part of the shards that several share.

    Each shard has one worker that prefers it: where each look is a round trip and claims of one
    lane contend, that saves the others both. While that worker has no room the next one helps.
    others: shards that the others see to, as `(queue, shard)`.
    """

    def __init__(self, engine: Engine, worker: str) -> None:
        self.others: frozenset[tuple[str, int]] = frozenset()
        self._engine = engine
        self._worker = worker
        self._whole_us: int | None = None

    def chosen(self, places: Sequence[Place]) -> Sequence[Place]:
        """Leave out the shards that are others' to look at, now and then none."""
        now_us = self._engine.time.earliest_us()
        some = present(self._engine.store)
        shards = Counter(queue for queue, _, _ in places)
        mine = {queue: self._mine(queue, shards[queue], some, now_us) for queue in shards}
        self.others = frozenset((queue, n) for queue, n, _ in places if n not in mine[queue])
        if self._whole_us is None or not 0 <= now_us - self._whole_us < WHOLE_EVERY_US:
            self._whole_us = now_us
            return places
        return [place for place in places if place[:2] not in self.others]

    def _mine(
        self, queue: str, shards: int, some: Sequence[Presence], now_us: int
    ) -> Collection[int]:
        oldest_us = now_us - self._engine.catalog.settings(queue).lease_us // FRESH_SHARE
        fresh = tuple(
            Known(one.worker, one.held < one.slots)
            for one in some
            if queue in one.queues and (one.beat_us >= oldest_us or one.worker == self._worker)
        )
        return preferred_shards(self._worker, queue, shards, fresh)


def affinity_of(engine: Engine, worker: str) -> ShardAffinity | None:
    """Make a worker's affinity where it pays: not where a look costs nothing, or wakes are told."""
    return ShardAffinity(engine, worker) if engine.store.scope == "network" else None


@lru_cache(maxsize=64)
def preferred_shards(me: str, queue: str, shards: int, living: tuple[Known, ...]) -> frozenset[int]:
    """Tell which shards of a queue one of the workers that live looks at.

    Its own, and those of workers without room for which it is the next that has some; all of
    them where it is not known to live yet.
    """
    if me not in {one.worker for one in living}:
        return frozenset(range(shards))
    room = {one.worker: one.has_room for one in living}
    most = -(-shards // len(living))  # nobody has many more than others
    owned = dict.fromkeys(room, 0)
    mine = set()
    for shard in range(shards):
        ranks = _ranked(queue, shard, room)
        home = next(one for one in ranks if owned[one] < most)
        owned[home] += 1
        helper = home if room[home] else next((one for one in ranks if room[one]), home)
        if me in (home, helper):
            mine.add(shard)
    return frozenset(mine)


def _ranked(queue: str, shard: int, workers: Mapping[str, object]) -> list[str]:
    """Order workers for a shard, as all of them do: by a hash of both."""

    def rank(worker: str) -> bytes:
        return blake2b(f"{queue}\0{shard}\0{worker}".encode(), digest_size=8).digest()

    return sorted(workers, key=rank)
