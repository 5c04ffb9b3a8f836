"""The engine: a store, and what every operation on it needs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter

from dueline.core.blobs import Blobs
from dueline.core.clock import Clock, StoreTime
from dueline.core.endings import Endings
from dueline.core.errors import EnqueueUnknown, StoreMoved, Unknown
from dueline.core.ids import Ids
from dueline.core.job import Job
from dueline.core.lane import Lane, bucket_of, living_queue
from dueline.core.pagination import EVER, first_pages, jobs_in, lane_pages
from dueline.core.queue_catalog import Catalog
from dueline.core.store import Drop, LanePage, Store
from dueline.core.wakeup import WAKE_AHEAD_US, Wakeups, wake_before, wakeups_of

_when_of, _first, _at_us_of = attrgetter("lane", "at_us"), itemgetter(0), itemgetter(1)


@dataclass(frozen=True, slots=True, eq=False)
class Engine:
    """A store, its time, its queues' settings, and how its workers are woken. Threads may share it.

    Attributes:
      store: Reads, and writes that the history does not record.
      recording_store: The same store, for inserts and changes of jobs: it records them in the
        history of queues that keep one of everything.
      clock: This machine's clock.
      time: The store's time.
      ids: Source of ids and tokens.
      catalog: The queues and their settings.
      wakeups: Wakes workers of the store.
      endings: Wakes threads of this process that wait for jobs.
      blobs: Keeps large arguments and results; None if they are refused.
    """

    store: Store
    recording_store: Store
    clock: Clock
    time: StoreTime
    ids: Ids
    catalog: Catalog
    wakeups: Wakeups
    endings: Endings = field(default_factory=Endings)
    blobs: Blobs | None = None

    def wake(self, places: Iterable[tuple[Lane, int]]) -> None:
        """Wake the workers of lanes in which a job may soon be claimed: lane and `at_us`."""
        wake_before(self.wakeups, places, now_us=self.time.latest_us())

    def announce(self, jobs: Sequence[Job]) -> None:
        """Wake the workers of jobs that were stored, and keep their queues in the catalog.

        Raises:
          EnqueueUnknown: The store did not say whether the queues are still there, or it moved.
        """
        places = list(dict.fromkeys(map(_when_of, jobs)))
        now_us = jobs[0].enqueued_us if jobs else 0
        if max(map(_at_us_of, places), default=0) > now_us + WAKE_AHEAD_US:
            now_us = self.time.latest_us()  # later than the call: more of them may be due soon
        if soon := wakeups_of(places, now_us=now_us):
            self.wakeups.wake(soon)
        try:
            self.catalog.used(map(_first, places))
        except StoreMoved as error:
            self._withdraw(jobs, error)
        except Unknown as error:
            raise EnqueueUnknown.about(jobs) from error

    def _withdraw(self, jobs: Sequence[Job], moved: StoreMoved) -> None:
        """Remove new jobs from a store that moved before they were stored (rule X1).

        One that is no longer there, or not new, was moved or runs.

        Raises:
          EnqueueUnknown: Its `jobs` were removed; enqueue them again in the other store.
        """
        try:
            removed = self.store.settle([Drop(job) for job in jobs])
        except Unknown as error:
            raise EnqueueUnknown.about(jobs) from error
        if left := [job for job, is_gone in zip(jobs, removed, strict=True) if is_gone]:
            raise EnqueueUnknown.about(left) from moved

    def pages_of(self, queue: str, until_bucket: int) -> Iterator[LanePage]:
        """Yield the lane lists of all shards of a queue, up to a listing bucket."""
        shards = range(self.catalog.settings(living_queue(queue)).shards_read)
        first = first_pages(self.store, queue, dict.fromkeys(shards), until_bucket=until_bucket)
        for shard in shards:
            yield from lane_pages(
                self.store, queue, shard, until_bucket=until_bucket, first=first.get(shard)
            )

    def lanes_of(self, queue: str) -> Iterator[Lane]:
        """Yield each listed lane of a queue once, future ones included."""
        seen: set[Lane] = set()
        for page in self.pages_of(queue, EVER):
            for _, lane in page.pointers:
                if lane not in seen:
                    seen.add(lane)
                    yield lane

    def begins_of(
        self, queue: str, *, now_us: int, until_us: int | None = None
    ) -> Iterator[Mapping[Lane, int]]:
        """Yield the lanes of each page of the lists, with a time before which none is due.

        Lanes that are listed for the past have 0, since a sweep may have listed them later.
        """
        width_us = self.catalog.settings(living_queue(queue)).width_us
        bucket = EVER if until_us is None else bucket_of(until_us, width_us)
        for page in self.pages_of(queue, bucket):
            begins: dict[Lane, int] = {}
            for listing, lane in page.pointers:
                begin_us = page.heads.get(lane, listing * width_us)
                if begin_us is not None:
                    begin_us = begin_us if begin_us > now_us else 0
                    begins[lane] = min(begin_us, begins.get(lane, begin_us))
            yield begins

    def jobs_of(self, queue: str) -> Iterator[Job]:
        """Yield all rows of a queue, lane by lane."""
        for lane in self.lanes_of(queue):
            yield from jobs_in(self.store, lane)
