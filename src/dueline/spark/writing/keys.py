"""Job ids from names in data."""

import re
from typing import Final
from uuid import UUID

from dueline.core.ids import derived_each
from dueline.core.job import JobId

UUID_DIGITS: Final = 32
_UUID: Final = re.compile(r"(?:urn:)?(?:uuid:)?\{?([0-9a-fA-F]{32})\}?", re.ASCII)

GIVEN: Final = b"spark\0job_id\0"
"""Prefix of the hash of a `job_id`."""


def job_id_of(text: str, queue: str | None = None) -> str:
    """Return the id of the job that a row of data becomes, as the tables show it.

    Args:
        text: The row's `job_id`; with a queue, its `dedupe_key`.
        queue: For a `dedupe_key`, the queue that the row is enqueued into.

    Returns:
        32 hexadecimal digits: those of a `job_id` that is a UUID, else a hash.
    """
    if queue is None:
        read = uuid_of(text) if len(text) >= UUID_DIGITS else None
        return (read or derived_each([GIVEN + text.encode()])[0]).hex()
    return derived_each([key_in(queue) + text.encode()])[0].hex()


def key_in(queue: str) -> bytes:
    """Return the prefix of the hash of a `dedupe_key` in a queue."""
    return f"spark\0dedupe_key\0{queue}\0".encode()


def uuid_of(text: str) -> JobId | None:
    """Parse a UUID in any notation; return None if it is not one."""
    digits = text.replace("-", "")
    try:
        if len(digits) == UUID_DIGITS and len(read := bytes.fromhex(digits)) == UUID_DIGITS // 2:
            return JobId(read)  # the usual notation; UUID() is slower
    except ValueError:
        pass
    match = _UUID.fullmatch(digits)
    return JobId(UUID(match[1]).bytes) if match else None
