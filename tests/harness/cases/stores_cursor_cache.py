"""A claimer's memory, over a lane in a dictionary."""

from dueline.core.clock import BEHIND_US, SECOND_US
from dueline.core.job import JobId, Token
from dueline.core.lane import Lane
from dueline.stores.cursor_cache import (
    AGE_US_MAX,
    CHECKED_MAX,
    LATE_US,
    REREAD_US,
    CursorCache,
    Key,
    LaneScan,
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


def a_birth_that_lands_late_is_found_at_once_within_a_second(lane: FakeLane) -> None:
    lane.born(NOW_US - 50 * SECOND_US, 9)
    lane.claim(NOW_US)
    late = lane.born(NOW_US - LATE_US)
    assert lane.claim(NOW_US + 1) == [late]


def a_row_of_a_producer_that_is_behind_is_found_within_a_second(lane: FakeLane) -> None:
    lane.born(NOW_US - 50 * SECOND_US, 9)
    lane.claim(NOW_US)
    late = lane.born(NOW_US - BEHIND_US)
    assert lane.claim(NOW_US + REREAD_US - 1) == []
    assert lane.claim(NOW_US + REREAD_US) == [late]


def a_claim_that_another_process_released_is_found_within_a_second(lane: FakeLane) -> None:
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


def a_birth_that_lands_later_is_found_when_the_memory_is_old(lane: FakeLane) -> None:
    lane.born(NOW_US - 50 * SECOND_US, 9)
    lane.claim(NOW_US)
    late = lane.born(NOW_US - 3 * BEHIND_US)
    assert lane.claim(NOW_US + AGE_US_MAX) == []
    assert lane.claim(NOW_US + AGE_US_MAX + 1) == [late]
