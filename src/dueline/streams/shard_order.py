"""The shards of a stream that a group reads, and their order after resharding (rule F5)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dueline.core.clock import SECOND_US, Clock
from dueline.core.queue_settings import StreamSettings
from dueline.core.store import Store
from dueline.log.checkpoint import Checkpoint
from dueline.streams import dead_letters, groups, resharding
from dueline.streams.dead_letters import Note
from dueline.streams.pauses import is_paused

RESHARD_CHECK_US: Final = SECOND_US // 4
"""How often a member checks whether a stream was resharded."""

BEGIN_US: Final = SECOND_US // 10
"""How often a member checks whether others have read the earlier shards to their ends."""


class ShardOrder:
    """The shards of a stream as one member of a group sees them.

    shards: those that a member of the group has to hold.
    """

    def __init__(
        self,
        store: Store,
        stream: str,
        group: str,
        *,
        settings: Callable[[], StreamSettings],
        clock: Clock,
    ) -> None:
        self.shards: Sequence[int] = ()
        self._store = store
        self._stream = stream
        self._group = group
        self._read = settings
        self._clock = clock
        self._settings = self._latest = StreamSettings()
        self._read_out: set[int] = set()
        self._looked_us = self._seen_us = -RESHARD_CHECK_US

    def look(self) -> None:
        """Read which shards there are; old ones are included while they are needed."""
        settings = self._read()
        self._looked_us = self._clock.monotonic_us()
        shards = resharding.shards_of(settings)
        if settings.before:
            places = self._places()
            shards = [shard for shard in shards if not resharding.is_over(places.get(shard))]
        self._settings, self._latest, self.shards = settings, settings, shards

    def is_changed(self) -> bool:
        """Return whether the settings changed since the last `look`; checks periodically."""
        return self._checked() != self._settings

    def is_paused(self, shard: int) -> bool:
        """Return whether the group handles no events of a shard; checks periodically."""
        return bool(self._checked().paused) and is_paused(self._latest, self._group, shard)

    def _checked(self) -> StreamSettings:
        """Return the settings, at most RESHARD_CHECK_US old."""
        now_us = self._clock.monotonic_us()
        if now_us - self._looked_us >= RESHARD_CHECK_US:
            self._looked_us = now_us
            self._latest = self._read()
        return self._latest

    def is_old(self, shard: int) -> bool:
        """Return whether a shard takes no new events."""
        return resharding.is_old(self._settings, shard)

    def may_begin(self, shard: int) -> bool:
        """Return whether the group has read all shards that come before this one."""
        earlier = resharding.before(self._settings, shard)
        if not self._read_out.issuperset(earlier):
            now_us = self._clock.monotonic_us()
            if now_us - self._seen_us < BEGIN_US:
                return False
            self._seen_us = now_us
            self._places()
        return self._read_out.issuperset(earlier)

    def is_read_out(self, shard: int) -> bool:
        """Return whether the group has read a shard to its end, as far as is known."""
        return shard in self._read_out

    def end(self, shard: int) -> None:
        """Note that the group has read a shard to its end."""
        self._read_out.add(shard)

    def note(self, shard: int, present: Checkpoint) -> Note:
        """Return the dead-lettered keys of a shard; at its beginning, those of the old shards."""
        note = dead_letters.read_note(present.note)
        if present.place is None and self._settings.before:
            parked = resharding.inherited(self._settings, shard, self._places())
            return replace(note, parked=parked)
        return note

    def waits(self, shard: int, key: str) -> bool:
        """Return whether parked events of this key in an old shard come first."""
        earlier = resharding.before(self._settings, shard)
        places = self._places() if earlier else {}
        notes = [dead_letters.read_note(places[shard].note) for shard in earlier if shard in places]
        return any(key in note.parked for note in notes)

    def goes_on(self, shard: int, key: str) -> bool:
        """Return whether a parked key may have more events in a newer shard."""
        return self.is_old(shard) and dead_letters.key_in(key) is not None

    def _places(self) -> Mapping[int, Checkpoint]:
        places = groups.places(self._store, self._stream, self._group)
        self._read_out = {shard for shard, at in places.items() if resharding.is_read_out(at)}
        return places
