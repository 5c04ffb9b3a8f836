"""How far a streaming query has come."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from dueline.core.errors import BadInput
from dueline.spark.reading.partitions import Position

VERSION: Final = 1


def offset_of(positions: Mapping[str, Position]) -> dict[str, Any]:
    """Write positions as Spark keeps them: it compares offsets as text, so in one order."""
    written = {name: [at_us, row_id.hex()] for name, (at_us, row_id) in sorted(positions.items())}
    return {"s": written, "v": VERSION}


def positions_of(offset: Mapping[str, Any]) -> dict[str, Position]:
    """Read positions, by shard.

    Raises: BadInput: that is no offset, or one of another version.
    """
    if offset.get("v") != VERSION:
        raise BadInput(
            f"{offset!r} is no offset that this version reads.",
            hint='Write {"s": {"default/00000": [0, ""]}, "v": 1}.',
        )
    try:
        return {
            name: (int(at_us), bytes.fromhex(row_id))
            for name, (at_us, row_id) in offset["s"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInput("An offset is not written as it should be.") from error


def shared(counts: Mapping[str, int], most: int) -> dict[str, int]:
    """Share a number of rows out by what waits; whoever has any gets one at least.

    Args: counts: rows that wait, by shard. most: of all; what has none gets none.
    """
    total = sum(counts.values())
    if total <= most:
        return {name: count for name, count in counts.items() if count}
    return {name: max(1, count * most // total) for name, count in counts.items() if count}


def within(places: Mapping[str, Sequence[tuple[int, Position]]], most: int) -> dict[str, Position]:
    """Tell up to where to read, so that it comes to no more rows than wanted.

    Places lie where rows end, and some stand for many. What lies first is read first where not
    all shards have room; the first place of all is read up to in any case.

    Args: places: how many rows lie up to where, by shard. most: of all, at least 1.
    """
    shares = shared({name: some[-1][0] for name, some in places.items() if some}, most)
    ends: dict[str, Position] = {}
    size = 0
    for name in sorted(shares, key=lambda name: places[name][0][1]):
        fitting = bisect_right(places[name], shares[name], key=itemgetter(0))
        many, end = places[name][max(fitting, 1) - 1]
        if not ends or size + many <= most:
            ends[name] = end
            size += many
    return ends
