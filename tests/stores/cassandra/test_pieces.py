"""A lane that can only be read in pieces while a row of it moves, without a node."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from dueline.store_tests.calls import lane_of
from dueline.stores.cursor_cache import START

if find_spec("cassandra") is None:
    pytest.skip("cassandra is absent: the driver is not installed", allow_module_level=True)

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from dueline.store_tests.calls import NOW_US, id_of
from dueline.stores.cassandra.connection import TooManyTombstones
from dueline.stores.cassandra.lane_index import CassandraLaneStorage
from dueline.stores.cassandra.lane_reader import LanePages
from dueline.stores.cursor_cache import END, Key

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
        answers: list[Rows | DuelineError] = []
        for call in calls:
            try:
                answers.append(self.read(*call))
            except TooManyTombstones as error:
                answers.append(error)
        return answers

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


@pytest.fixture
def lane() -> Lane:
    return Lane()


@pytest.fixture
def board(lane: Lane) -> CassandraLaneStorage:
    return board_on(lane)


def test_a_row_that_moves_to_a_piece_that_was_read_is_found(
    lane: Lane, board: CassandraLaneStorage
) -> None:
    lane.between = lambda: move(lane)
    assert list(board.ats_us(lane_of())) == [NOW_US + 1]
    assert lane.pos_us == EARLIER


def test_a_lane_is_not_empty_by_its_first_rows_where_these_were_read_in_pieces(
    lane: Lane, board: CassandraLaneStorage
) -> None:
    lane.between = lambda: move(lane)
    (head,) = board.heads([lane_of()])
    assert head is not None
    assert (list(head.ats_us), head.is_all) == ([], False)


def test_an_empty_lane_in_pieces_is_read_twice_and_no_more(
    lane: Lane, board: CassandraLaneStorage
) -> None:
    lane.pos_us = -(2**63) - 1  # nowhere
    assert list(board.ats_us(lane_of())) == []
    firsts = [reading for reading in lane.readings if reading[0] == START]
    assert len(firsts) == 2
