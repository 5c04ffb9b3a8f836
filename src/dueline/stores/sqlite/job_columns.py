"""Jobs of a lane by columns.

Most waiting jobs have the same values in most columns: one flag a row says so, which costs a third
of reading them.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from dueline.core.job import JobId
from dueline.core.job_columns import RESTING, Column, JobColumns, Same, Sample, by_name
from dueline.core.lane import Lane
from dueline.core.store import Place
from dueline.stores.sqlite import job_rows
from dueline.stores.sqlite.connection import Database, fetch, first
from dueline.stores.sqlite.jobs import GREATEST, LEAST, number_of

_PLACE: Final = ("at_us", "id")
_STEP: Final = (
    "SELECT at_us, id FROM jobs WHERE lane = ? AND (at_us, id) > (?, ?)"
    " ORDER BY at_us, id LIMIT 1 OFFSET ?"
)


def walk(
    database: Database,
    lane: Lane,
    names: frozenset[str],
    *,
    after: Place | None,
    until: Place | None,
    limit: int,
    different: frozenset[str],
) -> JobColumns:
    """Read a page of a lane by columns, in (at, id) order."""
    number = number_of(database, lane)
    if number is None:
        return JobColumns(0, {}, None)
    bound = (number, *(after or (LEAST, b"")), *(until or (GREATEST, b"")), limit)
    resting = names & RESTING.keys()
    if not resting & different:
        read = (*_PLACE, *sorted(names - RESTING.keys() - {*_PLACE}))
        rows = fetch(database, _query(read, tuple(sorted(resting))), bound)
        if not any(row[-1] for row in rows):
            columns: dict[str, Column] = {name: Same(RESTING[name]) for name in resting}
            return _page(rows, read, names, limit, columns)
    read = (*_PLACE, *sorted(names - {*_PLACE}))
    return _page(fetch(database, _query(read, ()), bound), read, names, limit, {})


def _page(
    rows: list[tuple[object, ...]],
    read: Sequence[str],
    names: frozenset[str],
    limit: int,
    columns: dict[str, Column],
) -> JobColumns:
    after: Place | None = rows[-1][:2] if len(rows) == limit else None  # type: ignore[assignment]
    return JobColumns(len(rows), columns | by_name(rows, (*read, ""), names), after)


@lru_cache
def _query(read: tuple[str, ...], resting: tuple[str, ...]) -> str:
    """Return the query of a page: columns, and whether one of others has no usual value."""
    columns = [job_rows.WHOLE_BODY if name == "body" else name for name in read]
    flags = " OR ".join(f"{name} <> {_literal(RESTING[name])}" for name in resting)
    return (
        f"SELECT {', '.join([*columns, flags or '0'])} FROM jobs"  # noqa: S608
        " WHERE lane = ? AND (at_us, id) > (?, ?) AND (at_us, id) <= (?, ?)"
        " ORDER BY at_us, id LIMIT ?"
    )


def _literal(value: object) -> str:
    if isinstance(value, int):
        return str(int(value))
    return "x''" if isinstance(value, bytes) else "''"


def sample(database: Database, lanes: Sequence[Lane], *, most: int) -> Sample:
    """Count rows, and step over them by the index."""
    numbers = {lane: number_of(database, lane) for lane in lanes}
    counts = {
        lane: first(database, "SELECT count(*) FROM jobs WHERE lane = ?", (number,))
        for lane, number in numbers.items()
    }
    step = max(1, sum(counts.values()) // most)
    places: dict[Lane, list[Place]] = {lane: [] for lane in lanes}
    for lane, count in counts.items():
        place = LEAST, JobId(b"")
        for _ in range(count // step):
            bound = (numbers[lane], *place, step - 1)
            if (place := first(database, _STEP, bound)) is None:  # rows went meanwhile
                break
            places[lane].append(place)
    return Sample(step, places)
