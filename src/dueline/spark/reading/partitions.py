"""The rows that each task reads: slices of about equal numbers of rows.

No Spark is needed here: `plan` and `rows_of` also serve other readers.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

from dueline.core.job import JobId
from dueline.core.job_columns import Sample
from dueline.core.lane import Lane
from dueline.core.store import Place, Row, Store
from dueline.core.store_capabilities import sample_of
from dueline.jobs.history_batch import size_of

Position = tuple[int, bytes]
"""A reader at this position has read all rows at or below it, in the order of (at_us, id)."""

START: Final[Position] = (0, b"")
PROBE: Final = 10_000
"""Minimum number of rows of a task, unless there are fewer: it costs as much as to read them."""

ROWS_A_TASK_MAX: Final = 500_000
"""A plan has more tasks than were asked for if each would read more rows than this."""

ROWS_MAX: Final = 2000
"""Maximum number of rows in one read: a bundle has about 10 KiB."""

PLACES: Final = 32
"""Places for each task at which lanes may be cut."""

LANES_PROBED_MAX: Final = 500
IDS_KEPT_MAX: Final = 1_000_000
_STEPS: Final = 32
"""Steps over all shards of a plan after which steps become twice as long: a part of all rows."""

_STEPS_MIN: Final = 4
_STEPS_OF_OTHERS: Final = 8
"""Steps over a shard that has as many rows as the largest one before."""

_SAMPLE: Final = 4
"""Number of rows after each step that say how many attempts a row holds there."""

_position, _id = attrgetter("at_us", "id"), attrgetter("id")


class RowSlice(NamedTuple):
    """Rows of one shard of a stream: after `after`, up to and including `until`.

    Attributes:
        is_asked: Whether the caller set the start; otherwise the oldest kept row is the start.
    """

    stream: str
    shard: int
    after: Position
    until: Position
    is_asked: bool = True


class LaneSlice(NamedTuple):
    """Rows of one lane: after `after`, up to and including `until`; None for no bound."""

    lane: Lane
    after: Position | None
    until: Position | None


Part = TypeVar("Part", RowSlice, LaneSlice)

_Probe = Callable[[Position, int], tuple[float, Position] | None]
"""Returns the position of the row behind some rows, and how many attempts a row holds there."""


def behind(mark_us: int) -> Position:
    """Return the position after all rows up to a watermark."""
    return (mark_us + 1, b"")


# Where to cut


def plan(store: Store, wholes: Iterable[RowSlice], parts: int) -> list[list[RowSlice]]:
    """Divide slices among about `parts` tasks with equal numbers of rows.

    Rows are counted in steps, and few of them are read. A slice may be cut anywhere, also inside a
    timestamp; its parts hold exactly its rows, in their order.

    Args:
        store: The store.
        wholes: The slices, such as whole shards from a position to the watermark; empty ones are
            omitted from the plan.
        parts: Number of tasks; there are fewer for few rows, and more for very many.
    """
    wholes = list(wholes)
    doubling = max(_STEPS_MIN, _STEPS // max(1, len(wholes)))
    first = PROBE // 1000
    counted = []
    for whole in wholes:
        probe = partial(_row_at, store, whole)
        pieces = list(_pieces(probe, whole.after, first, doubling=doubling, least=first // 2))
        counted.append((whole, [(rows * size, place) for rows, size, place in pieces]))
        first = max(first, sum(rows for rows, *_ in pieces) // _STEPS_OF_OTHERS)
    return _shares(counted, parts)


def cut_lanes(store: Store, lanes: Sequence[Lane], parts: int) -> list[list[LaneSlice]]:
    """Divide lanes among about `parts` tasks with equal numbers of jobs."""
    wholes = [LaneSlice(lane, None, None) for lane in lanes]
    sample = sample_of(store, lanes, most=PLACES * parts)
    if sample is not None:
        return _shares([(whole, _sampled(sample, whole.lane)) for whole in wholes], parts)
    if len(wholes) > LANES_PROBED_MAX:
        size = -(-len(wholes) // parts)
        return [wholes[start : start + size] for start in range(0, len(wholes), size)]
    counted = []
    for whole in wholes:
        pieces = _pieces(partial(_job_at, store, whole.lane), START, PROBE // 64)
        counted.append((whole, [(float(rows), place) for rows, _, place in pieces]))
    return _shares(counted, parts)


def _sampled(sample: Sample, lane: Lane) -> list[tuple[float, Position]]:
    """Return the pieces of a lane; what is behind its last place counts as half a piece."""
    places = sample.places.get(lane, ())
    return [*((sample.rows, place) for place in places), (sample.rows / 2, START)]


def _shares(
    counted: Sequence[tuple[Part, Sequence[tuple[float, Position]]]], parts: int
) -> list[list[Part]]:
    """Divide slices whose rows are counted, in their order."""
    total = sum(rows for _, pieces in counted for rows, _ in pieces)
    share = max(total / max(parts, total / ROWS_A_TASK_MAX, 1), min(PROBE, total))
    most = max(1, round(total / share)) if share else 1
    tasks: list[list[Part]] = [[]]
    done, goal = 0.0, share
    for whole, pieces in counted:
        after = whole.after
        for number, (rows, end) in enumerate(pieces, 1):
            done += rows
            is_full = done + rows / 2 >= goal and len(tasks) < most
            if number == len(pieces):
                tasks[-1].append(whole._replace(after=after))
            elif is_full:
                tasks[-1].append(whole._replace(after=after, until=end))
                after = end
            if is_full:
                tasks.append([])
                goal += share * max(1, (done + rows / 2 - goal) // share)
    return [task for task in tasks if task]


def _pieces(
    probe: _Probe, after: Position, first: int, *, doubling: int = 32, least: int = 0
) -> Iterator[tuple[int, float, Position]]:
    """Step over rows; yield how many each step passed, the size of one, and its last position.

    Args:
        probe: Finds rows.
        after: Where to begin.
        first: Number of rows that the first steps skip.
        doubling: After this number of steps, they become twice as long.
        least: Number of rows at the end that need not be counted, if there are others.
    """
    skip, steps, is_near_end = first, 0, False
    while True:
        step = probe(after, skip)
        if step is not None:
            size, after = step
            yield skip + 1, size, after
            steps += 1
            if not is_near_end and steps % doubling == 0:
                skip = 2 * skip + 1
        elif skip == 0 or (steps and skip <= least):
            return
        else:
            skip, is_near_end = skip // 2, True


def _row_at(store: Store, whole: RowSlice, after: Position, skip: int) -> (
    tuple[float, Position] | None
):  # fmt: skip
    rows = first_rows(store, whole._replace(after=after), _SAMPLE, skip=skip)
    return (sum(map(size_of, rows)) / len(rows), _position(rows[0])) if rows else None


def last_position(store: Store, whole: RowSlice) -> Position | None:
    """Return the position of the last row of a slice, which few reads find."""
    last = None
    for *_, place in _pieces(partial(_row_at, store, whole), whole.after, PROBE // 1000):
        last = place
    return last


def _job_at(store: Store, lane: Lane, after: Position, skip: int) -> tuple[float, Position] | None:
    past = None if after == START else _of_job(after)
    place = store.walk(lane, after=past, until=None, limit=1, skip=skip).after
    return (1, place) if place is not None else None


def _of_job(place: Position | None) -> Place | None:
    return None if place is None else (place[0], JobId(place[1]))


# Rows of streams


def first_rows(store: Store, whole: RowSlice, limit: int, *, skip: int = 0) -> Sequence[Row]:
    """Read the first rows of a slice, none beyond its end, which may lie inside a timestamp."""
    stream, shard, after, until, _ = whole
    rows = store.tail(stream, shard, after=after, limit=limit, until_us=until[0], skip=skip).rows
    return rows[: bisect_right(rows, until, key=_position)]


def rows_of(store: Store, part: RowSlice, *, page: int) -> Iterator[list[Row]]:
    """Yield the rows of a slice in pages; a row that is stored twice is returned once.

    Args:
        page: Number of rows of a page, where a bundle counts as its attempts.
    """
    rows: list[Row] = []
    size = 0
    for row, many in _sized(store, part, page):
        rows.append(row)
        size += many
        if size >= page:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def places_in(store: Store, part: RowSlice, most: int) -> Iterator[tuple[int, Position]]:
    """Yield cumulative counts of rows and their positions, until the count reaches `most`."""
    size = 0
    for row, many in _sized(store, part, most):
        size += many
        yield size, _position(row)
        if size >= most:
            return


def _sized(store: Store, part: RowSlice, page: int) -> Iterator[tuple[Row, int]]:
    """Yield rows and how many attempts each holds; a row that is stored twice once."""
    seen: set[bytes] = set()
    limit = min(page, ROWS_MAX)
    after: Position | None = part.after
    while after is not None:
        read = store.tail(part.stream, part.shard, after=after, limit=limit, until_us=part.until[0])
        rows = read.rows[: bisect_right(read.rows, part.until, key=_position)]
        is_last = len(rows) < len(read.rows) or len(read.rows) < limit
        ids = set(map(_id, rows))
        if len(ids) < len(rows) or not seen.isdisjoint(ids):  # never in transactional stores
            first = {row.id: row for row in reversed(rows) if row.id not in seen}
            rows = [row for row in rows if first.get(row.id) is row]
        if len(seen) > IDS_KEPT_MAX:
            seen.clear()
        seen |= ids
        yield from zip(rows, map(size_of, rows), strict=True)
        after = None if is_last else read.after
