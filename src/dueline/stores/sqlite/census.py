"""Which lanes hold rows, in SQLite's tables."""

from dueline.core.census import LanesHeld
from dueline.core.lane import Lane
from dueline.stores.sqlite.connection import Runs, fetch


class SqliteCensus:
    """Goes through the lanes of a queue file."""

    _connection: Runs

    def lanes_held(self, *, after: str | None, limit: int) -> LanesHeld:
        """Go through the lanes that hold rows, in the order of their numbers."""
        rows = self._connection.read(
            lambda database: fetch(
                database,
                "SELECT id, queue, shard, bucket, priority, tenant FROM lanes"
                " WHERE id > ? AND EXISTS (SELECT 1 FROM jobs WHERE lane = lanes.id)"
                " ORDER BY id LIMIT ?",
                (int(after or 0), limit),
            )
        )
        lanes = [Lane(*row[1:]) for row in rows]
        return LanesHeld(lanes, str(rows[-1][0]) if len(rows) == limit else None)
