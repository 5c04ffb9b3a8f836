"""The lanes of the queues that a worker serves. Hot path: the benchmark `default`."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby

from dueline.coordination.worker_registry import KnownTasks
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.lane import (
    LIMIT_MARK,
    Lane,
    Pointer,
    bucket_of,
    closing_bucket,
    limits_of,
    task_of,
    tenant_of,
)
from dueline.core.pagination import first_pages
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import LanePage
from dueline.core.wakeup import FALLBACK_US
from dueline.core.worker_needs import lacking
from dueline.worker.lane_list import LaneListCache
from dueline.worker.lane_sweeps import LaneSweeps
from dueline.worker.shard_affinity import Place, ShardAffinity

READERS_MAX = 8
"""Maximum number of lane lists read at the same time on stores where a read is a round trip."""

_Heads = dict[Lane, int | None]
_Lanes = tuple[list[Pointer], _Heads]
_LaneLists = dict[tuple[str, int], LaneListCache]


class ServedLanes:
    """Reads the lane lists of queues, and leaves out lanes that the worker must not claim from.

    Args: as of `Claimer`; has_permits: whether it claims jobs with limits.

    Attributes:
      is_quiet: Whether it leaves out all lanes, as if all queues were paused.
      gap_us: Maximum time until the next read: lanes of jobs that are due by then are read, too.
      settings: Those of each queue, as of the last read.
    """

    def __init__(
        self,
        engine: Engine,
        serving: Sequence[str],
        *,
        affinity: ShardAffinity | None,
        known: KnownTasks | None,
        has_permits: bool,
    ) -> None:
        self.is_quiet = False
        self.gap_us = 0
        self.settings: Sequence[tuple[str, QueueSettings]] = ()
        self._engine = engine
        self._serving = serving
        self._affinity = affinity
        self._known = known
        self._has_permits = has_permits
        self._lane_lists: _LaneLists = {}
        is_far = engine.store.scope == "network"  # reads are round trips, and polls are frequent
        self._look_ahead_us_min = SECOND_US if is_far else FALLBACK_US + SECOND_US
        self._look_ahead_us = 0
        self._readers = (
            ThreadPoolExecutor(READERS_MAX, thread_name_prefix="dueline-lanes") if is_far else None
        )
        self._sweeps = LaneSweeps(engine, is_far=is_far)

    def close(self) -> None:
        """Wait for what other threads do."""
        self._sweeps.close()
        if self._readers is not None:
            self._readers.shutdown()

    def places(self, age_us_max: int) -> Sequence[Place]:
        """Return the shards of the queues, by settings that are at most this old.

        Raises: StoreMoved: the store has moved (rule X1).
        """
        return [
            (queue, shard, settings.width_us)
            for queue in self._serving
            for settings in [self._engine.catalog.expect_here(queue, age_us_max=age_us_max)]
            for shard in range(settings.shards_read)
        ]

    def read(self, places: Sequence[Place], known: Mapping[Lane, int | None]) -> _Lanes:
        """Read the lane lists of shards, and sweep lanes that are past and empty.

        Args:
            places: The shards.
            known: What claims found out about lanes since the last read.

        Returns:
            The lanes, and the least `at_us` of each, None for an empty one, as far as known.
        """
        if self._affinity is not None:
            places = self._affinity.chosen(places)
        at_once = self._readers.map if self._readers else map
        pointers: list[Pointer] = []
        heads: _Heads = {}
        lane_lists, self._lane_lists = self._lane_lists, {}  # a list read halfway is dropped
        self._look_ahead_us = max(self._look_ahead_us_min, self.gap_us + SECOND_US)
        now_us = self._engine.time.earliest_us()
        self._sweeps.finish(only_done=True)
        first = self._first_pages(lane_lists, now_us, places)
        read = partial(self._read, lane_lists, known, now_us, first)
        for listed, own_heads in at_once(read, places):
            pointers += listed
            heads |= own_heads
        self._lane_lists = lane_lists
        self.settings = [(queue, self._engine.catalog.settings(queue)) for queue in self._serving]
        return pointers, heads

    def is_left_out(self, lane: Lane) -> bool:
        """Return whether the worker must not claim from a lane."""
        settings = self._engine.catalog.settings(lane.queue)
        return (
            self.is_quiet
            or settings.is_paused
            or tenant_of(lane) in settings.paused_tenants
            or (not self._has_permits and bool(limits_of(lane)))
            or (LIMIT_MARK in lane.tenant and self._is_foreign(lane))
            or (self._affinity is not None and self._affinity.is_left(lane.queue, lane.shard))
        )

    def _first_pages(
        self, lane_lists: _LaneLists, now_us: int, places: Sequence[Place]
    ) -> Mapping[tuple[str, int], LanePage]:
        """Read the first pages of all shards of each queue at once, if the store can."""
        pages: dict[tuple[str, int], LanePage] = {}
        for (queue, width_us), run in groupby(places, key=lambda place: (place[0], place[2])):
            after = {
                shard: _lane_list_of(lane_lists, queue, shard).after(now_us) for _, shard, _ in run
            }
            until_bucket = bucket_of(now_us + self._look_ahead_us, width_us)
            by_shard = first_pages(self._engine.store, queue, after, until_bucket=until_bucket)
            pages |= {(queue, shard): page for shard, page in by_shard.items()}
        return pages

    def _read(
        self,
        lane_lists: _LaneLists,
        known: Mapping[Lane, int | None],
        now_us: int,
        first: Mapping[tuple[str, int], LanePage],
        place: Place,
    ) -> _Lanes:
        queue, shard, width_us = place
        until_bucket = bucket_of(now_us + self._look_ahead_us, width_us)
        lane_list = _lane_list_of(lane_lists, queue, shard)
        pointers, heads, version = lane_list.read(
            self._engine.store, known,
            until_bucket=until_bucket, now_us=now_us, first=first.get((queue, shard)),
        )  # fmt: skip
        if not self._engine.catalog.is_current(queue, version):
            self._engine.catalog.forget(queue)
        settings = self._engine.catalog.settings(queue)
        if settings.is_paused or self.is_quiet:
            return [], {}
        closing = closing_bucket(now_us, width_us)  # a sweep leaves later lanes as they are
        past = [pointer.lane for pointer in pointers if pointer.listing <= closing]
        empty = sum(known.get(lane, 0) is None or heads.get(lane, 0) is None for lane in past)
        if lane_list.is_sweep_due(empty, now_us):
            self._sweeps.begin(lane_list, now_us, place)
        if settings.paused_tenants:
            paused = frozenset(settings.paused_tenants)
            pointers = [pointer for pointer in pointers if tenant_of(pointer.lane) not in paused]
            heads = {lane: at_us for lane, at_us in heads.items() if tenant_of(lane) not in paused}
        if not self._has_permits:
            pointers = [pointer for pointer in pointers if not limits_of(pointer.lane)]
        foreign = {
            lane for _, lane in pointers if LIMIT_MARK in lane.tenant and self._is_foreign(lane)
        }
        if foreign:
            pointers = [pointer for pointer in pointers if pointer.lane not in foreign]
            heads = {lane: at_us for lane, at_us in heads.items() if lane not in foreign}
        return pointers, heads

    def _is_foreign(self, lane: Lane) -> bool:
        """Return whether only other workers claim from a lane.

        This one does not know its task, say, or does not have what its jobs need (rule Y1).
        """
        if lacking(lane, self._known.has if self._known is not None else {}):
            return True
        task = task_of(lane)
        if not task or self._known is None:
            return False
        return not self._known.may_claim(task, self._engine.time.earliest_us())


def _lane_list_of(lane_lists: _LaneLists, queue: str, shard: int) -> LaneListCache:
    return lane_lists.setdefault((queue, shard), LaneListCache(queue, shard))
