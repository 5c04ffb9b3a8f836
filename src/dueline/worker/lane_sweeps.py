"""Sweeps of lane lists: they remove lanes that are past and empty."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from dueline.core.engine import Engine
from dueline.core.errors import StoreUnavailable
from dueline.worker.lane_list import LaneListCache
from dueline.worker.shard_affinity import Place


class LaneSweeps:
    """The sweeps that a worker has begun.

    is_far: A sweep has round trips, so it runs in a thread: no claim waits for it.
    """

    def __init__(self, engine: Engine, *, is_far: bool) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dueline-sweep") if is_far else None
        self._sweeps: deque[Future[None]] = deque()

    def begin(self, lane_list: LaneListCache, now_us: int, place: Place) -> None:
        """Sweep the lane list of a shard."""
        lane_list.is_being_swept = True
        if self._thread is None:
            self._sweep(lane_list, now_us, place)
        else:
            self._sweeps.append(self._thread.submit(self._sweep_later, lane_list, now_us, place))

    def finish(self, *, only_done: bool) -> None:
        """Raise what made a sweep fail."""
        while self._sweeps and not (only_done and not self._sweeps[0].done()):
            self._sweeps.popleft().result()

    def close(self) -> None:
        """Wait for all sweeps."""
        self.finish(only_done=False)
        if self._thread is not None:
            self._thread.shutdown()

    def _sweep(self, lane_list: LaneListCache, now_us: int, place: Place) -> None:
        queue, shard, width_us = place
        began_us = self._engine.time.earliest_us()
        try:
            self._engine.store.sweep(queue, shard, now_us=now_us, width_us=width_us)
            lane_list.swept(began_us, self._engine.time.earliest_us())
        finally:
            lane_list.is_being_swept = False

    def _sweep_later(self, lane_list: LaneListCache, now_us: int, place: Place) -> None:
        with suppress(StoreUnavailable):  # any later sweep does the same
            self._sweep(lane_list, now_us, place)
