"""Which lanes hold rows, in Cassandra's tables.

Nothing there is read in the order of lanes, but in that of the hashes of their keys, their
tokens. A page is a range of those. It costs what lies in the range: rows that were deleted stay
for ten days, and are crossed like others. A server fails a read that crosses too many, so ranges
are made as small as it takes, and grow again.
"""

from typing import Final

from dueline.core.census import LanesHeld
from dueline.core.errors import StoreUnavailable
from dueline.core.lane import Lane
from dueline.stores.cassandra.connection import TooManyTombstones
from dueline.stores.cassandra.session import CassandraSession

_KEY: Final = "queue, shard, bucket, priority, tenant"
_RANGE: Final = (
    f"SELECT DISTINCT token({_KEY}), {_KEY} FROM {{keyspace}}.jobs"
    f" WHERE token({_KEY}) > ? AND token({_KEY}) <= ? LIMIT ?"
)
_TOKEN_MIN: Final = -(2**63)
_TOKEN_MAX: Final = 2**63 - 1
_WHOLE: Final = 2**64
_SHRINKING: Final = 8


class CassandraCensus:
    """Goes through the lanes of a keyspace, by ranges of tokens."""

    def __init__(self, session: CassandraSession) -> None:
        """Take the session; reads nothing yet."""
        self._session = session
        self._width = _WHOLE

    def lanes_held(self, after: str | None, limit: int) -> LanesHeld:
        """Read the lanes of one range, those that hold a row."""
        start = _TOKEN_MIN if after is None else int(after)
        while True:
            end = min(_TOKEN_MAX, start + self._width)
            try:
                rows = self._session.read(_RANGE, (start, end, limit))
                break
            except TooManyTombstones:
                if self._width == 1:  # a single lane is larger than a lane may be
                    raise
                self._width = max(1, self._width // _SHRINKING)
            except StoreUnavailable:  # it may have taken too long
                self._width = max(1, self._width // _SHRINKING)
                raise
        self._width = min(_WHOLE, 2 * self._width)
        if len(rows) == limit:
            end = rows[-1][0]
        lanes = [Lane(*row[1:]) for row in rows]
        return LanesHeld(lanes, str(end) if end < _TOKEN_MAX else None)
