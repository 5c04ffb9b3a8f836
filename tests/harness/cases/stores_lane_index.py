"""The lane list's algorithms, over a board of lists."""

from collections.abc import Callable, Collection, Iterable, Sequence

from dueline.core.clock import SECOND_US
from dueline.core.lane import Lane, Marks, Pointer
from dueline.stores.lane_index import NOTHING_CLOSED, LaneHead, LaneIndex, Shard

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
        some = [self.rows.get(lane, []) for lane in lanes]
        return [LaneHead(rows[: self.heads_of], len(rows) < self.heads_of) for rows in some]

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


def closed_is_read_before_any_lane_is_looked_at(board: FakeBoard) -> None:
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


def a_lane_is_read_to_its_end_before_it_is_listed_later(board: FakeBoard) -> None:
    """Rows lie by position: the first may be due later than one behind it."""
    closed_with(board, 1000, Pointer(1000, LANE))
    board.rows[LANE] = [NOW_US + 900 * WIDTH_US, NOW_US - 1]
    marks = sweep(board)
    assert board.listed == {Pointer(1000, LANE)}
    assert marks.swept == 999


def a_lane_that_is_listed_later_is_read_once_more(board: FakeBoard) -> None:
    """A row hops to before where the first reading had come to, and its mover dies."""
    closed_with(board, 1000, Pointer(1000, LANE))
    board.rows[LANE] = [NOW_US + 90 * WIDTH_US]
    board.before = at_step(1, "put", lambda: board.rows[LANE].append(NOW_US + 50 * WIDTH_US))
    assert sweep(board).swept == 1000
    assert board.listed == {Pointer(1090, LANE), Pointer(1050, LANE)}
