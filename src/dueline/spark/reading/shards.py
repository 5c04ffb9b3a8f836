"""Shards of streams and their watermarks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.core.queue_settings import StreamSettings
from dueline.core.store import Store
from dueline.core.watermark import SEALED_US
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.log import trimming
from dueline.log.reader import GUARD_US
from dueline.spark.reading.partitions import Position, RowSlice, behind, last_position
from dueline.spark.runtime.options import Options, chosen_queues
from dueline.streams import resharding


class Shard(NamedTuple):
    """One shard of a stream.

    Attributes:
        name: Name of the queue for a history, else of the stream.
        is_old: Whether the stream was resharded and this shard gets no new rows.
        older: Shards that are read to their end before this one.
    """

    name: str
    stream: str
    shard: int
    is_old: bool = False
    older: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return its name in an offset."""
        return f"{self.name}/{self.shard:05}"


def chosen(options: Options, table: str, engine: Engine) -> list[Shard]:
    """Return the shards to read, in order.

    Raises:
        BadInput: No stream is named.
        NotFound: There is no such queue.
    """
    if table == "stream":
        names = options.names("stream")
        if not names:
            raise BadInput("No stream is named.", hint='Say .option("stream", "clicks").')
        refs = [ref for name in sorted(names) for ref in _of_stream(engine.store, name)]
    else:
        refs = [
            Shard(name, name + HISTORY_SUFFIX, shard)
            for name in sorted(chosen_queues(options, engine.catalog))
            for shard in history_shards(engine, name)
        ]
    only = options.shards()
    return [ref for ref in refs if only is None or ref.shard in only]


def history_shards(engine: Engine, name: str) -> range:
    """Return the shards of a queue's history, including removed ones.

    All rows of a removed shard are trimmed; a reader inside it may have missed some.
    """
    once = trimming.places(engine.store, name + HISTORY_SUFFIX)
    return range(max([engine.catalog.settings(name).shards_read, *(number + 1 for number in once)]))


def _of_stream(store: Store, name: str) -> Iterator[Shard]:
    settings = resharding.settings_of(store, name) or StreamSettings()
    for shard in range(settings.first + settings.shards):
        older = tuple(
            str(Shard(name, name, number)) for number in resharding.before(settings, shard)
        )
        yield Shard(name, name, shard, is_old=resharding.is_old(settings, shard), older=older)


def now_us(store: Store) -> int:
    """Return the time to which a watermark may be raised so that few appends are late."""
    return store.clock_us() - (0 if store.transactional else GUARD_US)


def close(store: Store, shards: Sequence[Shard]) -> dict[Shard, int]:
    """Raise the watermarks to the present, which freezes rows below; return the watermarks."""
    return {shard: close_one(store, shard) for shard in shards}


def close_one(store: Store, shard: Shard) -> int:
    """Raise a watermark to the present, or to the end in an old shard (rule F5).

    A watermark that is later than the present is raised to the last row: the clock was set back,
    and new rows are stored above the watermark until the clock has passed it.
    """
    at_us = SEALED_US if shard.is_old else now_us(store)
    mark_us = store.close_until(shard.stream, shard.shard, at_us=at_us)
    if at_us < mark_us < SEALED_US:
        above = RowSlice(shard.stream, shard.shard, behind(mark_us), (SEALED_US, b""))
        last = last_position(store, above)
        if last is not None:
            return store.close_until(shard.stream, shard.shard, at_us=last[0])
    return mark_us


def trimmed_of(store: Store, streams: Iterable[str]) -> Mapping[str, Mapping[int, Position]]:
    """Return the position of the last trimmed row, by stream and shard."""
    return {stream: trimming.places(store, stream) for stream in set(streams)}
