"""Shards of streams, their marks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.core.queue_settings import StreamSettings
from dueline.core.store import Store
from dueline.core.watermark import SEALED_US
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.log import trimming
from dueline.spark.reading.partitions import Position
from dueline.spark.runtime.options import Options, chosen_queues
from dueline.streams import resharding

GUARD_US: Final = 250_000
"""How far a mark stays behind the present where appends and looks are steps of their own."""


class Shard(NamedTuple):
    """One shard of a stream.

    name: the queue's, of a history; the stream's own otherwise. is_old: the stream was cut anew,
    and nothing is appended here any more. older: shards that are read to their end before this.
    """

    name: str
    stream: str
    shard: int
    is_old: bool = False
    older: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Name it in an offset."""
        return f"{self.name}/{self.shard:05}"


def chosen(options: Options, table: str, engine: Engine) -> list[Shard]:
    """Tell which shards are asked for, in order.

    Raises: BadInput: no stream is named. NotFound: there is no such queue.
    """
    if table == "stream":
        names = options.names("stream")
        if not names:
            raise BadInput("No stream is named.", hint='Say .option("stream", "clicks").')
        found = [shard for name in sorted(names) for shard in _of_stream(engine.store, name)]
    else:
        found = [
            Shard(name, name + HISTORY_SUFFIX, shard)
            for name in sorted(chosen_queues(options, engine.catalog))
            for shard in history_shards(engine, name)
        ]
    only = options.shards()
    return [shard for shard in found if only is None or shard.shard in only]


def history_shards(engine: Engine, name: str) -> range:
    """Name the shards of a queue's history, with those that are read no more.

    All rows of the latter have gone, and a reader that stands in one may have missed some.
    """
    once = trimming.places(engine.store, name + HISTORY_SUFFIX)
    return range(max([engine.catalog.settings(name).shards_read, *(one + 1 for one in once)]))


def _of_stream(store: Store, name: str) -> Iterator[Shard]:
    settings = resharding.settings_of(store, name) or StreamSettings()
    for shard in range(settings.first + settings.shards):
        older = tuple(str(Shard(name, name, one)) for one in resharding.before(settings, shard))
        yield Shard(name, name, shard, is_old=resharding.is_old(settings, shard), older=older)


def now_us(store: Store) -> int:
    """Tell up to where a mark may be raised, so that few appends come too late."""
    return store.clock_us() - (0 if store.transactional else GUARD_US)


def close(store: Store, some: Sequence[Shard]) -> dict[Shard, int]:
    """Raise marks to the present, so that what lies below stays as it is; tell the marks."""
    return {one: close_one(store, one) for one in some}


def close_one(store: Store, one: Shard) -> int:
    """Raise a mark to the present; where nothing is appended any more, to the end (rule F5)."""
    at_us = SEALED_US if one.is_old else now_us(store)
    return store.close_until(one.stream, one.shard, at_us=at_us)


def gone_of(store: Store, some: Iterable[Shard]) -> Mapping[str, Mapping[int, Position]]:
    """Tell where the last row lay that each shard has let go of, by stream and shard."""
    return {stream: trimming.places(store, stream) for stream in {one.stream for one in some}}
