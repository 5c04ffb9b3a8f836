"""The lane list of a shard, cached, so that a worker only reads what may be new.

Nothing acknowledged is listed anew at or below `closed` (rule E4), so lanes there can only
disappear (rule R6). A job that moves to an earlier time is listed anew above it, so what a claim
found out about a lane below stays true (rule R7). A backlog may have 100,000 lanes, and polls are
frequent.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dueline.core.clock import SECOND_US
from dueline.core.lane import NEEDS_MARK, Lane, Pointer, limits_of
from dueline.core.pagination import lane_pages
from dueline.core.store import LanePage, Store

WHOLE_EVERY_US: Final = 60 * SECOND_US
"""Interval at which the whole list is read, to drop lanes that are gone."""

FEW: Final = 8
"""A list is always read whole if fewer lanes, and fewer buckets, lie between its marks."""

SWEEP_SHARE: Final = 2
"""A sweep reads all lanes at or below `closed`. It runs when 1/SWEEP_SHARE of them are empty."""

SWEEP_EVERY_US: Final = 10 * SECOND_US
"""A sweep also runs at this interval, or after SWEEP_COST times the duration of the last one."""

SWEEP_COST: Final = 20

_BEFORE_ALL: Final = Lane("", 0, -(2**63), -(2**31), "")


class Listed(NamedTuple):
    """A lane list as it was read.

    Attributes:
      heads: The least `at_us` of lanes, None for empty ones, as far as known.
      version: Version of the queue's settings.
    """

    pointers: list[Pointer]
    heads: dict[Lane, int | None]
    version: bytes


class LaneListCache:
    """What a worker knows about the lane list of one shard.

    is_being_swept: Whether a sweep is under way, in another thread.
    """

    def __init__(self, queue: str, shard: int) -> None:
        self._queue = queue
        self._shard = shard
        self._swept = self._closed = -1
        self._old: list[Pointer] = []  # at or below it
        self._whole_us = 0
        self._next_sweep_us = 0
        self.is_being_swept = False

    def after(self, now_us: int) -> Pointer | None:
        """Return where the next read starts; None if it reads the whole list."""
        is_long = len(self._old) >= FEW or self._closed - self._swept >= FEW
        if not is_long or not 0 <= now_us - self._whole_us < WHOLE_EVERY_US:
            return None
        return Pointer(self._closed + 1, _BEFORE_ALL._replace(queue=self._queue))

    def read(
        self,
        store: Store,
        known: Mapping[Lane, int | None],
        *,
        until_bucket: int,
        now_us: int,
        first: LanePage | None = None,
    ) -> Listed:
        """Read the list up to a listing bucket, or only what may be new in it.

        Args:
          store: The store.
          known: What claims found out about lanes since the last read.
          until_bucket: Last listing bucket to read.
          now_us: The store's time.
          first: The first page, if it was read already.
        """
        after = self.after(now_us)
        if after is None:
            self._old, self._whole_us = [], now_us
            self._next_sweep_us = self._next_sweep_us or now_us + SWEEP_EVERY_US
        pages = list(
            lane_pages(
                store, self._queue, self._shard,
                until_bucket=until_bucket, after=after, first=first,
            )
        )  # fmt: skip
        new = [pointer for page in pages for pointer in page.pointers]
        heads = {lane: at_us for page in pages for lane, at_us in page.heads.items()}
        swept = pages[-1].marks.swept
        kept = [pointer for pointer in self._old if pointer.listing > swept]
        heads |= _still_known(known, kept, new)
        pointers = kept + new
        if not store.transactional:  # the mark as it was before any pointer was read
            self._swept, self._closed = swept, pages[0].marks.closed
        self._old = [pointer for pointer in pointers if pointer.listing <= self._closed]
        return Listed(pointers, heads, pages[-1].settings_version)

    def is_sweep_due(self, empty: int, now_us: int) -> bool:
        """Return whether empty lanes should be removed from the list.

        Args:
          empty: Number of lanes of past buckets that are known to be empty.
          now_us: The store's time.
        """
        is_time = now_us >= self._next_sweep_us
        is_due = empty > 0 and (is_time or SWEEP_SHARE * empty >= len(self._old))
        return is_due and not self.is_being_swept

    def swept(self, began_us: int, ended_us: int) -> None:
        """Note a sweep and its duration."""
        took_us = max(0, ended_us - began_us)
        self._next_sweep_us = ended_us + max(SWEEP_EVERY_US, SWEEP_COST * took_us)


def _still_known(
    known: Mapping[Lane, int | None], kept: Sequence[Pointer], new: Sequence[Pointer]
) -> dict[Lane, int | None]:
    """Return what is still known about lanes that were below `closed` before.

    Lanes with limits or needs are kept only if they are empty: a lane that is postponed until
    permits or resources are free is not listed again when they are.
    """
    again = {pointer.lane for pointer in new}
    return {
        lane: known[lane]
        for _, lane in kept
        if lane in known
        and lane not in again
        and (known[lane] is None or not (limits_of(lane) or NEEDS_MARK in lane.tenant))
    }
