"""Tells the history of births, changes.

A wrapper of a store, for queues whose history is of everything: what puts jobs in and changes
them writes its row beside that, in the same transaction where there is one, and before it answers
elsewhere.
Ends are told by `finishing`, in every queue that keeps a history.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from dueline.core.clock import Clock, StoreTime
from dueline.core.engine import Engine
from dueline.core.ids import Ids
from dueline.core.job import Job
from dueline.core.lane import living_queue
from dueline.core.queue_catalog import Catalog
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Group, Move, Row, Store, Verdict
from dueline.core.tuples import field
from dueline.core.wakeup import NoWakeups, Wakeups
from dueline.jobs.history import happened, row_of_enqueue, row_of_event

_lane_of = field(Job, "lane")


class RecordingStore:
    """Passes calls on to a store, and tells what they did."""

    def __init__(
        self, store: Store, settings: Callable[[str], QueueSettings], now_us: Callable[[], int]
    ) -> None:
        self.transactional = store.transactional
        self._store = store
        self._settings = settings
        self._now_us = now_us

    # What is told

    def add(self, jobs: Sequence[Job]) -> Sequence[bool]:
        """Store jobs, and that they were enqueued."""
        rows = self._rows_of_enqueued(jobs)
        if not rows:
            return self._store.add(jobs)
        if self.transactional:
            self._store.together([Group(jobs=jobs, rows=rows)])
            return [True] * len(jobs)
        sure = self._store.add(jobs)
        if None in self._store.append(rows):
            return [False] * len(jobs)
        return sure

    def settle(self, verdicts: Sequence[Verdict]) -> Sequence[bool]:
        """Apply verdicts, and store which jobs they changed."""
        rows = [self._rows_of_changed([verdict]) for verdict in verdicts]
        if not any(rows):
            return self._store.settle(verdicts)
        if self.transactional:
            groups = zip(verdicts, rows, strict=True)
            return self._store.together([Group([one], rows=told) for one, told in groups])
        held = self._store.settle(verdicts)
        told = [row for some, sure in zip(rows, held, strict=True) if sure for row in some]
        self._store.append(told)
        return held

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        """Apply groups, and tell in each what it does."""
        told = [
            [*self._rows_of_enqueued(group.jobs), *self._rows_of_changed(group.verdicts)]
            for group in groups
        ]
        return self._store.together(
            [
                group._replace(rows=[*group.rows, *rows]) if rows else group
                for group, rows in zip(groups, told, strict=True)
            ]
        )

    def _rows_of_enqueued(self, jobs: Sequence[Job]) -> list[Row]:
        queues = {lane.queue for lane in set(map(_lane_of, jobs))}
        found = {queue: self._settings(living_queue(queue)) for queue in queues}
        recording = {queue: one.keeps_arguments for queue, one in found.items() if one.tells_all}
        if not recording:
            return []
        return [
            row_of_enqueue(job, with_arguments=recording[job.lane.queue])
            for job in jobs
            if job.lane.queue in recording and not job.hop
        ]

    def _rows_of_changed(self, verdicts: Sequence[Verdict]) -> list[Row]:
        rows = []
        for move in verdicts:
            if (
                isinstance(move, Move)
                and not move.outcome
                and self._keeps_everything(move.job.lane.queue)
            ):
                lane = move.to or move.job.lane
                job = move.job._replace(lane=lane, at_us=move.at_us)
                told = happened(job, "changed", self._now_us())
                rows.append(row_of_event(told, job, move.token))
        return rows

    def _keeps_everything(self, queue: str) -> bool:
        return self._settings(living_queue(queue)).tells_all

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever the store has)
        """Pass everything else on."""
        return getattr(self._store, name)


def recording(
    store: Store, settings: Callable[[str], QueueSettings], now_us: Callable[[], int]
) -> Store:
    """Make a store that tells, for what puts jobs in and changes them.

    Args: settings: of living queues. now_us: the store's time.
    """
    return cast(Store, RecordingStore(store, settings, now_us))


def open_engine(
    store: Store, *, clock: Clock, ids: Ids, defaults: QueueSettings, wakeups: Wakeups | None = None
) -> Engine:
    """Return an engine on a store; reads nothing yet.

    Args:
      clock: This machine's clock.
      defaults: Settings of a new queue.
      wakeups: Wakes workers of the store; None where they cannot be reached.
    """
    catalog = Catalog(store, clock=clock, ids=ids, defaults=defaults)
    time = StoreTime(store.clock_us, clock)
    recording_store = recording(store, catalog.settings, time.latest_us)
    return Engine(store, recording_store, clock, time, ids, catalog, wakeups or NoWakeups())


def inside_engine(engine: Engine, store: Store, wakeups: Wakeups) -> Engine:
    """Return the same engine on the store as an open transaction sees it.

    It reads settings for itself: what it sees may be rolled back.
    """
    catalog = engine.catalog.inside(store)
    recording_store = recording(store, catalog.settings, engine.time.latest_us)
    return replace(
        engine, store=store, recording_store=recording_store, catalog=catalog, wakeups=wakeups
    )
