"""How far a streaming query has come."""

from collections.abc import Mapping
from typing import Any, Final

from dueline.errors import BadInput
from dueline.spark.slices import Position

VERSION: Final = 1


def offset_of(positions: Mapping[str, Position]) -> dict[str, Any]:
    """Write positions as Spark keeps them: it compares offsets as text, so in one order."""
    written = {name: [at_us, row_id.hex()] for name, (at_us, row_id) in sorted(positions.items())}
    return {"s": written, "v": VERSION}


def positions_of(offset: Mapping[str, Any]) -> dict[str, Position]:
    """Read positions, by shelf.

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

    Args: counts: rows that wait, by shelf. most: of all; what has none gets none.
    """
    total = sum(counts.values())
    if total <= most:
        return {name: count for name, count in counts.items() if count}
    return {name: max(1, count * most // total) for name, count in counts.items() if count}
