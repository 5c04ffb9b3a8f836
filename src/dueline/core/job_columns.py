"""Fields of many jobs of one lane, by column: for readers of whole queues.

A store gives each column in the form that costs it least.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dueline.core.job import Job
from dueline.core.lane import Lane
from dueline.core.store import JobPage, Place

RESTING: Final = {
    name: Job._field_defaults.get(name, b"")
    for name in ("fence", "worker", "claimed_us", "errors", "crashes", "state", "error", "opts")
}
"""Fields that most waiting jobs have in common, with these values."""


class Same(NamedTuple):
    """A column of one value for all jobs."""

    value: Any


class Packed(NamedTuple):
    """A column of bytes in a row.

    Attributes:
      joined: The values: numbers of 8 bytes, ids of 16 bytes, or strings of any length.
      lengths: The lengths of strings, 4 bytes each; empty for numbers and ids. All numbers are
        signed, the most significant byte first.
    """

    joined: bytes
    lengths: bytes = b""


Column = Same | Packed | Sequence[Any]


class JobColumns(NamedTuple):
    """A page of jobs of one lane; pass `after` to read on, None after the last page."""

    many: int
    columns: Mapping[str, Column]
    after: Place | None

    def different(self) -> frozenset[str]:
        """Return the names of the columns that are not of one value."""
        return frozenset(
            name for name, column in self.columns.items() if not isinstance(column, Same)
        )


class Sample(NamedTuple):
    """Places in lanes, in their order, that divide the rows of each about evenly.

    Attributes:
      rows: About how many rows are between two places.
      places: The places of each lane; none of lanes with fewer rows.
    """

    rows: float
    places: Mapping[Lane, Sequence[Place]]


def columns_in(page: JobPage, names: Collection[str]) -> JobColumns:
    """Return the fields of a page of jobs, by column."""
    return JobColumns(len(page.jobs), by_name(page.jobs, Job._fields, names), page.after)


def by_name(
    rows: Sequence[Sequence[Any]], fields: Iterable[str], names: Collection[str]
) -> dict[str, Column]:
    """Return the columns of rows that have some names; nothing of no rows."""
    cells = zip(fields, zip(*rows, strict=True), strict=True) if rows else ()
    return {name: compact(values) for name, values in cells if name in names}


def compact(values: Sequence[Any]) -> Column:
    """Return a column, in short if it has one value."""
    return Same(values[0]) if values.count(values[0]) == len(values) else values
