"""A reader of all events of jobs, which can be resumed where it ended."""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final

from dueline.core.attempt import Attempt
from dueline.core.clock import SECOND_US, Clock
from dueline.core.codec import DAMAGE, pack, unpack
from dueline.core.durations import instant_text
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, Conflict
from dueline.core.pagination import rows_in
from dueline.core.store import Row
from dueline.jobs.history import HISTORY_SUFFIX, Key, key_of
from dueline.jobs.history_batch import attempts_in
from dueline.log import trimming
from dueline.log.checkpoint import Place
from dueline.log.reader import PAGE, ShardReader

_KNOWN_MAX: Final = 100_000
"""Maximum number of events that are recognized if they are recorded again."""

_AGAIN_US: Final = 120 * SECOND_US
"""How far before its cursor a resumed reader looks for events that may be recorded again."""

_FORM: Final = 1

_position = attrgetter("at_us", "id")
_Shard = tuple[str, int]


class _Source:
    """One shard: its reader, and the rows that were read and not returned."""

    def __init__(self, reader: ShardReader, place: Place) -> None:
        self.reader = reader
        self.place = place
        self.rows: list[Row] = []

    def fill(self) -> None:
        while not self.rows and (rows := self.reader.read(PAGE)):
            self.rows = rows

    def take(self, until: Place | None) -> Sequence[Row]:
        """Return the rows up to a position, and move past them; None: all."""
        count = len(self.rows) if until is None else bisect_right(self.rows, until, key=_position)
        taken, self.rows = self.rows[:count], self.rows[count:]
        if taken:
            self.place = _position(taken[-1])
        return taken


class EventReader:
    """Reads all events of the jobs of a queue, or of all queues: each once, and misses none.

    It reads up to the watermarks: rows that are written late are placed after them.

    Args:
        engine: The engine.
        clock: The machine's clock.
        queue: Name of the queue; None for all, also those that appear later.
        since_us: Where a shard begins that the cursor does not name.
        cursor: The `cursor` of an earlier reader.

    Raises:
        BadInput: The cursor is not one of a reader.
        NotFound: There is no such queue.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Clock,
        queue: str | None = None,
        since_us: int = 0,
        cursor: str | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._queue = queue
        self._since_us = since_us
        self._places: Mapping[_Shard, Place] = {}
        if cursor is not None:
            self._since_us, self._places = _read_cursor(cursor)
        self._known: dict[Key, None] = {}
        self._sources: dict[_Shard, _Source] = {}
        engine.catalog.chosen(queue)

    @property
    def cursor(self) -> str:
        """Where a reader continues that is to return what comes after the events read so far."""
        read = {shard: source.place for shard, source in self._sources.items()}
        places = {**self._places, **read}
        cells = [[*shard, *place] for shard, place in sorted(places.items())]
        return base64.urlsafe_b64encode(pack([_FORM, self._since_us, cells])).decode().rstrip("=")

    def read(self) -> list[Attempt]:
        """Return the next events in the order in which they happened; none if there are no more.

        Raises:
            Conflict: Events after the cursor were deleted.
            StoreUnavailable: The next call continues.
        """
        for queue in self._engine.catalog.chosen(self._queue):
            for shard in range(self._engine.catalog.settings(queue).shards_read):
                if (queue, shard) not in self._sources:
                    self._sources[queue, shard] = self._open(queue, shard)
        sources = self._sources.values()
        for source in sources:
            source.fill()
        ends = [_position(part.rows[-1]) for part in sources if part.rows and part.reader.has_more]
        until = min(ends, default=None)
        events = [event for part in sources for row in part.take(until) for event in self._new(row)]
        return sorted(events, key=lambda event: event.ended_us)

    def _new(self, row: Row) -> list[Attempt]:
        """Return the events of a row that were not returned before, in another row (rule F3)."""
        each = {key_of(row_id, event): event for row_id, event in attempts_in(row)}
        new = [event for key, event in each.items() if key not in self._known]
        self._known |= dict.fromkeys(each)
        if len(self._known) > _KNOWN_MAX:
            self._known = dict.fromkeys(list(self._known)[_KNOWN_MAX // 2 :])
        return new

    def _open(self, queue: str, shard: int) -> _Source:
        store, stream = self._engine.store, queue + HISTORY_SUFFIX
        place = self._places.get((queue, shard))
        if place is not None:
            trimmed = trimming.places(store, stream).get(shard)
            if trimmed is not None and trimmed > place:
                raise Conflict(
                    f"The history of {queue} was deleted up to {instant_text(trimmed[0])}, which "
                    "is after the cursor.",
                    hint="Events are missing: start again without the cursor.",
                )
            for row in rows_in(store, stream, shard, after=(place[0] - _AGAIN_US, b"")):
                if _position(row) > place:
                    break
                self._new(row)
        place = place or (self._since_us, b"")
        reader = ShardReader(
            store, stream, shard, after=place, time=self._engine.time, clock=self._clock
        )
        return _Source(reader, place)


def _read_cursor(text: str) -> tuple[int, Mapping[_Shard, Place]]:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        form, since_us, cells = unpack(data)
        places = {(queue, shard): (int(at_us), bytes(row)) for queue, shard, at_us, row in cells}
    except (binascii.Error, ValueError, TypeError, *DAMAGE) as error:
        raise BadInput(
            f"{text!r:.80} is not a cursor.", hint="Pass one as it was given."
        ) from error
    if form != _FORM:
        raise BadInput("The cursor is of another version of dueline.", hint="Upgrade this process.")
    return int(since_us), places
