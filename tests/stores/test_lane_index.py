"""The lane list's algorithms, over a board of lists."""

from collections.abc import Callable, Collection, Iterable, Sequence

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreUnavailable
from dueline.core.lane import Lane, Marks, Pointer, bucket_of
from dueline.stores.lane_index import NOTHING_CLOSED, ROUNDS_MAX, LaneHead, LaneIndex, Shard

WIDTH_US = 10 * SECOND_US
NOW_US = 1000 * WIDTH_US + 5 * SECOND_US
SHARD = Shard("q", 0)


LANE = Lane("q", 0, 1000, 0, "")


class FakeBoard:
    """A board in lists, which tells what was done to it; `before` may interfere with a step."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.present = NOTHING_CLOSED
        self.listed: set[Pointer] = set()
        self.dead: set[Pointer] = set()
        self.rows: dict[Lane, list[int]] = {}
        self.before: Callable[[str], object] = lambda _step: None
        self.heads_of = 0

    def _step(self, name: str) -> None:
        self.before(name)
        self.steps.append(name)

    def closed(self, shards: Sequence[Shard]) -> Sequence[int]:
        self._step("look")
        return [self.present.closed for _ in shards]

    def marks(self, shard: Shard) -> Marks:
        assert shard == SHARD
        self._step("marks")
        return self.present

    def raise_marks(self, shard: Shard, *, old: Marks, new: Marks) -> bool:
        assert shard == SHARD
        self._step("raise")
        if self.present != old:
            return False
        self.present = new
        return True

    def put(self, pointers: Collection[Pointer]) -> None:
        self._step("put")
        self.listed |= set(pointers) - self.dead

    def remove(self, pointers: Collection[Pointer]) -> None:
        self._step("remove")
        self.listed -= set(pointers)
        self.dead |= set(pointers)

    def heads(self, lanes: Sequence[Lane]) -> Sequence[LaneHead | None]:
        if not self.heads_of:
            return [None] * len(lanes)
        self._step("heads")
        lists = [self.rows.get(lane, []) for lane in lanes]
        return [LaneHead(rows[: self.heads_of], len(rows) < self.heads_of) for rows in lists]

    def pointers(self, shard: Shard, *, above: int, until: int) -> Iterable[Pointer]:
        assert shard == SHARD
        self._step("pointers")
        return [pointer for pointer in self.listed if above < pointer.listing <= until]

    def ats_us(self, lane: Lane) -> Iterable[int]:
        self._step("rows")
        return list(self.rows.get(lane, ()))


def at_step(number: int, name: str, act: Callable[[], object]) -> Callable[[str], object]:
    """Interfere before the n-th step of a name."""
    left = [number]

    def before(step: str) -> None:
        left[0] -= step == name
        if step == name and left[0] == 0:
            act()

    return before


def sweep(board: FakeBoard, now_us: int = NOW_US, lists: LaneIndex | None = None) -> Marks:
    return (lists or LaneIndex(board)).sweep(SHARD, now_us=now_us, width_us=WIDTH_US)


def closed_with(board: FakeBoard, closed: int, *pointers: Pointer) -> None:
    board.present = Marks(-1, closed)
    board.listed = set(pointers)


OTHER = Lane("q", 0, 1000, 7, "")


@pytest.fixture(params=[0, 1, 8], ids=["no heads", "a head", "heads"])
def board(request: pytest.FixtureRequest) -> FakeBoard:
    """Make a board that tells so many of the first rows of many lanes at once."""
    made = FakeBoard()
    made.heads_of = request.param
    return made


def write(board: FakeBoard, lane: Lane = LANE, at_us: int = NOW_US) -> Callable[[], str]:
    def do() -> str:
        board._step("write")
        board.rows.setdefault(lane, []).append(at_us)
        return "written"

    return do


# Acknowledging


def test_a_lane_is_listed_then_written_then_looked_at(board: FakeBoard) -> None:
    answer, unknown = LaneIndex(board).acknowledge({LANE: 1000}, write(board))
    assert (answer, unknown) == ("written", frozenset())
    assert board.steps == ["look", "put", "write", "look"]
    assert board.listed == {Pointer(1000, LANE)}


def test_a_closed_bucket_is_never_listed_under(board: FakeBoard) -> None:
    board.present = Marks(swept=-1, closed=1005)
    LaneIndex(board).acknowledge({LANE: 1000}, write(board))
    assert board.listed == {Pointer(1006, LANE)}


def test_what_was_closed_during_the_write_is_listed_again_above(board: FakeBoard) -> None:
    board.before = at_step(1, "write", lambda: board.__setattr__("present", Marks(-1, 1003)))
    _, unknown = LaneIndex(board).acknowledge({LANE: 1000}, write(board))
    assert unknown == frozenset()
    assert Pointer(1004, LANE) in board.listed
    assert board.steps == ["look", "put", "write", "look", "put", "look"]
    assert board.rows[LANE] == [NOW_US], "never a second row"


def test_only_the_lane_that_was_closed_is_listed_again(board: FakeBoard) -> None:
    board.before = at_step(1, "write", lambda: board.__setattr__("present", Marks(-1, 1003)))
    LaneIndex(board).acknowledge({LANE: 1000, OTHER: 2000}, write(board))
    assert board.listed == {Pointer(1000, LANE), Pointer(2000, OTHER), Pointer(1004, LANE)}


def test_after_five_rounds_a_write_is_unknown(board: FakeBoard) -> None:
    def close_more() -> None:
        board.present = Marks(-1, board.present.closed + 5000)

    board.before = lambda step: close_more() if step == "look" else None
    answer, unknown = LaneIndex(board).acknowledge({LANE: 1000}, write(board))
    assert answer == "written"
    assert unknown == {LANE}
    assert board.steps.count("look") == 1 + ROUNDS_MAX


def test_a_look_that_fails_makes_the_write_unknown(board: FakeBoard) -> None:
    def fail() -> None:
        raise StoreUnavailable

    board.before = at_step(2, "look", fail)
    answer, unknown = LaneIndex(board).acknowledge({LANE: 1000}, write(board))
    assert answer == "written"
    assert unknown == {LANE}


def test_a_list_that_fails_before_the_write_leaves_nothing(board: FakeBoard) -> None:
    def fail() -> None:
        raise StoreUnavailable

    board.before = at_step(1, "put", fail)
    with pytest.raises(StoreUnavailable):
        LaneIndex(board).acknowledge({LANE: 1000}, write(board))
    assert board.rows == {}


def test_a_pointer_is_put_once_while_its_bucket_is_open(board: FakeBoard) -> None:
    lists = LaneIndex(board)
    for _ in range(3):
        lists.acknowledge({LANE: 1000}, write(board))
    assert board.steps.count("put") == 1
    assert board.steps.count("look") == 4


def test_a_remembered_pointer_is_put_anew_once_its_bucket_is_closed(board: FakeBoard) -> None:
    lists = LaneIndex(board)
    lists.acknowledge({LANE: 1000}, write(board))
    board.present = Marks(1000, 1000)
    board.remove([Pointer(1000, LANE)])
    lists.acknowledge({LANE: 1000}, write(board))
    assert board.listed == {Pointer(1001, LANE)}


def test_the_lowest_listing_is_kept_for_each_shard(board: FakeBoard) -> None:
    far = Lane("q", 1, 1000, 0, "")
    LaneIndex(board).acknowledge({LANE: 1000, far: 1002}, write(board))
    assert board.listed == {Pointer(1000, LANE), Pointer(1002, far)}


# Sweeping


def test_a_sweep_goes_in_its_order(board: FakeBoard) -> None:
    closed_with(board, 1000, Pointer(1000, LANE))
    sweep(board, NOW_US + 10 * WIDTH_US)
    look = "heads" if board.heads_of else "rows"
    assert board.steps == ["marks", "pointers", look, "remove", "raise"]


def test_an_empty_lane_of_a_closed_bucket_is_unlisted(board: FakeBoard) -> None:
    closed_with(board, 1000, Pointer(1000, LANE))
    assert sweep(board).swept == 1000
    assert board.listed == set()


def test_a_lane_above_closed_is_not_looked_at(board: FakeBoard) -> None:
    closed_with(board, 999, Pointer(1000, LANE))
    sweep(board)
    assert board.listed == {Pointer(1000, LANE)}
    assert "rows" not in board.steps


def test_closed_is_read_before_any_lane_is_looked_at(board: FakeBoard) -> None:
    """A late reading of it unlists a lane into which an acknowledged write has just come."""
    lists = LaneIndex(board)
    board.listed = {Pointer(1000, LANE)}

    def close_meanwhile() -> None:
        board.present = Marks(-1, 1000)

    board.present = Marks(-1, 999)
    board.before = at_step(1, "pointers", close_meanwhile)
    sweep(board, lists=lists)
    assert board.listed == {Pointer(1000, LANE)}
    assert board.present.swept <= 999


def test_a_lane_is_read_to_its_end_before_it_is_listed_later(board: FakeBoard) -> None:
    """Rows lie by position: the first may be due later than one behind it."""
    closed_with(board, 1000, Pointer(1000, LANE))
    board.rows[LANE] = [NOW_US + 900 * WIDTH_US, NOW_US - 1]
    marks = sweep(board)
    assert board.listed == {Pointer(1000, LANE)}
    assert marks.swept == 999


def test_a_lane_of_future_rows_is_listed_under_the_least_of_them(board: FakeBoard) -> None:
    closed_with(board, 1000, Pointer(1000, LANE))
    board.rows[LANE] = [NOW_US + 90 * WIDTH_US, NOW_US + 50 * WIDTH_US, NOW_US + 70 * WIDTH_US]
    assert sweep(board).swept == 1000
    assert board.listed == {Pointer(1050, LANE)}
    assert board.steps.index("remove") > board.steps.index("put")


def test_a_lane_that_is_listed_later_is_read_once_more(board: FakeBoard) -> None:
    """A row hops to before where the first reading had come to, and its mover dies."""
    closed_with(board, 1000, Pointer(1000, LANE))
    board.rows[LANE] = [NOW_US + 90 * WIDTH_US]
    board.before = at_step(1, "put", lambda: board.rows[LANE].append(NOW_US + 50 * WIDTH_US))
    assert sweep(board).swept == 1000
    assert board.listed == {Pointer(1090, LANE), Pointer(1050, LANE)}


def test_a_lane_stays_where_it_is_when_the_second_reading_finds_a_due_row(
    board: FakeBoard,
) -> None:
    closed_with(board, 1000, Pointer(1000, LANE))
    board.rows[LANE] = [NOW_US + 90 * WIDTH_US]
    board.before = at_step(1, "put", lambda: board.rows[LANE].append(NOW_US))
    assert sweep(board).swept == 999
    assert Pointer(1000, LANE) in board.listed


def test_a_lane_of_future_rows_is_never_listed_under_a_closed_bucket(board: FakeBoard) -> None:
    lists = LaneIndex(board)
    lists.acknowledge({OTHER: 1000}, write(board, OTHER))
    closed_with(board, 2000, Pointer(1000, LANE))
    board.rows[LANE] = [NOW_US + 50 * WIDTH_US]
    sweep(board, lists=lists)
    assert board.listed == {Pointer(2001, LANE)}


def test_a_lane_that_cannot_be_listed_later_stays_where_it_is(board: FakeBoard) -> None:
    closed_with(board, 1000, Pointer(1000, LANE))
    board.rows[LANE] = [NOW_US + 50 * WIDTH_US]

    def close_more() -> None:
        board.present = Marks(-1, board.present.closed + 5000)

    board.before = lambda step: close_more() if step == "look" else None
    assert sweep(board).swept == 999
    assert Pointer(1000, LANE) in board.listed


def test_swept_stops_below_the_first_lane_that_stays(board: FakeBoard) -> None:
    closed_with(board, 1000, Pointer(990, OTHER), Pointer(995, LANE), Pointer(1000, OTHER))
    board.rows[LANE] = [NOW_US]
    assert sweep(board).swept == 994
    assert board.listed == {Pointer(995, LANE)}


def test_closed_stays_behind_the_present_by_the_guard(board: FakeBoard) -> None:
    edge_us = 1001 * WIDTH_US
    assert sweep(board, edge_us + 2 * SECOND_US - 1).closed == 999
    assert sweep(board, edge_us + 2 * SECOND_US).closed == 1000


def test_marks_never_fall(board: FakeBoard) -> None:
    board.present = Marks(700, 5000)
    assert sweep(board) == Marks(5000, 5000)
    board.present = Marks(6000, 6000)
    assert sweep(board, 0) == Marks(6000, 6000)


def test_of_two_sweeps_at_once_both_marks_are_the_higher(board: FakeBoard) -> None:
    closed_with(board, 900)
    board.before = at_step(1, "raise", lambda: board.__setattr__("present", Marks(-1, 5000)))
    assert sweep(board) == Marks(900, 5000)


def test_a_sweep_tells_its_list_what_is_closed(board: FakeBoard) -> None:
    lists = LaneIndex(board)
    lists.acknowledge({LANE: 1000}, write(board))
    sweep(board, NOW_US + 9 * WIDTH_US, lists)
    assert bucket_of(NOW_US + 9 * WIDTH_US - 2 * SECOND_US, WIDTH_US) == 1009
    lists.acknowledge({LANE: 1000}, write(board))
    assert board.listed == {Pointer(1000, LANE), Pointer(1009, LANE)}
