"""Positions in a stream, as users write them."""

import re

from dueline.cli.options import read_instant
from dueline.core.durations import parse_span
from dueline.core.errors import BadInput
from dueline.streams.event import Position

_POSITION = re.compile(r"[0-9]{1,19}-(?:[0-9a-f]{2}){0,16}")


def read_place(text: str, now_us: int) -> Position:
    """Read a position: oldest, newest, 10m (ago), a timestamp, or an event's position.

    Raises: BadInput: the string is not a position.
    """
    if text == "oldest":
        return Position(0)
    if text == "newest":
        return Position(now_us)
    if _POSITION.fullmatch(text):
        return Position.parse(text)
    if text[:4].isdigit() and text[4:5] == "-":
        return Position.at(read_instant(text))
    try:
        return Position(max(0, now_us - parse_span(text)))
    except BadInput as error:
        raise BadInput(
            f"{text!r:.80} is not a position in a stream.",
            hint="Use oldest, newest, 10m, 2027-01-01T09:00:00+02:00, or a position.",
        ) from error
