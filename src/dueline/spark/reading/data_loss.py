"""Rows that expired before they were read: an error or a warning."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreCorrupt
from dueline.core.store import Store
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.log import trimming
from dueline.spark.reading.partitions import START, Position, RowSlice

_LOG = logging.getLogger("dueline.spark")
_HINT: Final = "Keep rows for longer than the slowest reader needs."


class Losses:
    """Report rows that expired before they were read: raise, or log a warning.

    A trim records its position before it deletes rows, so a check after reading misses no loss.
    """

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails

    def tell(self, words: str, *, hint: str) -> None:
        """Report a loss.

        Raises:
            StoreCorrupt: Data loss is an error (`failOnDataLoss`).
        """
        if self.fails:
            raise StoreCorrupt(words, hint=f"{hint} Use failOnDataLoss=false to skip lost rows.")
        _LOG.warning("dataLoss: %s", words)

    def planned(self, store: Store, whole: RowSlice, places: Mapping[int, Position]) -> RowSlice:
        """Move the start of a slice past what has expired; report it if the caller set the start.

        Args:
            places: Position of the last trimmed row, by shard of the stream.
        """
        last = places.get(whole.shard, START)
        if last <= whole.after:
            return whole
        if whole.is_asked:
            self.tell(_words(store, whole, last), hint=_HINT)
        return whole._replace(after=last)

    def was_read(self, store: Store, part: RowSlice) -> None:
        """Report rows of a slice that expired before they were read."""
        last = trimming.places(store, part.stream).get(part.shard, START)
        if last > part.after:
            words = _words(store, part, last)
            if part.is_asked:
                self.tell(words, hint=_HINT)
            else:
                _LOG.warning("dataLoss: %s", words)


def _words(store: Store, whole: RowSlice, last: Position) -> str:
    kept = store.tail(whole.stream, whole.shard, after=last, limit=1).rows
    name = f"{whole.stream.removesuffix(HISTORY_SUFFIX)}/{whole.shard:05}"
    return (
        f"Rows of {name} after {_instant(whole.after[0])} were requested, but have expired up to"
        f" {_instant(last[0])}; "
        + (f"the oldest kept row is at {_instant(kept[0].at_us)}." if kept else "no rows are kept.")
    )


def _instant(at_us: int) -> str:
    moment = datetime.fromtimestamp(at_us / SECOND_US, UTC)
    return f"{at_us} ({moment.isoformat(timespec='seconds')})"
