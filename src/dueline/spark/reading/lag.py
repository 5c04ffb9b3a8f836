"""How far a streaming query is behind the rows of the store."""

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from pyspark.sql.streaming import StreamingQuery

from dueline.core.clock import SECOND_US
from dueline.core.store import Store
from dueline.jobs.history_batch import size_of
from dueline.spark.reading.partitions import RowSlice, first_rows

COUNTED_MAX: Final = 20_000
"""Rows of the store that are counted at each batch; a bundle is one."""


class Lag(NamedTuple):
    """Rows that are not in the batches planned so far.

    Attributes:
        rows: How many rows; the least number if `is_more`.
        seconds: Age of the oldest of them.
    """

    rows: int = 0
    seconds: float = 0.0
    is_more: bool = False

    def shown(self) -> dict[str, Any]:
        """Return the fields of an offset that is shown in a query's progress."""
        more = {"isMore": True} if self.is_more else {}
        return {"rowsBehind": self.rows, "secondsBehind": self.seconds, **more}


def lag(query: StreamingQuery) -> Lag:
    """Return how far a query was behind when it planned its last batch.

    It is the sum over its sources of the format dueline; zero before the first batch.

    Args:
        query: The query.
    """
    total = Lag()
    progress = query.lastProgress
    for source in progress["sources"] if progress else ():
        latest = source["latestOffset"]
        read = json.loads(latest) if isinstance(latest, str) else latest
        if isinstance(read, dict) and "rowsBehind" in read:
            total = Lag(
                total.rows + read["rowsBehind"],
                max(total.seconds, read["secondsBehind"]),
                total.is_more or read.get("isMore", False),
            )
    return total


def lag_of(store: Store, left: Iterable[RowSlice], *, now_us: int) -> Lag:
    """Count the rows of slices, up to `COUNTED_MAX` rows of the store."""
    budget, rows, is_more = COUNTED_MAX, 0, False
    oldest_us = now_us
    for part in left:
        if part.until <= part.after:
            continue
        unread = first_rows(store, part, max(1, budget))
        if unread:
            oldest_us = min(oldest_us, unread[0].at_us)
        is_more |= len(unread) >= max(1, budget)
        budget -= len(unread)
        rows += sum(map(size_of, unread))
    return Lag(rows, round(max(0, now_us - oldest_us) / SECOND_US, 3), is_more)
