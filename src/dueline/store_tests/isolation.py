"""Laws of isolation between lanes."""

from dueline.core.lane import Lane, Marks
from dueline.core.store import Store
from dueline.store_tests.calls import (
    NOW_US,
    WIDTH_US,
    claim,
    id_of,
    ids_of,
    lane_of,
    move,
    new_job,
    pointers_in,
    put_in,
    rows_in,
)

HOME = lane_of(queue="a", tenant="a")

NEIGHBOURS = (
    HOME._replace(queue="b"),
    HOME._replace(queue="a-a"),
    HOME._replace(queue="a!dead"),
    HOME._replace(shard=1),
    HOME._replace(bucket=HOME.bucket + 1),
    HOME._replace(priority=1),
    HOME._replace(priority=-1),
    HOME._replace(tenant=""),
    HOME._replace(tenant="A"),
    HOME._replace(tenant="a "),
    HOME._replace(tenant="aa"),
    HOME._replace(tenant="á"),
    HOME._replace(tenant="a\N{COMBINING ACUTE ACCENT}"),
    HOME._replace(tenant="'; drop table jobs; --"),
    HOME._replace(tenant='"a\\":{}[]%_*?\n\t'),
    HOME._replace(tenant="😀" * 64),
)

EXTREMES = (-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 2, 2**31 - 1)


def fill(store: Store, lanes: tuple[Lane, ...]) -> None:
    """Insert one job into each lane; its number is the lane's index."""
    put_in(store, *(new_job(number, lane=lane) for number, lane in enumerate(lanes)))


def _marks(store: Store, queue: str, shard: int) -> Marks:
    return store.lanes(queue, shard, until_bucket=0, after=None, limit=1).marks


class IsolationLaws:
    """A change in one lane affects no other."""

    def test_a_lane_holds_its_own_jobs_alone(self, store: Store) -> None:
        lanes = (HOME, *NEIGHBOURS)
        fill(store, lanes)
        for number, lane in enumerate(lanes):
            assert rows_in(store, lane) == [new_job(number, lane=lane)]

    def test_a_listed_lane_gets_its_own_jobs_alone(self, store: Store) -> None:
        """Stores insert into listed lanes, and into several of them, by other statements."""
        lanes = (HOME, *NEIGHBOURS)
        fill(store, lanes)
        jobs = [new_job(100 + number, lane=lane) for number, lane in enumerate(lanes)]
        for job in jobs[:4]:
            put_in(store, job)
        put_in(store, *jobs[4:7])
        put_in(store, *jobs[7:])
        for number, lane in enumerate(lanes):
            assert rows_in(store, lane) == [new_job(number, lane=lane), jobs[number]]

    def test_a_claim_takes_from_the_lane_it_names_alone(self, store: Store) -> None:
        fill(store, (HOME, *NEIGHBOURS))
        claimed = claim(store, HOME)
        assert ids_of(claimed.jobs) == [id_of(0)]
        assert set(claimed.next_at_us) == {HOME}
        for number, lane in enumerate(NEIGHBOURS, start=1):
            assert rows_in(store, lane) == [new_job(number, lane=lane)]

    def test_a_verdict_touches_the_job_it_names_alone(self, store: Store) -> None:
        fill(store, (HOME, *NEIGHBOURS))
        far_us = NOW_US + 1000 * WIDTH_US
        assert list(store.settle([move(new_job(0, lane=HOME), far_us)])) == [True]
        assert [row.at_us for row in rows_in(store, HOME)] == [far_us]
        for number, lane in enumerate(NEIGHBOURS, start=1):
            assert rows_in(store, lane) == [new_job(number, lane=lane)]

    def test_a_lane_is_listed_with_its_queue_and_shard_alone(self, store: Store) -> None:
        lanes = (HOME, *NEIGHBOURS)
        fill(store, lanes)
        for queue, shard in {(lane.queue, lane.shard) for lane in lanes}:
            expected = {lane for lane in lanes if (lane.queue, lane.shard) == (queue, shard)}
            assert {pointer.lane for pointer in pointers_in(store, queue, shard)} == expected
        assert pointers_in(store, "nobody") == []
        assert pointers_in(store, "a", 2) == []

    def test_a_sweep_touches_its_queue_and_shard_alone(self, store: Store) -> None:
        fill(store, (HOME, *NEIGHBOURS))
        elsewhere = (("a", 1), ("b", 0))
        before = [(_marks(store, *place), pointers_in(store, *place)) for place in elsewhere]
        for _ in range(2):
            store.sweep("a", 0, now_us=NOW_US + 9 * WIDTH_US, width_us=WIDTH_US)
        assert before == [
            (_marks(store, *place), pointers_in(store, *place)) for place in elsewhere
        ]

    def test_any_signed_32_bit_priority_is_kept(self, store: Store) -> None:
        lanes = tuple(lane_of(priority=priority) for priority in EXTREMES)
        fill(store, lanes)
        assert [pointer.lane for pointer in pointers_in(store)] == sorted(lanes)
        claimed = claim(store, *reversed(lanes))
        assert [job.lane.priority for job in claimed.jobs] == sorted(EXTREMES, reverse=True)
