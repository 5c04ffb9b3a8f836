"""Parts of the log of a durable function, for readers that do not need all of it."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from dueline.core.attempt import DurablePlace
from dueline.core.job import JobId
from dueline.core.pagination import records_in
from dueline.core.store import Records
from dueline.durable.log import RECORDS_MAX, Entry, number_of, read_entry
from dueline.jobs.function_list import partition_of

UNDO: Final = "undo/"
"""Start of the keys of compensations."""

_AFTER: Final = "~"
"""Sorts after all that follows a number in a key."""

_PAGE_MAX: Final = 500
_HINT: Final = 20
"""How far the last call may be from the length of the log to be found by one read."""


class Window(NamedTuple):
    """Which calls of a function are read: up to `most`, of which the last is `to`.

    to: 0: the last call of the log.
    """

    most: int
    to: int = 0


def last_call(records: Records, job_id: JobId, place: DurablePlace) -> int:
    """Return the last position of which something is recorded; 0 without one.

    The row says how long the log was at the last wait; from there the end is found by bisection.
    """
    partition = partition_of(job_id, place.generation)
    low, high, limit = place.base, max(RECORDS_MAX, place.base), 2 * _HINT
    middle = min(max(low, place.length - _HINT), high)
    while low < high:
        page = records.read(partition, after=f"{middle:05}{_AFTER}", limit=limit)
        numbers = [number_of(record.key) for record in page]
        if not any(numbers):
            high = middle
        elif len(page) < limit or not all(numbers):
            return max(numbers)
        else:
            low = numbers[-1]
        middle, limit = (low + high) // 2, 1
    return low


def entries_between(
    records: Records, job_id: JobId, place: DurablePlace, first: int, last: int
) -> dict[str, Entry]:
    """Read the records of some positions, both ends included; values that lie apart are not read.

    Raises: StoreCorrupt: a record cannot be read.
    """
    entries: dict[str, Entry] = {}
    begin = 0
    for generation, until in (*place.kept, (place.generation, RECORDS_MAX)):
        low, high = max(begin, first - 1), min(until, last)
        if low < high:
            partition = partition_of(job_id, generation)
            entries.update(_entries_of(records, partition, "", low, high))
        begin = until
    return entries


def undone_between(
    records: Records, job_id: JobId, place: DurablePlace, first: int, last: int
) -> dict[str, Entry]:
    """Read the compensations of some positions; only the present generation has some.

    Raises: StoreCorrupt: a record cannot be read.
    """
    own = partition_of(job_id, place.generation)
    return dict(_entries_of(records, own, UNDO, first - 1, last))


def _entries_of(
    records: Records, partition: str, prefix: str, low: int, high: int
) -> Iterator[tuple[str, Entry]]:
    """Yield the records whose keys have a number above `low`, up to `high`, after a prefix."""
    after, size = f"{prefix}{low:05}{_AFTER}", min(high - low + 1, _PAGE_MAX)
    for record in records_in(records, partition, after=after, page_size=size):
        number = number_of(record.key[len(prefix) :]) if record.key.startswith(prefix) else 0
        if not 0 < number <= high:
            return
        yield record.key, read_entry(record.value)
