"""A lane that can only be read in pieces while a row of it moves, without a node."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from dueline.store_tests.calls import lane_of
from dueline.stores.cursor_cache import START

if find_spec("cassandra") is None:
    pytest.skip("cassandra is absent: the driver is not installed", allow_module_level=True)

from dueline.stores.cassandra.lane_index import CassandraLaneStorage
from tests.harness.cases import cassandra_pieces as cases
from tests.harness.cases.cassandra_pieces import Lane, board_on, move


@pytest.fixture
def lane() -> Lane:
    return Lane()


@pytest.fixture
def board(lane: Lane) -> CassandraLaneStorage:
    return board_on(lane)


def test_a_row_that_moves_to_a_piece_that_was_read_is_found(
    lane: Lane, board: CassandraLaneStorage
) -> None:
    cases.a_row_that_moves_to_a_piece_that_was_read_is_found(lane, board)


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
