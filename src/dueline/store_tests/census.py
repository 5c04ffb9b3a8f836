"""What a store tells of the lanes that hold rows."""

from dueline.core.lane import Lane
from dueline.core.store import Drop, Store
from dueline.core.store_capabilities import Census
from dueline.store_tests.given import born, claim, lane_of, put_in

LANES = [lane_of(tenant=f"t{number}", priority=number % 3) for number in range(20)]
A_PAGE = 3


def counted(store: Store, *, limit: int = A_PAGE) -> set[Lane]:
    """Go through all lanes; a store that has no census tells of none."""
    found: set[Lane] = set()
    after: str | None = None
    while isinstance(store, Census):
        page = store.lanes_held(after=after, limit=limit)
        assert len(page.lanes) <= limit
        assert len(set(page.lanes)) == len(page.lanes)
        found.update(page.lanes)
        if page.after is None:
            break
        assert page.after != after, "it goes on"
        after = page.after
    return found


class CensusLaws:
    """Every lane that holds a row is told of, wherever it is listed; a store may have no census."""

    def test_every_lane_that_holds_a_row_is_told_of(self, store: Store) -> None:
        put_in(store, *(born(number, lane=lane) for number, lane in enumerate(LANES)))
        put_in(store, born(30, lane=LANES[0]), born(31, lane=LANES[0]))
        claim(store, LANES[1])
        expected = set(LANES) if isinstance(store, Census) else set()
        assert counted(store) == expected
        assert counted(store, limit=1000) == expected

    def test_a_lane_that_holds_no_row_any_more_is_not(self, store: Store) -> None:
        put_in(store, *(born(number, lane=lane) for number, lane in enumerate(LANES)))
        for lane in LANES[4:]:
            (job,) = claim(store, lane).jobs
            assert store.settle([Drop(job)]) == [True]
        assert counted(store) == (set(LANES[:4]) if isinstance(store, Census) else set())
        (job,) = claim(store, LANES[0]).jobs
        assert store.settle([Drop(job)]) == [True]
        assert counted(store) == (set(LANES[1:4]) if isinstance(store, Census) else set())

    def test_an_empty_store_holds_no_lane(self, store: Store) -> None:
        assert counted(store) == set()
