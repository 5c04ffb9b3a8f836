"""A claimer's memory, over a lane in a dictionary."""

import random

import pytest

from dueline.core.clock import BEHIND_US, SECOND_US
from dueline.core.job import JobId, Token
from dueline.core.lane import Lane
from dueline.stores.cursor_cache import (
    AGE_US_MAX,
    CHECKED_MAX,
    FIRST_PAGE_MAX,
    LATE_US,
    PAGE_MAX,
    REREAD_US,
    START,
    CursorCache,
    Key,
    LaneScan,
    Page,
    RowVersion,
)

NOW_US = 1_000 * SECOND_US
LEASE_US = 30 * SECOND_US
LANE = Lane("q", 0, 1000, 0, "")


def key(pos_us: int, number: int = 0, hop: int = 0) -> Key:
    return (pos_us, JobId(number.to_bytes(16)), hop)


def seen(at_us: int, token: int = 0) -> RowVersion:
    return RowVersion(at_us, Token(token.to_bytes(16)))


class FakeLane:
    """The rows of one lane, and what a claimer reads of them."""

    def __init__(self, *, is_on: bool = True) -> None:
        self.rows: dict[Key, RowVersion] = {}
        self.cursors = CursorCache(is_on=is_on)
        self.read: list[Key] = []
        self.tokens = 0

    def born(self, pos_us: int, number: int = 0) -> Key:
        place = key(pos_us, number)
        self.rows[place] = seen(pos_us)
        return place

    def scan(self, now_us: int, most: int = 10, lane: Lane = LANE) -> LaneScan:
        """Read as much as the scan asks for."""
        scan = self.cursors.open(lane, now_us=now_us, lease_us=LEASE_US, most=most)
        self.read = []
        for place in scan.unconfirmed:
            scan.note(place, self.rows.get(place))
        while (page := scan.next_page()) is not None:
            past = sorted(place for place in self.rows if place > page.after)[: page.limit]
            self.read += past
            scan.take(page, [(place, self.rows[place]) for place in past])
        return scan

    def claim(self, now_us: int, most: int = 10) -> list[Key]:
        """Claim as a store does: on the condition of what was remembered, learning the rest."""
        scan = self.scan(now_us, most)
        won = []
        for place in scan.due(most):
            present = self.rows.get(place)
            if present is not None and present == scan.rows[place]:
                self.tokens += 1
                self.rows[place] = present = seen(now_us + LEASE_US, self.tokens)
                won.append(place)
            scan.note(place, present)
            self.cursors.learn(LANE, place, present)
        self.cursors.close(scan)
        return won

    def drop(self, place: Key) -> None:
        del self.rows[place]
        self.cursors.learn(LANE, place, None)

    def move(self, place: Key, at_us: int) -> None:
        self.tokens += 1
        self.rows[place] = seen(at_us, self.tokens)
        self.cursors.learn(LANE, place, self.rows[place])


NEWER = Lane("q", 0, 1001, 0, "")


@pytest.fixture
def lane() -> FakeLane:
    return FakeLane()


def test_the_first_rows_that_are_due_come_in_their_order(lane: FakeLane) -> None:
    third = lane.born(NOW_US - 10, 3)
    first = lane.born(NOW_US - 90, 2)
    second = lane.born(NOW_US - 90, 5)
    lane.born(NOW_US + 1, 1)
    assert lane.claim(NOW_US) == [first, second, third]


def test_a_row_that_was_put_back_is_claimed_by_its_new_time(lane: FakeLane) -> None:
    back = lane.born(NOW_US - 100, 1)
    lane.rows[back] = seen(NOW_US - 50, 9)
    others = [lane.born(NOW_US - 60 + n, n) for n in range(20)]
    assert lane.claim(NOW_US, most=12) == [*others[:10], back, others[10]]


def test_reading_goes_on_until_the_order_is_sure(lane: FakeLane) -> None:
    """Running rows at the lane's start say nothing of what is due."""
    for number in range(100):
        lane.rows[key(NOW_US - 900, number)] = seen(NOW_US + LEASE_US, 1)
    waiting = [lane.born(NOW_US - 500, number) for number in range(5)]
    assert lane.claim(NOW_US, most=3) == waiting[:3]


def test_a_visit_reads_no_more_than_it_needs(lane: FakeLane) -> None:
    for number in range(5000):
        lane.born(NOW_US - 500, number)
    lane.claim(NOW_US, most=100)
    assert len(lane.read) == 101


def test_pages_grow_to_their_bounds(lane: FakeLane) -> None:
    for number in range(9000):
        lane.rows[key(NOW_US - 900, number)] = seen(NOW_US + LEASE_US, 1)
    scan = lane.cursors.open(LANE, now_us=NOW_US, lease_us=LEASE_US, most=5000)
    limits = []
    while (page := scan.next_page()) is not None:
        limits.append((page.limit, page.is_first))
        past = sorted(place for place in lane.rows if place > page.after)[: page.limit]
        scan.take(page, [(place, lane.rows[place]) for place in past])
    assert limits[:3] == [(FIRST_PAGE_MAX, True), (PAGE_MAX, False), (PAGE_MAX, False)]
    assert scan.due(10) == []


def test_the_next_time_is_the_least_that_is_left(lane: FakeLane) -> None:
    assert lane.scan(NOW_US).next_at_us() is None
    lane.born(NOW_US + 7)
    assert lane.scan(NOW_US).next_at_us() == NOW_US + 7
    lane.born(NOW_US - 5, 1)
    lane.claim(NOW_US)
    assert lane.scan(NOW_US).next_at_us() == NOW_US + 7


def test_what_is_left_is_read_where_memory_alone_has_enough(lane: FakeLane) -> None:
    old = lane.born(NOW_US - 60 * SECOND_US)
    lane.claim(NOW_US)
    lane.move(old, NOW_US - 20 * SECOND_US)
    fresh = lane.born(NOW_US)
    scan = lane.scan(NOW_US, most=1)
    assert scan.due(1) == [old]
    assert fresh in scan.rows


def test_what_is_done_is_not_read_again(lane: FakeLane) -> None:
    done = [lane.born(NOW_US - 60 * SECOND_US, number) for number in range(50)]
    fresh = lane.born(NOW_US - 1)
    assert len(lane.claim(NOW_US, most=60)) == 51
    lane.read = []
    assert lane.claim(NOW_US + 1, most=60) == []
    assert lane.read == [fresh]
    assert not set(lane.read) & set(done)


def test_the_cursor_never_passes_what_was_not_read(lane: FakeLane) -> None:
    places = [lane.born(NOW_US - 60 * SECOND_US, number) for number in range(300)]
    claimed = [lane.claim(NOW_US + n, most=20) for n in range(15)]
    assert [place for batch in claimed for place in batch] == places


def test_what_is_left_due_is_read_again_and_what_is_done_is_not(lane: FakeLane) -> None:
    """A row behind the cursor must be fetched by itself before it can be claimed."""
    places = [lane.born(NOW_US - 60 * SECOND_US, number) for number in range(40)]
    assert lane.claim(NOW_US, most=10) == places[:10]
    lane.claim(NOW_US + 1, most=10)
    assert lane.read[0] == places[10]


def test_a_birth_that_lands_late_is_found_at_once_within_a_second(lane: FakeLane) -> None:
    lane.born(NOW_US - 50 * SECOND_US, 9)
    lane.claim(NOW_US)
    late = lane.born(NOW_US - LATE_US)
    assert lane.claim(NOW_US + 1) == [late]


def test_a_row_of_a_producer_that_is_behind_is_found_within_a_second(lane: FakeLane) -> None:
    lane.born(NOW_US - 50 * SECOND_US, 9)
    lane.claim(NOW_US)
    late = lane.born(NOW_US - BEHIND_US)
    assert lane.claim(NOW_US + REREAD_US - 1) == []
    assert lane.claim(NOW_US + REREAD_US) == [late]


def test_a_claim_that_another_process_released_is_found_within_a_second(lane: FakeLane) -> None:
    places = [lane.born(NOW_US - 50 * SECOND_US, number) for number in range(2 * CHECKED_MAX)]
    lane.claim(NOW_US, most=len(places))
    for place in (places[0], places[-1]):
        lane.rows[place] = seen(NOW_US, 999)
    assert lane.claim(NOW_US + REREAD_US - 1) == []
    assert lane.claim(NOW_US + REREAD_US) == [places[0]]
    assert lane.claim(NOW_US + 2 * REREAD_US) == [places[-1]]  # in turn
    lane.rows.pop(places[1])
    lane.claim(NOW_US + 3 * REREAD_US)
    assert places[1] not in lane.scan(NOW_US + 3 * REREAD_US).rows


def test_rows_are_read_again_once_a_second_and_no_others(lane: FakeLane) -> None:
    old = lane.born(NOW_US - 2 * BEHIND_US, 1)
    young = lane.born(NOW_US - BEHIND_US, 2)
    lane.claim(NOW_US)
    lane.claim(NOW_US + REREAD_US)
    assert (old in lane.read, young in lane.read) == (False, True)
    lane.claim(NOW_US + REREAD_US + 1)
    assert lane.read == []
    lane.drop(young)
    lane.claim(NOW_US + 2 * REREAD_US)
    assert young not in lane.scan(NOW_US + 2 * REREAD_US).rows


def test_a_birth_that_lands_later_is_found_when_the_memory_is_old(lane: FakeLane) -> None:
    lane.born(NOW_US - 50 * SECOND_US, 9)
    lane.claim(NOW_US)
    late = lane.born(NOW_US - 3 * BEHIND_US)
    assert lane.claim(NOW_US + AGE_US_MAX) == []
    assert lane.claim(NOW_US + AGE_US_MAX + 1) == [late]


def test_a_memory_grows_old_with_half_a_lease() -> None:
    for lease_us, age_us in ((2 * SECOND_US, SECOND_US), (10**12, AGE_US_MAX)):
        cursors = CursorCache()
        scan = cursors.open(LANE, now_us=NOW_US, lease_us=lease_us, most=1)
        scan.take(Page(START, 1), ())
        cursors.close(scan)
        young = cursors.open(LANE, now_us=NOW_US + age_us, lease_us=lease_us, most=1)
        cursors.abandon(young)
        old = cursors.open(LANE, now_us=NOW_US + age_us + 1, lease_us=lease_us, most=1)
        assert young.start > START
        assert old.start == START


def test_the_age_counts_from_the_start_of_the_reading_from_the_start(lane: FakeLane) -> None:
    lane.claim(NOW_US)
    lane.claim(NOW_US + AGE_US_MAX)
    assert lane.scan(NOW_US + AGE_US_MAX + 1).start == START


def test_a_present_that_falls_back_reads_from_the_start(lane: FakeLane) -> None:
    lane.claim(NOW_US)
    assert lane.scan(NOW_US - 1).start == START


def test_a_row_of_mine_comes_back_when_its_lease_ends(lane: FakeLane) -> None:
    old = lane.born(NOW_US - 60 * SECOND_US)
    assert lane.claim(NOW_US) == [old]
    for ahead_s in range(1, 30):
        assert lane.claim(NOW_US + ahead_s * SECOND_US) == []
    assert lane.claim(NOW_US + LEASE_US) == [old]


def test_known_rows_come_back_without_a_new_reading_from_the_start(lane: FakeLane) -> None:
    old = lane.born(NOW_US - 60 * SECOND_US)
    assert lane.claim(NOW_US) == [old]
    lane.move(old, NOW_US + 5)
    assert lane.claim(NOW_US + 5) == [old]
    assert lane.read == [], "it lies behind the cursor, and is known"


def test_what_others_did_is_learnt_from_a_refusal(lane: FakeLane) -> None:
    old = lane.born(NOW_US - 60 * SECOND_US)
    gone = lane.born(NOW_US - 60 * SECOND_US, 1)
    lane.claim(NOW_US)
    lane.move(old, NOW_US + 1)
    lane.move(gone, NOW_US + 1)
    lane.rows[old] = seen(NOW_US + 2 * SECOND_US, 77)  # unseen by this process
    del lane.rows[gone]
    assert lane.claim(NOW_US + SECOND_US) == []
    assert lane.scan(NOW_US + SECOND_US).next_at_us() == NOW_US + 2 * SECOND_US
    assert lane.claim(NOW_US + 2 * SECOND_US) == [old]


def test_a_row_that_was_moved_to_the_same_time_is_not_claimed_on_memory(lane: FakeLane) -> None:
    """Its token tells the versions apart; its fence would not."""
    old = lane.born(NOW_US - 60 * SECOND_US)
    lane.claim(NOW_US)
    lane.move(old, NOW_US + 5)
    lane.rows[old] = seen(NOW_US + 5, 99)
    assert lane.claim(NOW_US + 5) == []
    assert lane.claim(NOW_US + 6) == [old]


def test_a_birth_of_this_process_behind_the_cursor_is_known_at_once(lane: FakeLane) -> None:
    lane.claim(NOW_US)
    late = lane.born(NOW_US - 40 * SECOND_US)
    lane.cursors.learn_inserts(LANE, [(late, lane.rows[late])])
    assert lane.claim(NOW_US + 1) == [late]


def test_a_birth_that_is_repeated_tells_nothing_of_what_became_of_the_row(lane: FakeLane) -> None:
    old = lane.born(NOW_US - 60 * SECOND_US)
    birth = lane.rows[old]
    assert lane.claim(NOW_US) == [old]
    lane.cursors.learn_inserts(LANE, [(old, birth)])
    scan = lane.scan(NOW_US + 1)
    lane.cursors.learn_inserts(LANE, [(old, birth)])  # also while a scan is on its way
    lane.cursors.close(scan)
    assert lane.scan(NOW_US + 2).next_at_us() == NOW_US + LEASE_US


def test_a_birth_during_a_visit_is_remembered_after_it(lane: FakeLane) -> None:
    lane.claim(NOW_US)
    scan = lane.scan(NOW_US + 1)
    late = lane.born(NOW_US - 40 * SECOND_US)
    lane.cursors.learn_inserts(LANE, [(late, lane.rows[late])])
    lane.cursors.close(scan)
    assert lane.claim(NOW_US + 2) == [late]


def test_what_happens_during_a_visit_is_remembered_after_it(lane: FakeLane) -> None:
    old = lane.born(NOW_US - 60 * SECOND_US)
    gone = lane.born(NOW_US - 60 * SECOND_US, 1)
    lane.claim(NOW_US)
    scan = lane.scan(NOW_US + 1)
    lane.move(old, NOW_US + 5)
    lane.drop(gone)
    lane.cursors.close(scan)
    assert lane.scan(NOW_US + 2).next_at_us() == NOW_US + 5


def test_of_two_visits_at_once_neither_forgets_what_the_other_has_seen(lane: FakeLane) -> None:
    places = [lane.born(NOW_US - 60 * SECOND_US, number) for number in range(60)]
    assert lane.claim(NOW_US, most=10) == places[:10]
    short = lane.scan(NOW_US + 1, most=1)
    long = lane.scan(NOW_US + 1, most=40)
    for place in long.due(40):
        lane.rows[place] = seen(NOW_US + LEASE_US, 99)
        long.note(place, lane.rows[place])
    lane.cursors.close(long)
    lane.cursors.close(short)
    scan = lane.scan(NOW_US + 2, most=60)
    assert set(scan.rows) == set(places)
    assert set(lane.read) == set(places[50:])


def test_a_visit_whose_memory_was_replaced_is_not_remembered(lane: FakeLane) -> None:
    """It does not know what the reading from the start has found behind its cursor."""
    lane.born(NOW_US - 60 * SECOND_US)
    lane.claim(NOW_US)
    stale = lane.scan(NOW_US + 1)
    late = lane.born(NOW_US - 50 * SECOND_US)
    lane.cursors.close(lane.scan(NOW_US + AGE_US_MAX + 1))
    lane.cursors.close(stale)
    assert lane.claim(NOW_US + AGE_US_MAX + 2) == [late]


def test_an_abandoned_visit_changes_nothing(lane: FakeLane) -> None:
    old = lane.born(NOW_US - 60 * SECOND_US)
    scan = lane.scan(NOW_US)
    lane.cursors.abandon(scan)
    assert lane.claim(NOW_US) == [old]


def test_a_lane_that_is_left_for_the_next_is_read_once_more(lane: FakeLane) -> None:
    lane.born(NOW_US - 50 * SECOND_US, 9)
    lane.claim(NOW_US)
    late = lane.born(NOW_US - 2 * LATE_US)
    lane.cursors.close(lane.cursors.open(NEWER, now_us=NOW_US, lease_us=LEASE_US, most=1))
    assert lane.claim(NOW_US + 1) == [late]
    assert lane.scan(NOW_US + 2).start > START


def test_a_lane_of_another_tenant_leaves_none_behind(lane: FakeLane) -> None:
    lane.claim(NOW_US)
    other = NEWER._replace(tenant="other")
    lane.cursors.close(lane.cursors.open(other, now_us=NOW_US, lease_us=LEASE_US, most=1))
    assert lane.scan(NOW_US + 1).start > START


def test_without_memory_every_visit_starts_at_the_start() -> None:
    lane = FakeLane(is_on=False)
    old = lane.born(NOW_US - 60 * SECOND_US)
    assert lane.claim(NOW_US) == [old]
    assert lane.scan(NOW_US + 1).start == START
    assert lane.read == [old]


@pytest.mark.parametrize("seed", range(40))
def test_a_remembering_claimer_claims_what_a_forgetful_one_would(seed: int) -> None:
    """One process alone: births (also late ones), drops, moves, and claims of any size."""
    chance = random.Random(seed)
    lane = FakeLane()
    now_us = NOW_US
    for step in range(120):
        now_us += chance.choice((0, 1, SECOND_US // 3, 4 * SECOND_US))
        act = chance.random()
        if act < 0.4:
            place = lane.born(now_us - chance.choice((0, 0, 5, 30)) * SECOND_US, step)
            lane.cursors.learn(LANE, place, lane.rows[place])
        elif act < 0.6 and lane.rows:
            place = chance.choice(sorted(lane.rows))
            if chance.random() < 0.5:
                lane.drop(place)
            else:
                lane.move(place, max(place[0], now_us + chance.randrange(-5, 20) * SECOND_US))
        else:
            most = chance.choice((1, 3, 20))
            due = sorted((row.at_us, place[1], place) for place, row in lane.rows.items())
            expected = [place for at_us, _, place in due if at_us <= now_us][:most]
            assert lane.claim(now_us, most) == expected
            least = min((row.at_us for row in lane.rows.values()), default=None)
            scan = lane.scan(now_us, most)
            assert scan.next_at_us() == least
            lane.cursors.abandon(scan)
