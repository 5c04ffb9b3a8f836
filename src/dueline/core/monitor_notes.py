"""What the monitor writes down.

In one partition, so that it can be written as one with its diary. Whoever reads it takes it for
what it is: the past, as one saw it who may have erred.
"""

from dueline.core.pagination import record_at
from dueline.core.store import Put, Record, Records

PARTITION = "monitor"


def put(
    kind: str, name: str, value: bytes, version: bytes, *, expires_us: int | None = None
) -> Put:
    """Make the note of a kind about something named."""
    return Put(f"{kind}/{name}", version, value, expires_us=expires_us)


def read(records: Records, kind: str, name: str) -> Record | None:
    """Read one note; None where it was never written, or has expired."""
    return record_at(records, PARTITION, f"{kind}/{name}")
