"""Laws of claims: limits, and when lanes are due next."""

from dueline.core.store import Claimed, Drop, Lease, Store, Want
from dueline.store_tests.calls import (
    LEASE_US,
    NOW_US,
    claim,
    id_of,
    ids_of,
    lane_of,
    move,
    new_job,
    new_jobs,
    put_in,
    rows_in,
    token_of,
)

LANES = tuple(lane_of(priority=priority) for priority in range(3))


def fill(store: Store) -> None:
    """Insert five jobs into each of the lanes."""
    for number, lane in enumerate(LANES):
        put_in(store, *new_jobs(5, first=10 * number, lane=lane))


def assert_honest(store: Store, claimed: Claimed) -> None:
    """Check each lane's `next_at_us` against its rows."""
    for lane, next_at_us in claimed.next_at_us.items():
        rows = rows_in(store, lane)
        assert next_at_us == (rows[0].at_us if rows else None)


class BoundLaws:
    """A claim respects its limits, and returns the correct `next_at_us`."""

    def test_a_claim_brings_at_most_its_limit(self, store: Store) -> None:
        fill(store)
        for limit in (1, 3, 7):
            assert len(claim(store, *LANES, limit=limit, token=limit).jobs) == limit
        assert len(claim(store, *LANES, limit=7, token=9).jobs) == 4

    def test_a_claim_brings_at_most_what_each_want_says(self, store: Store) -> None:
        fill(store)
        wants = [Want(LANES[0], 2), Want(LANES[1], 1), Want(LANES[2], 9)]
        claimed = store.claim(
            wants, limit=100, lease=Lease(NOW_US, LEASE_US, "worker", token_of(1))
        )
        assert ids_of(claimed.jobs) == [id_of(n) for n in (0, 1, 10, 20, 21, 22, 23, 24)]

    def test_the_limit_counts_over_all_wants(self, store: Store) -> None:
        fill(store)
        claimed = claim(store, *LANES, most=2, limit=5)
        assert ids_of(claimed.jobs) == [id_of(n) for n in (0, 1, 10, 11, 20)]

    def test_many_lanes_are_claimed_from_in_one_call(self, store: Store) -> None:
        lanes = [lane_of(tenant=f"tenant {number}") for number in range(200)]
        put_in(store, *(new_job(number, lane=lane) for number, lane in enumerate(lanes)))
        claimed = claim(store, *reversed(lanes), limit=150)
        assert ids_of(claimed.jobs) == [id_of(number) for number in range(199, 49, -1)]
        assert len(claim(store, *lanes, limit=150, token=2).jobs) == 50

    def test_a_claim_of_no_lane_brings_nothing(self, store: Store) -> None:
        fill(store)
        claimed = claim(store)
        assert (list(claimed.jobs), dict(claimed.next_at_us)) == ([], {})

    def test_a_lane_is_left_unvisited_only_when_the_limit_is_reached(self, store: Store) -> None:
        fill(store)
        everything = claim(store, *LANES, lane_of(tenant="empty"), limit=100)
        assert set(everything.next_at_us) == {*LANES, lane_of(tenant="empty")}

    def test_next_at_counts_what_is_left_and_due(self, store: Store) -> None:
        fill(store)
        claimed = claim(store, *LANES, most=2)
        assert claimed.next_at_us == dict.fromkeys(LANES, NOW_US)

    def test_next_at_counts_what_is_claimed(self, store: Store) -> None:
        fill(store)
        claimed = claim(store, *LANES)
        assert claimed.next_at_us == dict.fromkeys(LANES, NOW_US + LEASE_US)
        assert_honest(store, claim(store, *LANES, now_us=NOW_US + 1, token=2))

    def test_next_at_counts_what_is_due_later(self, store: Store) -> None:
        lane = lane_of()
        put_in(store, new_job(1, lane=lane), new_job(2, at_us=NOW_US + 5, lane=lane))
        assert claim(store, lane, now_us=NOW_US - 1).next_at_us == {lane: NOW_US}
        assert claim(store, lane).next_at_us == {lane: NOW_US + 5}

    def test_an_empty_lane_has_no_next_at(self, store: Store) -> None:
        lane = lane_of()
        assert claim(store, lane).next_at_us == {lane: None}
        put_in(store, new_job(1))
        (job,) = claim(store, lane).jobs
        store.settle([Drop(job)])
        at_us = claim(store, lane, token=2).next_at_us[lane]
        assert at_us is None or store.scope == "network", "it may return what it has read before"
        assert at_us is None or at_us > NOW_US
        assert claim(store, lane, now_us=NOW_US + LEASE_US, token=3).next_at_us == {lane: None}

    def test_next_at_follows_every_verdict(self, store: Store) -> None:
        lane = lane_of()
        put_in(store, *new_jobs(3))
        for round_number in range(1, 5):
            now_us = NOW_US + round_number * 2 * LEASE_US
            claimed = claim(store, lane, limit=2, now_us=now_us, token=round_number)
            assert_honest(store, claimed)
            first, second = claimed.jobs
            store.settle([move(first, now_us + 9, token=100 + round_number), Drop(second)])
            assert_honest(store, claim(store, lane, now_us=now_us, limit=1, token=50))
            put_in(store, new_job(10 + round_number, at_us=now_us + 5, lane=lane))
            assert_honest(store, claim(store, lane, now_us=now_us, limit=1, token=51))
