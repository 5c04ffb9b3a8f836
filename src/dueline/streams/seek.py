"""Seek: move a group to another position of a stream, as an operator asks (rule L6).

Only a seek moves a checkpoint back. It works like a member of the group: it holds the leases of all
shards at once, so that the next holder of a shard sees the whole move, and an earlier holder finds
a later epoch in the checkpoint.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from dueline.coordination.leases import Leases
from dueline.core.clock import SECOND_US, Clock
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, Conflict, NotFound
from dueline.core.queue_settings import StreamSettings
from dueline.core.watermark import SEALED_US
from dueline.log import checkpoint
from dueline.log.checkpoint import Checkpoint, Place
from dueline.streams import dead_letters, groups, resharding
from dueline.streams.dead_letters import Note

TTL_US: Final = 30 * SECOND_US
"""Maximum time that the leases are held; they are released as soon as all is written."""


class SeekResult(NamedTuple):
    """The new and the old position of a group in a shard; None: the beginning."""

    shard: int
    before: Place | None
    place: Place | None


def seek(engine: Engine, clock: Clock, stream: str, group: str, place: Place) -> list[SeekResult]:
    """Move a group to a position in all shards: it reads later events again, or skips events.

    Parked keys stay parked; replayed events of these keys are parked too.

    Raises:
      NotFound: the stream or group does not exist. BadInput: the position is in the future.
      Conflict: a member of the group is alive, or started meanwhile; may be repeated.
    """
    settings = resharding.settings_of(engine.store, stream)
    if settings is None or group not in groups.registered(engine.store, stream):
        raise NotFound(f"There is no group {stream}/{group}.", hint="See `dueline streams list`.")
    if place[0] > engine.time.latest_us():
        raise BadInput("That position is in the future.", hint='Use a past time, or "newest".')
    return _Seek(engine, clock, stream, group, settings).to(place)


class _Seek:
    """One seek."""

    def __init__(
        self, engine: Engine, clock: Clock, stream: str, group: str, settings: StreamSettings
    ) -> None:
        self._engine = engine
        self._stream = stream
        self._group = group
        self._settings = settings
        self._shards = resharding.shards_of(settings)
        self._leases = Leases(
            engine.store,
            groups.leases_at(stream, group),
            f"seek:{engine.ids.token().hex()}",
            ttl_us=TTL_US,
            time=engine.time,
            clock=clock,
            ids=engine.ids,
        )

    def to(self, place: Place) -> list[SeekResult]:
        """Take all shards, move their checkpoints, and release the shards."""
        self._expect_nobody()
        try:
            self._take_all()
            known = groups.places(self._engine.store, self._stream, self._group)
            return [self._one(shard, place, known) for shard in self._shards]
        finally:
            self._leases.release(self._leases.held)

    def _expect_nobody(self) -> None:
        names = [
            member.name for member in groups.members(self._engine.store, self._stream, self._group)
        ]
        if names:
            raise Conflict(
                f"The group {self._group} has live members: {', '.join(names)}.",
                hint="Stop them first. A killed member disappears when its lease expires.",
            )

    def _take_all(self) -> None:
        grants = self._leases.look()
        for shard in self._shards:
            if not self._leases.is_free(str(shard)):
                holder = grants[str(shard)].holder
                raise Conflict(f"Shard {shard} is held by {holder}.", hint="Try again later.")
            if self._leases.take(str(shard)) is None:
                raise Conflict(f"Shard {shard} was just taken.", hint="Stop the group's members.")

    def _one(self, shard: int, place: Place, known: Mapping[int, Checkpoint]) -> SeekResult:
        present = self._opened(shard)
        if self._may_stay(shard, present, place):
            return SeekResult(shard, present.place, present.place)
        note = dead_letters.read_note(present.note)
        if present.place is None:  # the initial note of the shard
            note = Note(resharding.inherited(self._settings, shard, known))
        token = self._engine.ids.token()
        text = dead_letters.write_note(note.from_place(place))
        wanted = checkpoint.with_sought_place(present, place, version=token, note=text)
        if not checkpoint.write(self._engine.store, present, wanted):
            raise self._lost(shard)
        return SeekResult(shard, present.place, place)

    def _opened(self, shard: int) -> Checkpoint:
        """Open a checkpoint under the lease's epoch, which fences earlier holders."""
        epoch = self._leases.epoch(str(shard))
        if epoch is None:
            raise self._lost(shard)
        present = checkpoint.open_under(
            self._engine.store,
            groups.checkpoints_at(self._stream, self._group),
            str(shard),
            epoch=epoch,
            version=self._engine.ids.token(),
        )
        if present is None:
            raise self._lost(shard)
        return present

    def _may_stay(self, shard: int, present: Checkpoint, place: Place) -> bool:
        """Return whether an old shard was read to its end, and has nothing past the position."""
        if not resharding.is_read_out(present):
            return False
        tail = self._engine.store.tail
        return not tail(self._stream, shard, after=place, limit=1, until_us=SEALED_US).rows

    def _lost(self, shard: int) -> Conflict:
        return Conflict(
            f"Another member took shard {shard} during the seek; some shards may have moved.",
            hint="Stop the members of the group, and repeat the seek.",
        )
