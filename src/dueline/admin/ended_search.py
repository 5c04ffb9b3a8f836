"""Search ended jobs in the history of their queues, the latest first.

The history is read backwards, in windows that grow. A row of it holds up to a hundred events, so
its bytes are searched for what the filter asks for, and most rows are never decoded.
"""

import string
from collections.abc import Iterator, Sequence
from typing import Final

from dueline.admin.search import ENDED, SCAN_MAX, Budget, JobFilter, Past, Place
from dueline.core.attempt import Attempt
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.engine import Engine
from dueline.core.pagination import rows_in
from dueline.core.store import Row
from dueline.jobs.history import HISTORY_SUFFIX, LATE_US, key_of
from dueline.jobs.history_batch import attempts_in

BACK_US: Final = 8 * DAY_US
"""How far back history is read if no time is given, in microseconds."""

_FIRST_US: Final = 10 * SECOND_US
_GROWTH: Final = 4
_HEX: Final = frozenset(string.hexdigits + "*")
_AFTER_ALL: Final = "~"
_LAST: Final = b"\xff" * 17  # after all ids


def search_ended(
    engine: Engine,
    like: JobFilter,
    *,
    limit: int,
    most: int = SCAN_MAX,
    before: Place | None = None,
    within_us: int | None = None,
) -> Past:
    """Find ended jobs in the history of their queues, the latest first.

    A job that was cancelled while it waited has no attempt, so it is found only where the history
    has all events.

    Args:
      engine: The engine.
      like: Which jobs.
      limit: Maximum number of jobs.
      most: Maximum number of rows that are read, and of events that are decoded.
      before: Only attempts that ended before this place.
      within_us: Maximum time of reading.

    Raises:
      NotFound: The queue does not exist.
    """
    names = engine.catalog.chosen(like.queue)
    now_us = engine.time.latest_us()
    end = before or (now_us, _AFTER_ALL)
    if like.until_us is not None:
        end = min(end, (like.until_us, ""))
    begin_us = max(0, end[0] - BACK_US) if like.since_us is None else like.since_us
    upper_us = None if end[0] >= now_us else end[0] + LATE_US
    needles, budget = _Needles(like), Budget(engine, most, within_us)
    attempts: dict[object, Attempt] = {}
    whole_us, back_us = end[0], _FIRST_US
    while True:
        lower_us = max(begin_us, end[0] - back_us)
        for row in _rows(engine, names, lower_us, upper_us):
            if not needles.may_be_in(row):
                budget.spend(1)
            else:
                events = attempts_in(row)
                budget.spend(len(events))
                for row_id, event in events:
                    if like.fits_attempt(event) and (event.ended_us, event.job) < end:
                        attempts.setdefault(key_of(row_id, event), event)
            if budget.is_spent:
                break
        if budget.is_spent:
            break
        whole_us = lower_us
        whole = sum(event.ended_us >= lower_us for event in attempts.values())
        if whole > limit or lower_us <= begin_us:
            break
        upper_us, back_us = lower_us, _GROWTH * back_us
    if budget.is_spent and whole_us < end[0]:  # a window that was not read to its end is read anew
        attempts = {key: event for key, event in attempts.items() if event.ended_us >= whole_us}
    latest = sorted(attempts.values(), key=lambda event: (event.ended_us, event.job), reverse=True)
    is_cut = budget.is_spent and whole_us > begin_us
    since_us = whole_us if is_cut and whole_us < end[0] else 0
    return Past(latest[:limit], len(latest) > limit, is_cut, since_us)


def _rows(
    engine: Engine, names: Sequence[str], from_us: int, before_us: int | None
) -> Iterator[Row]:
    """Yield the rows of histories from a time on, before another."""
    after, last_us = (from_us - 1, _LAST), None if before_us is None else before_us - 1
    for name in names:
        for shard in range(engine.catalog.settings(name).shards_read):
            stream = name + HISTORY_SUFFIX
            yield from rows_in(engine.store, stream, shard, after=after, until_us=last_us)


class _Needles:
    """Bytes that a row has if one of its events fits a filter.

    Texts are in rows as they are, but for signs that JSON escapes; such texts are not searched for.
    """

    def __init__(self, like: JobFilter) -> None:
        exact = [like.state if like.state != ENDED else None, like.tag, like.tenant, like.worker]
        exact += [like.task if like.task and "*" not in like.task else None]
        parts = [like.error]
        if like.text is not None and not _HEX.issuperset(like.text):
            parts.append(like.text)  # otherwise it may be the beginning of an id, in digits
        self._exact = [text.encode() for text in exact if text and _is_plain(text)]
        self._folded = [
            text.lower().encode() for text in parts if text and text.isascii() and _is_plain(text)
        ]

    def may_be_in(self, row: Row) -> bool:
        """Return whether an event of a row may fit."""
        body = row.body
        for needle in self._exact:
            if needle not in body:
                return False
        if not self._folded:
            return True
        body = body.lower()
        return all(needle in body for needle in self._folded)


def _is_plain(text: str) -> bool:
    """Return whether JSON writes a text as it is."""
    return text.isprintable() and not set(text) & {'"', "\\"}
