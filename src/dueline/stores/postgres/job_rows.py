"""Jobs as rows of the table `jobs`: the columns are the fields of Job, in the same order."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from dueline.core.job import Job
from dueline.core.lane import Lane
from dueline.core.tuples import made
from dueline.stores.postgres.arrays import columns_of

COLUMNS: Final = Job._fields[1:]
"""All columns but the lane, for which the table has a number."""

SELECT: Final = ", ".join(f"jobs.{name}" for name in COLUMNS)

_NEW: Final = COLUMNS.index("at_us") + 1
_TYPES: Final = {
    str: "text", bytes: "bytea", bool: "boolean",
}  # fmt: skip
_EXAMPLE: Final = Job(Lane("", 0, 0, 0, ""), 0, b"", 0, 0, 0, "", 0, b"", b"", 0)  # type: ignore[arg-type]
TYPES: Final = tuple(_TYPES.get(type(value), "bigint") for value in _EXAMPLE[1:])
"""Types of the columns."""


def _insert(count: int, lane: str = "new.lane", source: str = "") -> str:
    """Return the statement that inserts rows of the first columns, given as arrays.

    Args:
      count: Number of columns.
      lane: The number of a row's lane.
      source: A join that gives the numbers of lanes.
    """
    names = COLUMNS[:count]
    values = ", ".join(
        "least(new.pos_us, new.at_us)" if name == "pos_us" else f"new.{name}" for name in names
    )
    arrays = ", ".join(["%s::bigint[]", *(f"%s::{kind}[]" for kind in TYPES[:count])])
    return (
        f"INSERT INTO @jobs (lane, {', '.join(names)})"
        f" SELECT {lane}, {values} FROM unnest({arrays}) AS new (lane, {', '.join(names)})"
        f"{source} ON CONFLICT (id) DO NOTHING"
    )


@lru_cache
def _insert_held(hold: str) -> str:
    insert = _insert(_NEW, "held.id", " JOIN held ON held.place = new.lane")
    return f"WITH held AS MATERIALIZED ({hold}), added AS ({insert}) SELECT count(*) FROM held"


def insert_held(
    hold: str, lanes: Sequence[list[object]], jobs: Sequence[Job]
) -> tuple[str, list[list[object]]]:
    """Return a statement that inserts jobs into the lanes that it holds, and its values.

    Args:
      hold: A query of the places and numbers of lanes that it locks.
      lanes: Values of the query: the lanes, in their order.
      jobs: New jobs in these lanes.
    """
    place_of = {lane: place for place, lane in enumerate(zip(*lanes[:5], strict=True), 1)}
    columns = columns_of(jobs)
    places: list[object] = [place_of[tuple(job.lane)] for job in jobs]
    return _insert_held(hold), [*lanes, places, *columns[1 : _NEW + 1]]


_INSERT_NEW: Final = _insert(_NEW)
_INSERT_WHOLE: Final = _insert(len(COLUMNS))


def insert_of(jobs: Sequence[Job], numbers: Iterable[int]) -> tuple[str, list[list[object]]]:
    """Return the statement that inserts jobs into lanes, and its values.

    A job that was inserted before has values of its claims.
    """
    columns = columns_of(jobs)
    is_new = not any(columns[Job._fields.index("hop")])
    count = _NEW if is_new else len(COLUMNS)
    return _INSERT_NEW if is_new else _INSERT_WHOLE, [list(numbers), *columns[1 : count + 1]]


def jobs_of(lane: Lane, rows: Iterable[tuple[Any, ...]]) -> list[Job]:
    """Return rows of the SELECT columns as jobs of a lane."""
    head = (lane,)
    return made(Job, [head + row for row in rows])
