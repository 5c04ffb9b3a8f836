"""Pauses of a stream: of one consumer group, of one shard, or of one shard for one group.

A pause is part of the stream's settings, which each member of a group reads four times a second.
From then on it handles no new batch of what is paused. It keeps its shards and its checkpoints, so
the group continues where it stopped (rule O2).
"""

from dataclasses import replace
from typing import Final

from dueline.core.engine import Engine
from dueline.core.errors import BadInput, NotFound
from dueline.core.queue_settings import StreamPause, StreamSettings
from dueline.streams import groups, resharding

PAUSES_MAX: Final = 1_000
"""Maximum number of pauses of a stream."""


def is_paused(settings: StreamSettings, group: str, shard: int) -> bool:
    """Return whether a group handles no events of a shard."""
    return any(
        stream_pause.group in (None, group) and stream_pause.shard in (None, shard)
        for stream_pause in settings.paused
    )


def pause(engine: Engine, name: str, *, group: str | None, shard: int | None) -> StreamSettings:
    """Pause a group, a shard of all groups, or a shard of a group.

    Raises:
      BadInput: neither is named, or too many are paused.
      NotFound: there is no such stream, group or shard.
    """
    wanted = _chosen(engine, name, group, shard)

    def change(old: StreamSettings) -> StreamSettings:
        paused = tuple(dict.fromkeys((*old.paused, wanted)))
        if len(paused) > PAUSES_MAX:
            raise BadInput(f"At most {PAUSES_MAX} parts of a stream can be paused.")
        return replace(old, paused=paused)

    return resharding.change(engine, name, change)


def resume(engine: Engine, name: str, *, group: str | None, shard: int | None) -> StreamSettings:
    """End the same pause; each is ended by itself.

    Raises: as `pause`.
    """
    wanted = _chosen(engine, name, group, shard)

    def change(old: StreamSettings) -> StreamSettings:
        return replace(
            old, paused=tuple(stream_pause for stream_pause in old.paused if stream_pause != wanted)
        )

    return resharding.change(engine, name, change)


def _chosen(engine: Engine, name: str, group: str | None, shard: int | None) -> StreamPause:
    if group is None and shard is None:
        raise BadInput("Name a group, a shard, or both.", hint="Pass group= or shard=.")
    settings = resharding.settings_of(engine.store, name)
    if settings is None:
        raise NotFound(f"There is no stream {name:.80}.", hint="See `dueline streams list`.")
    if group is not None and group not in groups.registered(engine.store, name):
        raise NotFound(
            f"There is no group {name}/{group:.80}.", hint=f"See `dueline streams groups {name}`."
        )
    if shard is not None and shard not in resharding.shards_of(settings):
        raise NotFound(
            f"The stream {name} has no shard {shard}.", hint=f"See `dueline streams show {name}`."
        )
    return StreamPause(group, shard)
