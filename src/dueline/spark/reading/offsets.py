"""Offsets of streaming queries."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from dueline.core.errors import BadInput
from dueline.spark.reading.partitions import Position

VERSION: Final = 1


def offset_of(positions: Mapping[str, Position]) -> dict[str, Any]:
    """Encode positions as an offset. Spark compares offsets as strings, so keys are sorted."""
    written = {name: [at_us, row_id.hex()] for name, (at_us, row_id) in sorted(positions.items())}
    return {"s": written, "v": VERSION}


def positions_of(offset: Mapping[str, Any]) -> dict[str, Position]:
    """Decode an offset into positions by shard.

    Raises:
        BadInput: The value is not an offset, or has another version.
    """
    if offset.get("v") != VERSION:
        raise BadInput(
            f"{offset!r} is not an offset that this version reads.",
            hint='Write {"s": {"default/00000": [0, ""]}, "v": 1}.',
        )
    try:
        return {
            name: (int(at_us), bytes.fromhex(row_id))
            for name, (at_us, row_id) in offset["s"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInput("The offset is malformed.") from error


def shared(counts: Mapping[str, int], most: int) -> dict[str, int]:
    """Divide `most` rows among shards in proportion to their waiting rows.

    Each shard that has rows gets at least one; shards without rows are omitted.

    Args:
        counts: Number of waiting rows, by shard.
        most: Maximum number of rows in total.
    """
    total = sum(counts.values())
    if total <= most:
        return {name: count for name, count in counts.items() if count}
    return {name: max(1, count * most // total) for name, count in counts.items() if count}


def within(places: Mapping[str, Sequence[tuple[int, Position]]], most: int) -> dict[str, Position]:
    """Return the positions up to which to read, for at most `most` rows in total.

    Positions lie at the end of rows, and a row may hold several attempts. If not all shards
    fit, older rows are read first. The first position is included even if it exceeds `most`.

    Args:
        places: Cumulative number of rows and position, by shard.
        most: Maximum number of rows in total, at least 1.
    """
    shares = shared({name: steps[-1][0] for name, steps in places.items() if steps}, most)
    ends: dict[str, Position] = {}
    size = 0
    for name in sorted(shares, key=lambda name: places[name][0][1]):
        fitting = bisect_right(places[name], shares[name], key=itemgetter(0))
        many, end = places[name][max(fitting, 1) - 1]
        if not ends or size + many <= most:
            ends[name] = end
            size += many
    return ends
