"""Decoded records: one, or all of a kind without those that are damaged.

A damaged record must not prevent the reading of others. `dueline doctor` names the records that
are skipped here.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from dueline.core.codec import decode
from dueline.core.errors import StoreCorrupt
from dueline.core.pagination import record_at, records_in
from dueline.core.store import NO_VERSION, Record, Records

T = TypeVar("T")


class Unreadable(NamedTuple):
    """A damaged record or job. place: its location. why: the problem. advice: what to do."""

    place: str
    why: str
    advice: str = "Was it written by another program, or a newer dueline? Correct or delete it."


def value_at(records: Records, partition: str, key: str, kind: type[T]) -> tuple[T | None, bytes]:
    """Read the value and the version of one record; None and NO_VERSION if it does not exist."""
    record = record_at(records, partition, key)
    return (None, NO_VERSION) if record is None else (decode(record.value, kind), record.version)


def readable(records: Records, partition: str, kind: type[T]) -> Iterator[tuple[Record, T]]:
    """Yield the records of a partition and their values; damaged ones are skipped."""
    for record in records_in(records, partition):
        try:
            value = decode(record.value, kind)
        except StoreCorrupt:
            continue
        yield record, value


def unreadable(records: Records, partition: str, kind: type[T]) -> Iterator[Unreadable]:
    """Yield the damaged records of a partition."""
    return unreadable_by(records, partition, lambda record: decode(record.value, kind))


def unreadable_by(
    records: Records, partition: str, read: Callable[[Record], object]
) -> Iterator[Unreadable]:
    """Yield the records of a partition for which `read` raises StoreCorrupt."""
    for record in records_in(records, partition):
        try:
            read(record)
        except StoreCorrupt as error:
            yield Unreadable(f"record {partition}/{record.key}", error.message)
