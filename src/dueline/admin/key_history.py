"""The history of jobs by what their calls had: a unique key, an order key, or a header."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from dueline.admin.search import SCAN_MAX, Past, history_of
from dueline.core.attempt import Attempt, EnqueuedEvent
from dueline.core.call_options import CallOptions, read_options
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, StoreCorrupt
from dueline.jobs.history_batch import ENQUEUED

KEEPS_OPTIONS: Final = ("all", "arguments")
"""Levels of a history that record new jobs with their options."""


@dataclass(frozen=True, slots=True)
class CallFilter:
    """Which calls: None matches any.

    unique, order: the unique key and the order key, with arguments filled in. header: a header and
    its value.
    """

    unique: str | None = None
    header: tuple[str, str] | None = None
    order: str | None = None

    def fits(self, options: CallOptions) -> bool:
        """Return whether a call with these options matches."""
        unique = None if options.unique is None else options.unique.key
        order = None if options.order is None else options.order.key
        is_header = self.header is None or self.header in options.headers
        return self.unique in (None, unique) and self.order in (None, order) and is_header


def options_of(event: Attempt) -> CallOptions | None:
    """Return the options of a new job's event; None for other events, and without any."""
    if not isinstance(event, EnqueuedEvent) or not event.options:
        return None
    try:
        return read_options(event.options.encode())
    except StoreCorrupt:  # of another version; the job's row has the same
        return None


def events_of_calls(
    engine: Engine,
    like: CallFilter,
    queue: str | None,
    *,
    since_us: int,
    limit: int,
    most: int = SCAN_MAX,
) -> Past:
    """Find the events of jobs whose calls match, the latest first.

    Args:
      engine: The engine.
      like: Which calls.
      queue: Their queue; None for all that record options.
      since_us: Only jobs that were enqueued since.
      limit: Maximum number of events.
      most: Maximum number of events that are read.

    Raises:
      NotFound: There is no such queue.
      BadInput: The queue records no options.
    """
    names = _recording(engine, queue)
    read = 0  # a job's events come after that of its enqueue, in one shard
    ids: set[str] = set()
    events: list[Attempt] = []
    for event in islice(history_of(engine, names, since_us), most):
        read += 1
        options = options_of(event) if event.outcome == ENQUEUED else None
        if options is not None and like.fits(options):
            ids.add(event.job)
        if event.job in ids:
            events.append(event)
    events.sort(key=lambda event: (event.ended_us, event.fence), reverse=True)
    return Past(events[:limit], more=len(events) > limit, is_capped=read == most)


def _recording(engine: Engine, queue: str | None) -> Sequence[str]:
    names = engine.catalog.chosen(queue)
    kept = [name for name in names if engine.catalog.settings(name).history in KEEPS_OPTIONS]
    if not kept:
        raise BadInput(
            f"The history of {queue or 'all queues'} has no keys and headers.",
            hint="Use `dueline queues set NAME --history all`; jobs since then are found.",
        )
    return kept
