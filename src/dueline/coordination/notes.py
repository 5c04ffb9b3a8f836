"""Notes of the maintenance leader.

They are in one partition, so that a note is written together with the run log. A note describes the
past, as seen by one leader that may have been wrong.
"""

from collections.abc import Iterator
from itertools import takewhile
from typing import TypeVar

from dueline.core.codec import decode
from dueline.core.errors import StoreCorrupt
from dueline.core.logging import log
from dueline.core.pagination import record_at, records_in
from dueline.core.readable_records import value_at
from dueline.core.store import Put, Record, Records

T = TypeVar("T")

PARTITION = "monitor"


def put(
    kind: str, name: str, value: bytes, version: bytes, *, expires_us: int | None = None
) -> Put:
    """Return the write of a note."""
    return Put(f"{kind}/{name}", version, value, expires_us=expires_us)


def read(records: Records, kind: str, name: str) -> Record | None:
    """Read a note; None where it was never written, or has expired."""
    return record_at(records, PARTITION, f"{kind}/{name}")


def value(records: Records, kind: str, name: str, form: type[T]) -> T | None:
    """Read the value of a note; None where it was never written, or has expired."""
    return value_at(records, PARTITION, f"{kind}/{name}", form)[0]


def values(records: Records, kind: str, form: type[T]) -> Iterator[tuple[str, T]]:
    """Yield the names and the values of all notes of a kind; damaged ones are logged."""
    first = f"{kind}/"
    for record in takewhile(
        lambda record: record.key.startswith(first), records_in(records, PARTITION, after=first)
    ):
        try:
            note = decode(record.value, form)
        except StoreCorrupt as error:
            log.warning("the note %s is left out: %s", record.key, error)
            continue
        yield record.key.removeprefix(first), note
