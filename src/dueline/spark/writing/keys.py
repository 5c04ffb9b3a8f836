"""From what names a job in data to the job's id."""

import re
from typing import Final
from uuid import UUID

from dueline.core.ids import derived_each
from dueline.core.job import JobId

UUID_DIGITS: Final = 32
_UUID: Final = re.compile(r"(?:urn:)?(?:uuid:)?\{?([0-9a-fA-F]{32})\}?", re.ASCII)

GIVEN: Final = b"spark\0job_id\0"
"""What is hashed, before the text of a `job_id`."""


def job_id_of(text: str, queue: str | None = None) -> str:
    """Return the id of the job that a row of data becomes, as the tables show it.

    Args:
      text: the row's `job_id`; with a queue, its `dedupe_key`.
      queue: the queue that the row is enqueued into, for a `dedupe_key`.

    Returns:
      32 hexadecimal digits: those of a `job_id` that is a UUID, else a hash.
    """
    if queue is None:
        read = uuid_of(text) if len(text) >= UUID_DIGITS else None
        return (read or derived_each([GIVEN + text.encode()])[0]).hex()
    return derived_each([key_in(queue) + text.encode()])[0].hex()


def key_in(queue: str) -> bytes:
    """Return what is hashed, before the text of a `dedupe_key` in a queue."""
    return f"spark\0dedupe_key\0{queue}\0".encode()


def uuid_of(text: str) -> JobId | None:
    """Read a UUID in any of the ways to write one; None where it is none."""
    digits = text.replace("-", "")
    try:
        if len(digits) == UUID_DIGITS and len(read := bytes.fromhex(digits)) == UUID_DIGITS // 2:
            return JobId(read)  # as most are written: 0.3 us where UUID() takes 2
    except ValueError:
        pass
    match = _UUID.fullmatch(digits)
    return JobId(UUID(match[1]).bytes) if match else None
