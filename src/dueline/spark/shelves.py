"""Shards of streams, their marks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from dueline import cuts, gone
from dueline.errors import BadInput
from dueline.history import HISTORY_SUFFIX
from dueline.queue import Queues
from dueline.settings import StreamSettings
from dueline.spark.options import Options, chosen_queues
from dueline.spark.slices import Position
from dueline.store import Store

GUARD_US: Final = 250_000
"""How far a mark stays behind the present where appends and looks are steps of their own."""


class Shelf(NamedTuple):
    """One shard of a stream. name: the queue's, of a history; the stream's own otherwise."""

    name: str
    stream: str
    shard: int

    def __str__(self) -> str:
        """Name it in an offset."""
        return f"{self.name}/{self.shard:05}"


def chosen(options: Options, table: str, queues: Queues) -> list[Shelf]:
    """Tell which shards are asked for, in order.

    Raises: BadInput: no stream is named. NotFound: there is no such queue.
    """
    if table == "stream":
        names = options.names("stream")
        if not names:
            raise BadInput("No stream is named.", hint='Say .option("stream", "clicks").')
        counts = {name: (name, _shards_of(queues.store, name)) for name in names}
    else:
        counts = {
            name: (name + HISTORY_SUFFIX, queues.catalog.settings(name).shards_read)
            for name in chosen_queues(options, queues.catalog)
        }
    only = options.shards()
    return [
        Shelf(name, stream, shard)
        for name, (stream, count) in sorted(counts.items())
        for shard in range(count)
        if only is None or shard in only
    ]


def _shards_of(store: Store, stream: str) -> int:
    """Tell how many shards a stream has; a queue's history has as many as the queue."""
    settings = cuts.settings_of(store, stream) or StreamSettings()
    return settings.first + settings.shards


def now_us(store: Store) -> int:
    """Tell up to where a mark may be raised, so that few appends come too late."""
    return store.clock_us() - (0 if store.transactional else GUARD_US)


def close(store: Store, some: Sequence[Shelf]) -> dict[Shelf, int]:
    """Raise marks to the present, so that what lies below stays as it is; tell the marks."""
    until_us = now_us(store)
    return {one: store.close_until(one.stream, one.shard, at_us=until_us) for one in some}


def gone_of(store: Store, some: Iterable[Shelf]) -> Mapping[str, Mapping[int, Position]]:
    """Tell where the last row lay that each shard has let go of, by stream and shard."""
    return {stream: gone.places(store, stream) for stream in {one.stream for one in some}}
