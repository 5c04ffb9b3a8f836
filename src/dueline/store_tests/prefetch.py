"""Laws of prefetch."""

from dueline.core.job import State
from dueline.core.lane import Lane
from dueline.core.store import Drop, Extend, Lease, Store, Want
from dueline.core.store_capabilities import PrefetchResult, SupportsPrefetch
from dueline.store_tests.calls import (
    LEASE_US,
    NOW_US,
    claim,
    id_of,
    ids_of,
    lane_of,
    move,
    new_job,
    put_in,
    row_with,
    rows_in,
    token_of,
)

UNTIL_US = NOW_US + 1000


def ahead(
    store: Store,
    *lanes: Lane,
    most: int = 100,
    limit: int = 100,
    until_us: int = UNTIL_US,
    token: int = 1,
) -> PrefetchResult:
    """Prefetch jobs; none from a store that does not support it."""
    if not isinstance(store, SupportsPrefetch):
        return PrefetchResult([], {})
    return store.prefetch(
        [Want(lane, most) for lane in lanes],
        limit=limit,
        until_us=until_us,
        lease=Lease(NOW_US, LEASE_US, "host:1", token_of(token)),
    )


class PrefetchLaws:
    """Prefetched jobs were waiting and become due soon; the lease starts at the due time."""

    def test_a_claim_ahead_takes_what_waits_for_a_time_soon_to_come(self, store: Store) -> None:
        lane = lane_of()
        for number, at_us in enumerate((NOW_US, NOW_US + 1, UNTIL_US, UNTIL_US + 1)):
            put_in(store, new_job(number, at_us=at_us, lane=lane))
        claimed = ahead(store, lane)
        if isinstance(store, SupportsPrefetch):
            starts = [(job.job.id, job.start_us) for job in claimed.jobs]
            assert starts == [(id_of(1), NOW_US + 1), (id_of(2), UNTIL_US)]
            assert claimed.next_at_us == {lane: NOW_US}
        assert ids_of(claim(store, lane, token=2).jobs) == [id_of(0)]

    def test_a_lease_taken_ahead_counts_from_the_jobs_time(self, store: Store) -> None:
        put_in(store, new_job(1, at_us=NOW_US + 7, lane=lane_of()))
        for job, start_us in ahead(store, lane_of(), token=7).jobs:
            assert start_us == NOW_US + 7
            assert job == new_job(1, at_us=NOW_US + 7, lane=lane_of())._replace(
                at_us=NOW_US + 7 + LEASE_US,
                fence=1,
                token=token_of(7),
                worker="host:1",
                claimed_us=NOW_US,
                state=State.CLAIMED,
            )
            assert rows_in(store, lane_of()) == [job]
        end_us = NOW_US + 7 + (LEASE_US if isinstance(store, SupportsPrefetch) else 0)
        assert ids_of(claim(store, lane_of(), now_us=end_us - 1, token=8).jobs) == []
        assert ids_of(claim(store, lane_of(), now_us=end_us, token=9).jobs) == [id_of(1)]

    def test_what_is_held_is_not_claimed_before_its_lease_ends(self, store: Store) -> None:
        put_in(store, new_job(1), new_job(2), new_job(3))
        (first, second, third) = claim(store, lane_of()).jobs
        store.settle([Extend(second, second.at_us, started=True)])
        decided = move(third, third.at_us)._replace(outcome=b"done")
        store.settle([decided])
        assert ahead(store, lane_of(), until_us=first.at_us, token=2).jobs == []

    def test_a_row_is_claimed_ahead_once(self, store: Store) -> None:
        put_in(store, *(new_job(number, at_us=NOW_US + 5, lane=lane_of()) for number in range(4)))
        claims = [ahead(store, lane_of(), limit=3, token=token) for token in (1, 2, 3)]
        if isinstance(store, SupportsPrefetch):
            numbers = [ids_of(job.job for job in claimed.jobs) for claimed in claims]
            assert numbers == [[id_of(0), id_of(1), id_of(2)], [id_of(3)], []]

    def test_a_verdict_holds_for_what_was_claimed_ahead(self, store: Store) -> None:
        lane = lane_of()
        put_in(store, *(new_job(number, at_us=NOW_US + 5, lane=lane) for number in (1, 2)))
        for (job, start_us), verdict in zip(ahead(store, lane).jobs, "md", strict=False):
            back = move(job, start_us) if verdict == "m" else Drop(job)
            assert store.settle([back, back]) == [True, False]
        if isinstance(store, SupportsPrefetch):
            (row,) = rows_in(store, lane)
            assert (row.at_us, row.state) == (NOW_US + 5, State.WAITING)

    def test_wants_and_limits_of_a_claim_ahead_hold(self, store: Store) -> None:
        lanes = [lane_of(tenant=tenant) for tenant in "abc"]
        for place, lane in enumerate(lanes):
            put_in(
                store, *(new_job(10 * place + n, at_us=NOW_US + 9 - n, lane=lane) for n in range(3))
            )
        claimed = ahead(store, *reversed(lanes), most=2, limit=5)
        if isinstance(store, SupportsPrefetch):
            numbers = ids_of(job.job for job in claimed.jobs)
            assert numbers == [id_of(n) for n in (22, 21, 12, 11, 2)]
            assert row_with(store, id_of(0)).state == State.WAITING
        assert ahead(store).jobs == []
