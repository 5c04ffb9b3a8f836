"""What a read misses, told as an error or as a warning."""

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
_HINT: Final = "Keep it for longer than its slowest reader needs."


class Losses:
    """Where rows are missed: an error, or a warning where the caller said so.

    What goes is written down before it goes: who looks after reading misses nothing unnoticed.
    """

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails

    def tell(self, words: str, *, hint: str) -> None:
        """Tell of a loss.

        Raises: StoreCorrupt: unless the caller goes on without what is lost.
        """
        if self.fails:
            raise StoreCorrupt(words, hint=f"{hint} failOnDataLoss=false goes on without.")
        _LOG.warning("dataLoss: %s", words)

    def planned(self, store: Store, whole: RowSlice, places: Mapping[int, Position]) -> RowSlice:
        """Let a slice begin behind what has expired, and tell of it where it was asked for.

        Args: places: the last that each shard of the stream has let go of.
        """
        last = places.get(whole.shard, START)
        if last <= whole.after:
            return whole
        if whole.is_asked:
            self.tell(_words(store, whole, last), hint=_HINT)
        return whole._replace(after=last)

    def was_read(self, store: Store, one: RowSlice) -> None:
        """Tell of what expired of a slice before it was read."""
        last = trimming.places(store, one.stream).get(one.shard, START)
        if last > one.after:
            words = _words(store, one, last)
            if one.is_asked:
                self.tell(words, hint=_HINT)
            else:
                _LOG.warning("dataLoss: %s", words)


def _words(store: Store, whole: RowSlice, last: Position) -> str:
    kept = store.tail(whole.stream, whole.shard, after=last, limit=1).rows
    name = f"{whole.stream.removesuffix(HISTORY_SUFFIX)}/{whole.shard:05}"
    return (
        f"The rows of {name} past {_instant(whole.after[0])} are wanted, and have expired up to"
        f" {_instant(last[0])}; "
        + (f"the lowest kept is at {_instant(kept[0].at_us)}." if kept else "none is kept.")
    )


def _instant(at_us: int) -> str:
    moment = datetime.fromtimestamp(at_us / SECOND_US, UTC)
    return f"{at_us} ({moment.isoformat(timespec='seconds')})"
