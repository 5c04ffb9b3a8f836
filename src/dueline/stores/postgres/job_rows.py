"""Jobs as rows of the table `jobs`: the columns are the fields of Job, in the same order.

Hot path: the benchmark `postgres-default`.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from dueline.core.job import NEW, Job, State
from dueline.core.lane import Lane
from dueline.core.store import Lease
from dueline.core.tuples import made
from dueline.stores.postgres.arrays import columns_of

COLUMNS: Final = Job._fields[1:]
"""All columns but the lane, for which the table has a number."""

SELECT: Final = ", ".join(f"jobs.{name}" for name in COLUMNS)

SET_BY_CLAIMS: Final = ("at_us", "token", "worker", "claimed_us", "state")
_KEPT: Final = tuple(name for name in COLUMNS if name not in SET_BY_CLAIMS)
SELECT_KEPT: Final = ", ".join(f"jobs.{name}" for name in _KEPT)
"""The columns of a row that need be read after a claim; the place is first."""

_whole = itemgetter(*map((*_KEPT, "lane", *SET_BY_CLAIMS).index, Job._fields))

_TYPES: Final = {
    str: "text", bytes: "bytea", bool: "boolean",
}  # fmt: skip
_EXAMPLE: Final = Job(Lane("", 0, 0, 0, ""), 0, b"", 0, 0, 0, "", 0, b"", b"", 0)  # type: ignore[arg-type]
TYPES: Final = {
    name: _TYPES.get(type(value), "bigint")
    for name, value in zip(COLUMNS, _EXAMPLE[1:], strict=True)
}
"""Types of the columns, by name."""

_OWN: Final = ("id", "body")
"""Columns that jobs of one call do not share."""


@lru_cache
def _insert(
    names: tuple[str, ...], same: tuple[bool, ...], hold: str = "", *, are_new: bool = False
) -> str:
    """Return the statement that inserts rows.

    Args:
      names: The columns, the number of the lane first.
      same: Which of them have one value for all rows; the others are given as arrays.
      hold: A query of the places and numbers of lanes, which the lane's number is a place in.
      are_new: The statement fails if the id of a row exists; otherwise that row stays as it is.
    """
    kinds = {"lane": "bigint", **TYPES}
    of = {
        name: f"{'same' if is_same else 'new'}.{name}"
        for name, is_same in zip(names, same, strict=True)
    }
    shared = [name for name in names if of[name].startswith("same")]
    own = [name for name in names if name not in shared]
    sources = []
    if shared:
        sources.append(
            f"(SELECT {', '.join(f'%s::{kinds[name]} AS {name}' for name in shared)}) AS same"
        )
    if own:
        arrays = ", ".join(f"%s::{kinds[name]}[]" for name in own)
        sources.append(f"unnest({arrays}) AS new ({', '.join(own)})")
    source = " CROSS JOIN ".join(sources)
    values = of | {"pos_us": f"least({of['pos_us']}, {of['at_us']})"}
    if hold:
        source += f" JOIN held ON held.place = {of['lane']}"
        values["lane"] = "held.id"
    insert = (
        f"INSERT INTO @jobs ({', '.join(names)}) SELECT {', '.join(values.values())} FROM {source}"
        f"{'' if are_new else ' ON CONFLICT (id) DO NOTHING'}"
    )
    if not hold:
        return insert
    return (
        f"WITH held AS MATERIALIZED ({hold}), added AS ({insert})"
        " SELECT count(*), pg_current_xact_id()::text FROM held"
    )


def _bound(
    columns: Sequence[list[Any]], names: tuple[str, ...]
) -> tuple[tuple[bool, ...], list[Any]]:
    """Return which columns have one value for all rows, and the values of a statement."""
    is_one = len(columns[0]) == 1
    same = tuple(
        is_one or (name not in _OWN and column.count(column[0]) == len(column))
        for name, column in zip(names, columns, strict=True)
    )
    shared = [column[0] for column, is_same in zip(columns, same, strict=True) if is_same]
    shared = [int(value) if isinstance(value, State) else value for value in shared]
    return same, shared + [
        column for column, is_same in zip(columns, same, strict=True) if not is_same
    ]


def insert_held(
    hold: str, held: Sequence[Any], lanes: Sequence[Lane], jobs: Sequence[Job], *, are_new: bool
) -> tuple[str, list[Any]]:
    """Return a statement that inserts jobs into the lanes that it holds, and its values.

    Args:
      hold: A query of the places and numbers of lanes that it locks.
      held: Its values.
      lanes: The lanes, in the order of their places.
      jobs: New jobs in these lanes.
      are_new: Whether the statement fails if the id of one exists.
    """
    place_of = {lane: place for place, lane in enumerate(lanes, 1)}
    names = NEW
    columns: list[list[Any]] = [list(map(itemgetter(place), jobs)) for place in range(len(names))]
    columns[0] = list(map(place_of.__getitem__, columns[0]))
    same, bound = _bound(columns, names)
    return _insert(names, same, hold, are_new=are_new), [*held, *bound]


def insert_of(jobs: Sequence[Job], numbers: Iterable[int]) -> tuple[str, list[Any]]:
    """Return the statement that inserts jobs into lanes, and its values.

    A job that was inserted before has values of its claims.
    """
    columns = columns_of(jobs)
    names = Job._fields if any(columns[Job._fields.index("hop")]) else NEW
    columns[0] = list(numbers)
    same, bound = _bound(columns[: len(names)], names)
    return _insert(names, same), bound


def jobs_of(lane: Lane, rows: Iterable[tuple[Any, ...]]) -> list[Job]:
    """Return rows of the SELECT columns as jobs of a lane."""
    head = (lane,)
    return made(Job, [head + row for row in rows])


def claimed_jobs(lane: Lane, rows: Iterable[tuple[Any, ...]], lease: Lease) -> list[Job]:
    """Return rows of the SELECT_KEPT columns as the jobs of a lane, claimed with a lease."""
    now_us, lease_us, worker, token = lease
    more = (lane, now_us + lease_us, token, worker, now_us, int(State.CLAIMED))
    return made(Job, [_whole(row + more) for row in rows])
