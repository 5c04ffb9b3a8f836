"""A lane that can only be read in pieces while a row of it moves, without a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from dueline.store_tests.calls import NOW_US, id_of, lane_of
from dueline.stores.cassandra.connection import TooManyTombstones
from dueline.stores.cassandra.lane_index import CassandraLaneStorage
from dueline.stores.cassandra.lane_reader import LanePages
from dueline.stores.cursor_cache import END, START, Key

if TYPE_CHECKING:
    from dueline.core.errors import DuelineError
    from dueline.stores.cassandra.answers import Rows
    from dueline.stores.cassandra.session import Call, CassandraSession


LATER, EARLIER = 2**62, 1
"""Positions in two pieces; the second of them is read first."""


class Lane:
    """A session to a lane of one row, which fails readings of the whole lane."""

    def __init__(self) -> None:
        self.pos_us = LATER
        self.readings: list[tuple[Key, Key]] = []
        self.between: Callable[[], None] = lambda: None

    def try_read_many(self, calls: Sequence[Call]) -> list[Rows | DuelineError]:
        found: list[Rows | DuelineError] = []
        for call in calls:
            try:
                found.append(self.read(*call))
            except TooManyTombstones as error:
                found.append(error)
        return found

    def read(self, text: str, values: Sequence[object]) -> Rows:
        after = cast("Key", tuple(values[5:8]))
        until = cast("Key", tuple(values[8:11])) if "<=" in text else END
        if (after, until) == (START, END):
            raise TooManyTombstones
        self.readings.append((after, until))
        key = (self.pos_us, id_of(1), 0)
        rows = [(*key, NOW_US + 1, b"token")] if after < key <= until else []
        if after < (EARLIER, id_of(1), 0) <= until:
            self.between()
        return cast("Rows", rows)


def board_on(lane: Lane) -> CassandraLaneStorage:
    session = cast("CassandraSession", lane)
    return CassandraLaneStorage(session, LanePages(session))


def move(lane: Lane) -> None:
    lane.pos_us = EARLIER


def a_row_that_moves_to_a_piece_that_was_read_is_found(
    lane: Lane, board: CassandraLaneStorage
) -> None:
    lane.between = lambda: move(lane)
    assert list(board.ats_us(lane_of())) == [NOW_US + 1]
    assert lane.pos_us == EARLIER
