"""A row of a stream."""

from typing import NamedTuple


class Row(NamedTuple):
    """One row of a stream; ordered by (at_us, id) within its shard."""

    stream: str
    shard: int
    at_us: int
    id: bytes
    body: bytes
