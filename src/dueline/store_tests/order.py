"""The order in which jobs are claimed."""

from itertools import pairwise

from dueline.core.job import Job, JobId
from dueline.core.pagination import walk
from dueline.core.store import Drop, Store
from dueline.core.store_capabilities import sample_of, walk_columns
from dueline.store_tests.calls import (
    NOW_US,
    claim,
    columns_as_rows,
    id_of,
    ids_of,
    lane_of,
    move,
    new_job,
    put_in,
    rows_in,
)


class OrderLaws:
    """Jobs of a lane are claimed in (at, id) order, lanes in the order of the wants."""

    def test_a_lane_gives_its_jobs_by_time_and_then_by_id(self, store: Store) -> None:
        lane = lane_of()
        times = {4: -2, 1: 0, 5: -2, 2: -1, 3: -3, 7: 0, 6: -1}
        put_in(store, *(new_job(n, at_us=NOW_US + at, lane=lane) for n, at in times.items()))
        expected = [id_of(number) for number in (3, 4, 5, 2, 6, 1, 7)]
        assert ids_of(rows_in(store, lane)) == expected
        first = claim(store, lane, limit=3, token=1).jobs
        rest = claim(store, lane, token=2).jobs
        assert ids_of(first) + ids_of(rest) == expected

    def test_ids_are_compared_as_unsigned_bytes(self, store: Store) -> None:
        lane = lane_of()
        heads = (0x80, 0x00, 0xFF, 0x7F, 0x81, 0x01)
        ids = [JobId(bytes([head]) + bytes(15)) for head in heads]
        tails = [JobId(b"\x7f" + bytes(14) + bytes([tail])) for tail in (0xFF, 0x01, 0x80)]
        put_in(store, *(new_job(1, lane=lane)._replace(id=job_id) for job_id in ids + tails))
        assert ids_of(rows_in(store, lane)) == sorted(ids + tails)
        assert ids_of(claim(store, lane).jobs) == sorted(ids + tails)

    def test_lanes_are_claimed_in_the_order_of_the_wants(self, store: Store) -> None:
        lanes = [lane_of(priority=priority) for priority in (0, 9, -9)]
        for number, lane in enumerate(lanes):
            put_in(store, new_job(2 * number, lane=lane), new_job(2 * number + 1, lane=lane))
        claimed = claim(store, lanes[0], lanes[2], lanes[1], limit=5)
        assert ids_of(claimed.jobs) == [id_of(number) for number in (0, 1, 4, 5, 2)]

    def test_no_job_is_claimed_before_its_time(self, store: Store) -> None:
        lane = lane_of(NOW_US)
        put_in(store, new_job(1, at_us=NOW_US + 1, lane=lane), new_job(2, at_us=NOW_US, lane=lane))
        assert ids_of(claim(store, lane, now_us=NOW_US - 1).jobs) == []
        assert ids_of(claim(store, lane, now_us=NOW_US).jobs) == [id_of(2)]
        assert ids_of(claim(store, lane, now_us=NOW_US + 1).jobs) == [id_of(1)]

    def test_a_moved_job_stands_where_its_new_time_puts_it(self, store: Store) -> None:
        lane = lane_of()
        put_in(store, *(new_job(number, at_us=NOW_US + number, lane=lane) for number in (1, 2, 3)))
        (job,) = claim(store, lane, limit=1, now_us=NOW_US + 1).jobs
        assert list(store.settle([move(job, NOW_US + 2)])) == [True]
        expected = [id_of(1), id_of(2), id_of(3)]
        assert ids_of(rows_in(store, lane)) == expected
        assert ids_of(claim(store, lane, now_us=NOW_US + 9, token=2).jobs) == expected

    def test_a_claimed_job_stands_at_the_end_of_its_lease(self, store: Store) -> None:
        lane = lane_of()
        put_in(store, new_job(1, lane=lane), new_job(2, at_us=NOW_US + 5, lane=lane))
        claim(store, lane, lease_us=10)
        assert ids_of(rows_in(store, lane)) == [id_of(2), id_of(1)]
        assert rows_in(store, lane)[1].at_us == NOW_US + 10

    def test_a_scan_ends_with_the_instant_that_it_is_given(self, store: Store) -> None:
        lane = lane_of()
        put_in(store, *(new_job(number, at_us=NOW_US + number, lane=lane) for number in range(6)))
        until = rows_in(store, lane, until_us=NOW_US + 3, page_size=2)
        assert ids_of(until) == [id_of(number) for number in range(4)]

    def test_a_scan_comes_in_pages(self, store: Store) -> None:
        lane = lane_of()
        times = [NOW_US + number // 3 for number in range(10)]
        put_in(store, *(new_job(n, at_us=at_us, lane=lane) for n, at_us in enumerate(times)))
        whole = [id_of(number) for number in range(10)]
        for page_size in (1, 2, 3, 5, 10, 11):
            assert ids_of(rows_in(store, lane, page_size=page_size)) == whole
        page = store.scan(lane, after=(NOW_US + 1, id_of(4)), until_us=None, limit=100)
        assert ids_of(page.jobs) == whole[5:]
        assert page.after is None
        for skip in range(12):
            page = store.scan(lane, after=(NOW_US, id_of(1)), until_us=None, limit=3, skip=skip)
            assert ids_of(page.jobs) == whole[2 + skip :][:3]

    def test_a_walk_passes_each_row_once_wherever_it_is_due(self, store: Store) -> None:
        lane = lane_of()
        times = [NOW_US + number // 3 for number in range(10)]
        put_in(store, *(new_job(n, at_us=at_us, lane=lane) for n, at_us in enumerate(times)))
        claimed = claim(store, lane, lease_us=10, limit=5).jobs
        store.settle([move(claimed[0], NOW_US + 2), *map(Drop, claimed[1:2])])
        left = {id_of(number) for number in range(10) if number != 1}
        for page_size in (1, 2, 3, 4, 9, 10):
            whole = [job for page in walk(store, lane, page_size=page_size) for job in page]
            assert len(whole) == len(left)
            assert set(ids_of(whole)) == left

    def test_a_walk_may_be_cut_at_any_place(self, store: Store) -> None:
        lane = lane_of()
        put_in(store, *(new_job(n, at_us=NOW_US + n // 3, lane=lane) for n in range(10)))
        claim(store, lane, lease_us=10, limit=2)
        whole = ids_of(job for page in walk(store, lane) for job in page)
        after = None
        for number, job_id in enumerate(whole, 1):
            page = store.walk(lane, after=None, until=None, limit=1, skip=number - 1)
            assert ids_of(page.jobs) == [job_id]
            until = page.after
            before = store.walk(lane, after=None, until=until, limit=100)
            assert (ids_of(before.jobs), before.after) == (whole[:number], None)
            part = store.walk(lane, after=after, until=until, limit=100)
            assert ids_of(part.jobs) == [job_id]
            after = until
        assert not store.walk(lane, after=after, until=None, limit=9).jobs
        assert not store.walk(lane, after=None, until=None, limit=1, skip=10).jobs

    def test_columns_are_those_of_the_rows_that_a_walk_passes(self, store: Store) -> None:
        lane, plain = lane_of(), lane_of(tenant="plain")
        for number in range(30):
            job = new_job(number, at_us=NOW_US + number // 3, lane=lane)
            body, opts = bytes([number]) * (number * 100), b"" if number % 3 else b'{"tags":["x"]}'
            store.add([job._replace(task=f"{number % 7} \N{BULLET}", body=body, opts=opts)])
            store.add([new_job(100 + number, at_us=NOW_US + number, lane=plain)])
        claimed = claim(store, lane, lease_us=10, limit=9).jobs
        store.settle([move(job, NOW_US + 2) for job in claimed[:3]])
        names = frozenset(Job._fields) - {"lane", "alone"}
        for each in (lane, plain):
            rows = [job for page in walk(store, each) for job in page]
            for limit in (1, 7, 15, 30, 31):
                after, different, read = None, frozenset[str](), []
                while True:
                    page = walk_columns(
                        store, each, names, after=after, until=None, limit=limit,
                        different=different,
                    )  # fmt: skip
                    read += columns_as_rows(page)
                    if page.after is None:
                        break
                    after, different = page.after, page.different()
                assert read == [{name: getattr(job, name) for name in names} for job in rows]
            until = store.walk(each, after=None, until=None, limit=20).after
            page = walk_columns(store, each, frozenset(("id",)), after=None, until=until, limit=99)
            assert [row["id"] for row in columns_as_rows(page)] == ids_of(rows[:20])

    def test_a_sample_divides_lanes_at_places_of_their_rows(self, store: Store) -> None:
        lanes = [lane_of(tenant=tenant) for tenant in ("a", "b", "c")]
        for number in range(200):
            put_in(store, new_job(number, at_us=NOW_US + number, lane=lanes[number % 4 == 0]))
        claim(store, lanes[0], limit=20)
        sample = sample_of(store, lanes, most=20)
        if sample is None:
            return
        for lane in lanes:
            whole = ids_of(job for page in walk(store, lane) for job in page)
            cuts = [None, *sample.places.get(lane, ()), None]
            parts = [
                columns_as_rows(
                    walk_columns(
                        store, lane, frozenset(("id",)), after=after, until=until, limit=999
                    )
                )
                for after, until in pairwise(cuts)
            ]
            assert [row["id"] for part in parts for row in part] == whole
            assert all(abs(len(part) - sample.rows) <= sample.rows for part in parts if part)

    def test_a_lane_that_never_was_is_empty(self, store: Store) -> None:
        put_in(store, new_job(1))
        nobody = lane_of(tenant="nobody")
        for page in (
            store.scan(nobody, after=None, until_us=None, limit=10),
            store.walk(nobody, after=None, until=None, limit=10),
        ):
            assert (list(page.jobs), page.after) == ([], None)
        columns = walk_columns(store, nobody, frozenset(("id",)), after=None, until=None, limit=10)
        assert (columns.many, columns.after) == (0, None)
