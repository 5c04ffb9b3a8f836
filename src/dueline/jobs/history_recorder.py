"""Records enqueued and changed jobs in the history.

It wraps a store, for queues whose history is `all`. Each insert and change of jobs appends a
history row, in the same group. Ends are recorded by `completion`, in every queue with a history. So
are changes of jobs by hand, with who made them (rule O3): see `noting`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from dueline.core.clock import Clock, StoreTime
from dueline.core.engine import Engine
from dueline.core.ids import Ids
from dueline.core.job import Job
from dueline.core.lane import living_queue
from dueline.core.pagination import parts_of
from dueline.core.queue_catalog import Catalog
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Group, Move, Row, Store, Verdict
from dueline.core.wakeup import NoWakeups, Wakeups
from dueline.jobs.history import happened, row_beside, row_of_event, rows_of_enqueued

_PART: Final = 500
"""Maximum number of jobs that are inserted as one group."""


class RecordingStore:
    """Passes calls on to a store, and records what they changed.

    note: who changes jobs, for changes by hand.
    """

    def __init__(
        self, store: Store, catalog: Catalog, now_us: Callable[[], int], note: str = ""
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._settings = catalog.settings
        self._now_us = now_us
        self._note = note

    def noting(self, note: str) -> "RecordingStore":
        """Return the same store, which records changes of jobs as made by hand."""
        return RecordingStore(self._store, self._catalog, self._now_us, note)

    # Recorded calls

    def add(self, jobs: Sequence[Job]) -> Sequence[bool]:
        """Store jobs, and that they were enqueued."""
        parts = parts_of(jobs, _PART)
        groups = [Group(jobs=part, rows=self._rows_of_enqueued(part)) for part in parts]
        if not any(group.rows for group in groups):
            return self._store.add(jobs)
        self._store.together(groups)
        return [True] * len(jobs)

    def settle(self, verdicts: Sequence[Verdict]) -> Sequence[bool]:
        """Apply verdicts, and record which jobs they changed."""
        rows = [self._rows_of_changed([verdict]) for verdict in verdicts]
        if not any(rows):
            return self._store.settle(verdicts)
        recorded = zip(verdicts, rows, strict=True)
        return self._store.together([Group([verdict], rows=own) for verdict, own in recorded])

    def together(self, groups: Sequence[Group]) -> Sequence[bool]:
        """Apply groups, and record in each what it changes."""
        added = [
            [*self._rows_of_enqueued(group.jobs), *self._rows_of_changed(group.verdicts)]
            for group in groups
        ]
        return self._store.together(
            [
                group._replace(rows=[*group.rows, *rows]) if rows else group
                for group, rows in zip(groups, added, strict=True)
            ]
        )

    def rows_of_event(self, job: Job, what: str, at_us: int, text: str) -> Sequence[Row]:
        """Return the row of what happened to a job; none if its queue does not record it."""
        return [row_beside(job, what, at_us, text)] if self._is_kept(job.lane.queue) else ()

    def _rows_of_enqueued(self, jobs: Sequence[Job]) -> list[Row]:
        lanes = {job.lane for job in jobs}
        if len(lanes) == 1:  # as for most calls
            (lane,) = lanes
            if not self._is_kept(lane.queue):
                return []
        queues = {lane.queue for lane in lanes}
        settings = {queue: self._settings(living_queue(queue)) for queue in queues}
        kept = {queue: own.keeps_arguments for queue, own in settings.items() if own.tells_all}
        if not kept:
            return []
        rows: list[Row] = []
        for queue, with_arguments in kept.items():
            new = [job for job in jobs if job.lane.queue == queue and not job.hop]
            rows += rows_of_enqueued(new, with_arguments=with_arguments)
        return rows

    def _rows_of_changed(self, verdicts: Sequence[Verdict]) -> list[Row]:
        rows = []
        for move in verdicts:
            if not isinstance(move, Move) or move.outcome:
                continue
            lane = move.to or move.job.lane
            if self._tells(lane.queue):
                job = move.job._replace(lane=lane, at_us=move.at_us)
                event = happened(job, "changed", self._now_us(), error=self._note)
                rows.append(row_of_event(event, job, move.token))
        return rows

    def _tells(self, queue: str) -> bool:
        """Return whether changes of a queue's jobs are recorded."""
        if self._note:
            return self._settings(living_queue(queue)).history != "off"
        return self._is_kept(queue)

    def _is_kept(self, queue: str) -> bool:
        return self._settings(living_queue(queue)).tells_all

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever the store has)
        """Pass all other attributes on."""
        return getattr(self._store, name)


def recording(store: Store, catalog: Catalog, now_us: Callable[[], int]) -> Store:
    """Return a store that records inserts and changes of jobs.

    Args:
        store: The store.
        catalog: Its queues.
        now_us: Returns the store's time.
    """
    return cast(Store, RecordingStore(store, catalog, now_us))


def noting(store: Store, note: str) -> Store:
    """Return a store of `recording` that records changes of jobs as made by hand.

    Args:
        store: The store.
        note: What was done, and by whom.
    """
    return cast(Store, cast(RecordingStore, store).noting(note))


def open_engine(
    store: Store, *, clock: Clock, ids: Ids, defaults: QueueSettings, wakeups: Wakeups | None = None
) -> Engine:
    """Return an engine on a store, without reading anything yet.

    Args:
        store: The store.
        clock: This machine's clock.
        ids: The source of ids.
        defaults: Settings of a new queue.
        wakeups: Wakes workers of the store; None if they cannot be reached.
    """
    catalog = Catalog(store, clock=clock, ids=ids, defaults=defaults)
    time = StoreTime(store.clock_us, clock)
    recording_store = recording(store, catalog, time.latest_us)
    return Engine(store, recording_store, clock, time, ids, catalog, wakeups or NoWakeups())


def inside_engine(engine: Engine, store: Store, wakeups: Wakeups) -> Engine:
    """Return the same engine on the store as an open transaction sees it.

    It reads settings for itself: what it sees may be rolled back.
    """
    catalog = engine.catalog.inside(store)
    recording_store = recording(store, catalog, engine.time.latest_us)
    return replace(
        engine, store=store, recording_store=recording_store, catalog=catalog, wakeups=wakeups
    )
