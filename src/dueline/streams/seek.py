"""A group goes on at another place of a stream, by its operator's word (rule L6).

This is the one way in which a checkpoint moves back. It is moved as a member of the group would
move it: under leases that nobody else holds, on all shards at once, so that whoever takes a shard
over afterwards sees all of it, and whoever had one before finds a later epoch in the checkpoint.
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
"""How long the leases are held at most; they are given back as soon as all is written."""


class SeekResult(NamedTuple):
    """Where a group goes on in a shard, and where it would have; None: at its beginning."""

    shard: int
    before: Place | None
    place: Place | None


def seek(engine: Engine, clock: Clock, stream: str, group: str, place: Place) -> list[SeekResult]:
    """Let a group go on behind a place, in all shards: it reads again what lies there, or skips.

    Keys that are set aside stay so; what is replayed of them joins what is set aside.

    Raises:
      NotFound: there is no such stream or group. BadInput: the place is in the future.
      Conflict: a member of the group is there, or came meanwhile; may be repeated.
    """
    settings = resharding.settings_of(engine.store, stream)
    if settings is None or group not in groups.registered(engine.store, stream):
        raise NotFound(f"There is no group {stream}/{group}.", hint="See `dueline streams list`.")
    if place[0] > engine.time.latest_us():
        raise BadInput("That place is in the future.", hint='Use an instant, or "newest".')
    return _Seek(engine, clock, stream, group, settings).to(place)


class _Seek:
    """One such word, carried out."""

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
        """Take all shards, then move their checkpoints, then give the shards back."""
        self._expect_nobody()
        try:
            self._take_all()
            known = groups.places(self._engine.store, self._stream, self._group)
            return [self._one(shard, place, known) for shard in self._shards]
        finally:
            self._leases.release(self._leases.held)

    def _expect_nobody(self) -> None:
        names = [one.name for one in groups.members(self._engine.store, self._stream, self._group)]
        if names:
            raise Conflict(
                f"The group {self._group} has live members: {', '.join(names)}.",
                hint="Stop them first; one that was killed is forgotten after its lease.",
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
        if present.place is None:  # what it would begin with
            note = Note(resharding.inherited(self._settings, shard, known))
        token = self._engine.ids.token()
        text = dead_letters.write_note(note.from_place(place))
        wanted = checkpoint.with_sought_place(present, place, version=token, note=text)
        if not checkpoint.write(self._engine.store, present, wanted):
            raise self._lost(shard)
        return SeekResult(shard, present.place, place)

    def _opened(self, shard: int) -> Checkpoint:
        """Open a checkpoint under the lease's epoch: whoever held the shard before is shut out."""
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
        """Tell whether a shard of an earlier cut was read out, and has nothing behind the place."""
        if not resharding.is_read_out(present):
            return False
        tail = self._engine.store.tail
        return not tail(self._stream, shard, after=place, limit=1, until_us=SEALED_US).rows

    def _lost(self, shard: int) -> Conflict:
        return Conflict(
            f"Shard {shard} was taken by another while the group was moved: some shards may be.",
            hint="Stop the group's members, then repeat this.",
        )
