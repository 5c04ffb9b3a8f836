"""Rules of the lane list and of the claimer's memory, broken."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from dueline.core.job import Job
from dueline.core.lane import Lane, Marks, bucket_of, closing_bucket
from dueline.core.pagination import lane_pages
from dueline.core.store import Jobs, LanePage
from dueline.stores import cursor_cache
from dueline.stores.cursor_cache import CursorCache, LaneScan
from dueline.stores.lane_index import LaneIndex, Shard
from dueline.worker import lane_list
from tests.harness.cluster import Node
from tests.harness.stepped_store import SteppedMemoryStore
from tests.mutants.sources import change_source

Patch = pytest.MonkeyPatch


def no_look(patch: Patch) -> None:
    def acknowledge(
        self: LaneIndex, listings: dict[Lane, int], write: Callable[[], object]
    ) -> tuple[object, frozenset[Lane]]:
        self._read_missing({Shard(lane.queue, lane.shard) for lane in listings})
        self._list(listings)
        return write(), frozenset()

    patch.setattr(LaneIndex, "acknowledge", acknowledge)


def a_second_row_where_the_bucket_was_closed(patch: Patch) -> None:
    add = SteppedMemoryStore.add

    def add_anew(self: SteppedMemoryStore, jobs: Sequence[Job]) -> Sequence[bool]:
        held = add(self, jobs)
        shards = {(job.lane.queue, job.lane.shard) for job in jobs}
        closed = {place: self._node.marks(Shard(*place)).closed for place in shards}
        late = [job for job in jobs if job.lane.bucket <= closed[job.lane.queue, job.lane.shard]]
        if late:
            add(
                self,
                [
                    job._replace(
                        lane=job.lane._replace(bucket=closed[job.lane.queue, job.lane.shard] + 1),
                        hop=job.hop + 1,
                    )
                    for job in late
                ],
            )
        return held

    patch.setattr(SteppedMemoryStore, "add", add_anew)


def emptiness_from_the_claimers_memory(patch: Patch) -> None:
    sweep = SteppedMemoryStore.sweep
    read = Node.ats_us

    def sweep_by_memory(self: SteppedMemoryStore, *args: str, **terms: int) -> object:
        def ats_us(_node: Node, lane: Lane) -> Iterator[int]:
            memory = self._cursors._caches.get(lane)
            if memory is None:
                return read(self._node, lane)
            return iter([seen.at_us for seen in memory.rows.values()])

        patch.setattr(Node, "ats_us", ats_us)
        return sweep(self, *args, **terms)  # type: ignore[arg-type]  # passed on as they came

    patch.setattr(SteppedMemoryStore, "sweep", sweep_by_memory)


def one_mark(patch: Patch) -> None:
    raise_both = LaneIndex._raise

    def raise_one(self: LaneIndex, shard: Shard, present: Marks, raised: Marks) -> Marks:
        return raise_both(self, shard, present, Marks(raised.closed, raised.closed))

    patch.setattr(LaneIndex, "_raise", raise_one)


def a_late_read_of_closed(patch: Patch) -> None:
    def sweep(self: LaneIndex, shard: Shard, *, now_us: int, width_us: int) -> Marks:
        before = self._storage.marks(shard)
        found = sorted(self._storage.pointers(shard, above=before.swept, until=2**62))
        empty = [
            one for one in found if not self._is_needed(one.lane, now_us=now_us, width_us=width_us)
        ]
        marks = self._storage.marks(shard)
        self._storage.remove([one for one in empty if one.listing <= marks.closed])
        kept = [one.listing for one in found if one not in empty]
        raised = Marks(min([marks.closed + 1, *kept]) - 1, closing_bucket(now_us, width_us))
        return self._raise(shard, marks, raised)

    patch.setattr(LaneIndex, "sweep", sweep)


def a_sweep_reads_one_row(patch: Patch) -> None:
    is_needed = LaneIndex._is_needed

    def by_one(self: LaneIndex, lane: Lane, **terms: int) -> bool:
        storage = self._storage
        read = type(storage).ats_us
        patch.setattr(type(storage), "ats_us", lambda it, place: list(read(it, place))[:1])
        try:
            return is_needed(self, lane, **terms)
        finally:
            patch.setattr(type(storage), "ats_us", read)

    patch.setattr(LaneIndex, "_is_needed", by_one)


def a_lane_listed_later_is_not_read_again(patch: Patch) -> None:
    def is_needed(self: LaneIndex, lane: Lane, *, now_us: int, width_us: int) -> bool:
        ats_us = list(self._storage.ats_us(lane))
        if not ats_us or min(ats_us) <= now_us:
            return bool(ats_us)
        listing = bucket_of(min(ats_us), width_us)
        return bool(self.acknowledge({lane: listing}, lambda: None)[1])

    patch.setattr(LaneIndex, "_is_needed", is_needed)


def a_lane_in_pieces_is_read_once(patch: Patch) -> None:
    from dueline.stores.cassandra.lane_index import CassandraLaneStorage  # noqa: PLC0415  (needs the driver)

    change_source(patch, CassandraLaneStorage, "ats_us", "range(2)", "range(1)")


def the_cursor_passes_late_births(patch: Patch) -> None:
    patch.setattr(cursor_cache, "LATE_US", -1)


def rows_of_producers_that_are_behind_are_not_read_again(patch: Patch) -> None:
    patch.setattr(cursor_cache, "BEHIND_US", 0)


def remembered_claims_are_not_read_again(patch: Patch) -> None:
    patch.setattr(cursor_cache, "CHECKED_MAX", 0)


def a_memory_never_grows_old(patch: Patch) -> None:
    visit_at = CursorCache.open

    def open_young(
        self: CursorCache, lane: Lane, *, now_us: int, lease_us: int, most: int
    ) -> LaneScan:
        if lane in self._caches:
            self._caches[lane].read_us = now_us
        return visit_at(self, lane, now_us=now_us, lease_us=lease_us, most=most)

    patch.setattr(CursorCache, "open", open_young)


def a_mark_that_is_raised_after_the_reading(_patch: Patch) -> None:
    """Leave the code as it is: the reader that the test is given reads and then raises."""


def the_mark_is_read_behind_the_list(patch: Patch) -> None:
    def late(jobs: Jobs, queue: str, shard: int, **how: object) -> list[LanePage]:
        found = list(lane_pages(jobs, queue, shard, **how))  # type: ignore[arg-type]
        marks = jobs.lanes(queue, shard, until_bucket=-1, after=None, limit=1).marks
        return [page._replace(marks=page.marks._replace(closed=marks.closed)) for page in found]

    patch.setattr(lane_list, "lane_pages", late)


def whatever_a_visit_said_holds(patch: Patch) -> None:
    patch.setattr(lane_list, "_still_known", lambda known, *_: dict(known))


def a_lane_that_is_listed_anew_is_known_still(patch: Patch) -> None:
    still_known = lane_list._still_known
    patch.setattr(lane_list, "_still_known", lambda known, kept, _: still_known(known, kept, ()))
