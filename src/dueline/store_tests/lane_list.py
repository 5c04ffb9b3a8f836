"""Laws of the lane list."""

from dueline.core.lane import Lane, Marks, Pointer, bucket_of
from dueline.core.store import Drop, Extend, Store
from dueline.core.store_capabilities import ListsLanes
from dueline.store_tests.calls import (
    LEASE_US,
    NOW_US,
    QUEUE,
    WIDTH_US,
    claim,
    id_of,
    ids_of,
    lane_of,
    move,
    new_job,
    new_jobs,
    pointers_in,
    put_in,
    rows_in,
)

GUARD_US = 2_000_000
"""Maximum distance of `closed` from the present, on stores where writes overlap."""

NOW = bucket_of(NOW_US, WIDTH_US)
LANE_BEFORE_ALL = Lane(QUEUE, 0, -1, -(2**31), "")


class Reader:
    """Reads a lane list as a worker does: all of it once, then new pointers only.

    A new pointer is above the last `closed` mark, so nothing at or below that is read again. A
    pointer is dropped when its lane is empty after `closed` has reached it.
    """

    def __init__(self, store: Store, queue: str = QUEUE, shard: int = 0) -> None:
        self.store = store
        self._queue = queue
        self._shard = shard
        self._closed: int | None = None
        self._known: set[Pointer] = set()

    def poll(self, now_us: int) -> set[Lane]:
        """Read new pointers up to the present; return all known lanes."""
        lowest = LANE_BEFORE_ALL._replace(queue=self._queue, shard=self._shard)
        after = None if self._closed is None else Pointer(self._closed + 1, lowest)
        until = bucket_of(now_us, WIDTH_US)
        marks = marks_of(self.store, self._queue, self._shard)
        new = pointers_in(
            self.store, self._queue, self._shard, until_bucket=until, after=after, page_size=3
        )
        self._known.update(new)
        self._closed = marks.closed
        return {pointer.lane for pointer in self._known}

    def forget(self) -> None:
        """Drop pointers at or below `closed` whose lanes are empty."""
        closed = -1 if self._closed is None else self._closed
        self._known -= {
            pointer
            for pointer in self._known
            if pointer.listing <= closed and not rows_in(self.store, pointer.lane)
        }


def marks_of(store: Store, queue: str = QUEUE, shard: int = 0) -> Marks:
    """Return the marks of a queue's shard."""
    return store.lanes(queue, shard, until_bucket=-1, after=None, limit=1).marks


def sweep(store: Store, now_us: int = NOW_US) -> Marks:
    """Sweep the laws' queue."""
    return store.sweep(QUEUE, 0, now_us=now_us, width_us=WIDTH_US)


def close_buckets(store: Store, now_us: int = NOW_US) -> int:
    """Sweep until the bucket before the present is closed; return the `closed` mark."""
    return sweep(store, now_us + GUARD_US).closed


class LaneListLaws:
    """A reader of the lane list finds every lane with a due job."""

    def test_an_insert_lists_its_lane(self, store: Store) -> None:
        lanes = [lane_of(priority=priority) for priority in (-5, 0, 5)]
        for lane in lanes:
            put_in(store, *new_jobs(2, first=lane.priority + 10, lane=lane))
        assert pointers_in(store) == [Pointer(NOW, lane) for lane in lanes]

    def test_the_list_comes_in_order_and_in_pages(self, store: Store) -> None:
        lanes = [
            lane_of(NOW_US + ahead * WIDTH_US, priority=priority, tenant=tenant)
            for ahead in (2, 0, 1)
            for priority in (5, -(2**31), 0)
            for tenant in ("b", "", "ä")
        ]
        put_in(store, *(new_job(number, lane=lane) for number, lane in enumerate(lanes)))
        expected = [Pointer(lane.bucket, lane) for lane in sorted(lanes)]
        for page_size in (1, 2, 5, 27, 28):
            assert pointers_in(store, page_size=page_size) == expected
        assert pointers_in(store, after=expected[13]) == expected[14:]

    def test_the_list_ends_with_the_bucket_that_is_asked_for(self, store: Store) -> None:
        close_buckets(store)
        for ahead in range(4):
            put_in(store, new_job(ahead, at_us=NOW_US + ahead * WIDTH_US))
        listings = [pointer.listing for pointer in pointers_in(store, until_bucket=NOW + 2)]
        assert listings == [NOW, NOW + 1, NOW + 2]

    def test_a_head_that_the_list_tells_is_the_least_of_its_lane(self, store: Store) -> None:
        """Heads are optional; a head that is returned counts claimed and future rows too."""
        early, late, claimed, empty = (lane_of(priority=priority) for priority in range(4))
        put_in(store, new_job(1, lane=early), new_job(2, lane=late, at_us=NOW_US + 99))
        put_in(store, new_job(5, lane=late, at_us=NOW_US + 9))
        put_in(store, new_job(3, lane=claimed), new_job(4, lane=empty))
        (taken,) = claim(store, claimed).jobs
        (gone,) = claim(store, empty).jobs
        assert list(store.settle([Drop(gone)])) == [True]
        page = store.lanes(QUEUE, 0, until_bucket=NOW, after=None, limit=9)
        heads = {early: NOW_US, late: NOW_US + 9, claimed: taken.at_us, empty: None}
        assert page.heads.items() <= heads.items()

    def test_the_first_open_bucket_is_always_in_the_list(self, store: Store) -> None:
        closed = close_buckets(store, NOW_US + 5 * WIDTH_US)
        put_in(store, new_job(1))
        listed = pointers_in(store, until_bucket=NOW)
        assert listed == [Pointer(closed + 1, lane_of())]
        put_in(store, new_job(2, at_us=NOW_US + 9 * WIDTH_US))
        assert pointers_in(store, until_bucket=0) == listed

    def test_a_sweep_closes_what_is_past(self, store: Store) -> None:
        assert sweep(store).closed <= NOW - 1
        marks = sweep(store, NOW_US + GUARD_US)
        assert marks.closed == NOW - 1
        assert marks_of(store) == marks

    def test_queues_and_shards_have_marks_of_their_own(self, store: Store) -> None:
        for number in range(3):
            places = [(f"a{number}", 0), (f"a{number}", 1), (f"b{number}", 0)]
            lanes = [lane_of(queue=queue, shard=shard) for queue, shard in places]
            store.sweep(*places[number], now_us=NOW_US + 5 * WIDTH_US, width_us=WIDTH_US)
            closed = marks_of(store, *places[number]).closed
            jobs = [new_job(9 * number + n, lane=lanes[n % 3]) for n in range(9)]
            put_in(store, *jobs[:3])  # the lanes are new, then they are listed
            put_in(store, *jobs[3:6])
            for job in jobs[6:]:
                put_in(store, job)
            for place, lane in zip(places, lanes, strict=True):
                is_swept = place == places[number]
                listing = closed + 1 if is_swept else lane.bucket
                assert pointers_in(store, *place) == [Pointer(listing, lane)]
                assert (marks_of(store, *place).closed == closed) == is_swept

    def test_marks_only_grow(self, store: Store) -> None:
        put_in(store, new_job(1))
        before = marks_of(store)
        assert before.swept <= before.closed
        for step in (3, 1, -100, 7, 7, 0, 8, -1):
            marks = sweep(store, NOW_US + step * WIDTH_US)
            assert marks == marks_of(store)
            assert marks.swept <= marks.closed
            assert marks.swept >= before.swept
            assert marks.closed >= before.closed
            before = marks

    def test_nothing_is_listed_at_or_below_swept(self, store: Store) -> None:
        for ahead in range(6):
            put_in(store, new_job(ahead, at_us=NOW_US + ahead * WIDTH_US))
            marks = sweep(store, NOW_US + ahead * WIDTH_US)
            assert all(pointer.listing > marks.swept for pointer in pointers_in(store))
            jobs = claim(store, lane_of(NOW_US), token=ahead + 1).jobs
            store.settle([Drop(job) for job in jobs])

    def test_empty_lanes_of_closed_buckets_are_unlisted(self, store: Store) -> None:
        put_in(store, *new_jobs(3))
        store.settle([Drop(job) for job in claim(store, lane_of()).jobs])
        closed = close_buckets(store, NOW_US + 2 * WIDTH_US)
        assert closed >= NOW
        marks = sweep(store, NOW_US + 2 * WIDTH_US)
        assert pointers_in(store) == []
        assert marks.swept == closed

    def test_a_sweep_leaves_what_is_not_closed(self, store: Store) -> None:
        put_in(store, new_job(1))
        store.settle([Drop(job) for job in claim(store, lane_of()).jobs])
        for _ in range(3):
            sweep(store, NOW_US + GUARD_US)
        assert pointers_in(store) == [Pointer(NOW, lane_of())]

    def test_a_sweep_never_unlists_a_lane_with_due_jobs(self, store: Store) -> None:
        put_in(store, *new_jobs(2))
        (gone,) = claim(store, lane_of(), limit=1, lease_us=1).jobs
        store.settle([Drop(gone)])
        for ahead in range(1, 9):
            marks = sweep(store, NOW_US + ahead * WIDTH_US)
            assert pointers_in(store, until_bucket=NOW) == [Pointer(NOW, lane_of())]
            assert marks.swept < NOW

    def test_a_lane_of_future_jobs_is_listed_when_they_are_due(self, store: Store) -> None:
        put_in(store, *new_jobs(2))
        first, second = claim(store, lane_of()).jobs
        due_us = NOW_US + 60 * WIDTH_US
        store.settle([move(first, due_us + WIDTH_US), move(second, due_us)])
        close_buckets(store, NOW_US + 2 * WIDTH_US)
        sweep(store, NOW_US + 2 * WIDTH_US)
        assert pointers_in(store) == [Pointer(bucket_of(due_us, WIDTH_US), lane_of())]

    def test_a_lane_of_running_jobs_is_never_out_of_sight(self, store: Store) -> None:
        put_in(store, *new_jobs(2))
        claim(store, lane_of())
        for ahead in range(1, 9):
            now_us = NOW_US + ahead * WIDTH_US
            sweep(store, now_us)
            listed = {pointer.lane for pointer in pointers_in(store)}
            assert listed == {lane_of()}
        until = bucket_of(NOW_US + LEASE_US, WIDTH_US)
        assert {pointer.lane for pointer in pointers_in(store, until_bucket=until)} == {lane_of()}

    def test_a_late_insert_is_listed_above_the_closed_buckets(self, store: Store) -> None:
        reader = Reader(store)
        close_buckets(store, NOW_US + 5 * WIDTH_US)
        assert reader.poll(NOW_US + 5 * WIDTH_US) == set()
        put_in(store, new_job(1))
        assert reader.poll(NOW_US + 5 * WIDTH_US) == {lane_of()}

    def test_an_insert_into_a_lane_that_was_forgotten_is_seen(self, store: Store) -> None:
        later_us, other, open_one = NOW_US + 5 * WIDTH_US, lane_of(priority=1), lane_of(shard=1)
        put_in(store, new_job(1), new_job(2, lane=other), new_job(3, lane=open_one))
        jobs = claim(store, lane_of(), other).jobs
        close_buckets(store, later_us)
        reader = Reader(store)
        assert reader.poll(later_us) == {lane_of(), other}
        store.settle([Drop(job) for job in jobs])
        reader.forget()
        put_in(store, new_job(4))
        assert reader.poll(later_us) == {lane_of()}
        put_in(store, new_job(5), new_job(6, lane=other))
        assert reader.poll(later_us) == {lane_of(), other}

    def test_a_job_that_is_moved_forward_is_seen(self, store: Store) -> None:
        far_us = NOW_US + 1000 * WIDTH_US
        put_in(store, new_job(1, at_us=far_us))
        reader = Reader(store)
        close_buckets(store)
        assert reader.poll(NOW_US) == set()
        (job,) = rows_in(store, lane_of(far_us))
        assert list(store.settle([move(job, NOW_US - 3 * WIDTH_US)])) == [True]
        assert reader.poll(NOW_US) == {lane_of(far_us)}
        assert ids_of(claim(store, lane_of(far_us)).jobs) == [id_of(1)]

    def test_a_job_given_back_is_seen_after_its_lane_was_listed_later(self, store: Store) -> None:
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of(), lease_us=1000 * WIDTH_US).jobs
        now_us = NOW_US + 2 * WIDTH_US
        close_buckets(store, now_us)
        sweep(store, now_us)
        reader = Reader(store)
        assert reader.poll(now_us) == set()
        assert list(store.settle([move(job, now_us)])) == [True]
        assert reader.poll(now_us) == {lane_of()}

    def test_a_job_given_back_after_its_claim_was_extended_is_seen(self, store: Store) -> None:
        put_in(store, new_job(1))
        (job,) = claim(store, lane_of()).jobs
        assert list(store.settle([Extend(job, NOW_US + 1000 * WIDTH_US)])) == [True]
        now_us = NOW_US + LEASE_US + WIDTH_US
        close_buckets(store, now_us)
        sweep(store, now_us)
        reader = Reader(store)
        assert reader.poll(now_us) == set()
        assert list(store.settle([move(job, now_us)])) == [True]
        assert reader.poll(now_us) == {lane_of()}

    def test_a_job_that_is_carried_is_seen_in_its_new_lane(self, store: Store) -> None:
        put_in(store, *new_jobs(2))
        now_us = NOW_US + 3 * WIDTH_US
        close_buckets(store, now_us)
        reader, other = Reader(store), lane_of(priority=3)
        assert reader.poll(now_us) == {lane_of()}
        first, second = rows_in(store, lane_of())
        assert list(store.settle([move(first, NOW_US, to=other)])) == [True]
        assert reader.poll(now_us) == {lane_of(), other}
        carried = claim(store, other).jobs
        assert ids_of(carried) == [id_of(1)]
        dead = lane_of(queue="laws!dead")
        assert list(store.settle([move(second, now_us, token=1001, to=dead)])) == [True]
        assert Reader(store, "laws!dead").poll(now_us) == {dead}


MANY_LANES = [lane_of(tenant=f"t{number}", priority=number % 3) for number in range(20)]
A_PAGE = 3


def lanes_in(store: Store, *, limit: int = A_PAGE) -> set[Lane]:
    """Return all lanes with rows; none for a store that cannot list them."""
    lanes: set[Lane] = set()
    after: str | None = None
    while isinstance(store, ListsLanes):
        page = store.lanes_with_rows(after=after, limit=limit)
        assert len(page.lanes) <= limit
        assert len(set(page.lanes)) == len(page.lanes)
        lanes.update(page.lanes)
        if page.after is None:
            break
        assert page.after != after, "the pages do not advance"
        after = page.after
    return lanes


class LanesWithRowsLaws:
    """A store that lists lanes with rows returns each one, wherever it is listed."""

    def test_every_lane_that_holds_a_row_is_listed(self, store: Store) -> None:
        put_in(store, *(new_job(number, lane=lane) for number, lane in enumerate(MANY_LANES)))
        put_in(store, new_job(30, lane=MANY_LANES[0]), new_job(31, lane=MANY_LANES[0]))
        claim(store, MANY_LANES[1])
        expected = set(MANY_LANES) if isinstance(store, ListsLanes) else set()
        assert lanes_in(store) == expected
        assert lanes_in(store, limit=1000) == expected

    def test_a_lane_that_holds_no_row_any_more_is_not(self, store: Store) -> None:
        put_in(store, *(new_job(number, lane=lane) for number, lane in enumerate(MANY_LANES)))
        for lane in MANY_LANES[4:]:
            (job,) = claim(store, lane).jobs
            assert store.settle([Drop(job)]) == [True]
        assert lanes_in(store) == (set(MANY_LANES[:4]) if isinstance(store, ListsLanes) else set())
        (job,) = claim(store, MANY_LANES[0]).jobs
        assert store.settle([Drop(job)]) == [True]
        assert lanes_in(store) == (set(MANY_LANES[1:4]) if isinstance(store, ListsLanes) else set())

    def test_an_empty_store_holds_no_lane(self, store: Store) -> None:
        assert lanes_in(store) == set()
