"""Topics: names of events, and the patterns of those who subscribe to them.

All topics are events of one stream, which carry their names. A subscriber is a consumer group of
that stream that skips the events that its pattern does not match (rule F10).
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, Literal, get_args

from dueline.core.clock import SECOND_US
from dueline.core.codec import decode_event
from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.core.ids import derived
from dueline.core.job import JobId
from dueline.core.store import Row
from dueline.streams.event import Position

STREAM: Final = "topics"
"""Name of the stream that has the events of all topics."""

LENGTH_MAX: Final = 200
"""Maximum number of characters of a topic or pattern."""

MARGIN_US: Final = SECOND_US
"""A new subscriber begins that long before its registration: clocks of publishers differ."""

TASK_PREFIX: Final = "task "
"""Begins the group of a task that subscribes; no group that a program names has a space."""

Start = Literal["oldest", "newest"]
"""Where a new subscriber begins."""

_WORD: Final = r"[A-Za-z0-9_-]+"
_TOPIC: Final = re.compile(rf"{_WORD}(\.{_WORD})*")
_PATTERN: Final = re.compile(rf"(?:\*\*|(?:{_WORD}|\*)(?:\.(?:{_WORD}|\*))*(?:\.\*\*)?)")


def check_topic(name: object) -> str:
    """Return the name of a topic; raise BadInput if it is invalid."""
    if not isinstance(name, str) or len(name) > LENGTH_MAX or not _TOPIC.fullmatch(name):
        raise BadInput(
            f"{name!r:.80} is not the name of a topic.",
            hint='Use words of A-Z a-z 0-9 _ - with dots between them, such as "user.created".',
        )
    return name


def check_pattern(pattern: object) -> str:
    """Return a pattern of topics; raise BadInput if it is invalid."""
    if not isinstance(pattern, str) or len(pattern) > LENGTH_MAX or not _PATTERN.fullmatch(pattern):
        raise BadInput(
            f"{pattern!r:.80} is not a pattern of topics.",
            hint="Use the name of a topic, with * for one word, and ** at the end for one or more: "
            '"user.*", "user.**".',
        )
    return pattern


def check_start(start: object) -> Start:
    """Return where a new subscriber begins; raise BadInput if it is no such place."""
    for place in get_args(Start):
        if start == place:
            return place  # type: ignore[no-any-return]
    raise BadInput(
        f"`start` must be a place (got {start!r:.80}).", hint='Use "oldest" or "newest".'
    )


def is_topic(pattern: str) -> bool:
    """Return whether a pattern is the name of one topic."""
    return "*" not in pattern


def matches(pattern: str, topic: str | None) -> bool:
    """Return whether a topic matches a pattern; events without a topic match none."""
    return topic is not None and _expression(pattern).fullmatch(topic) is not None


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    words = {"*": _WORD, "**": rf"{_WORD}(?:\.{_WORD})*"}
    return re.compile(r"\.".join(words.get(word, re.escape(word)) for word in pattern.split(".")))


def may_meet(pattern: str, other: str) -> bool:
    """Return whether a topic may match both patterns."""
    return _meet(pattern.split("."), other.split("."))


def _meet(first: Sequence[str], second: Sequence[str]) -> bool:
    if not first or not second:
        return not first and not second
    if "**" in (first[0], second[0]):  # the last word of its pattern: one or more words
        return True
    words = {first[0], second[0]} - {"*"}
    return len(words) <= 1 and _meet(first[1:], second[1:])


def chosen(pattern: str | None) -> Callable[[Row], bool] | None:
    """Return what tells whether a group reads a row; None if it reads all."""
    if pattern is None:
        return None
    return lambda row: matches(pattern, decode_event(row.body).topic)


def group_of_task(task: str) -> str:
    """Return the name of the group of a task that subscribes."""
    return f"{TASK_PREFIX}{task}"


def job_id_of(group: str, event_id: bytes) -> JobId:
    """Return the id of the job of an event for the group of a task that subscribes."""
    return JobId(derived(group.encode() + b"\0" + event_id, 0))


def begin_us(engine: Engine, start: str | Position) -> int:
    """Return the time from which a subscriber reads that is registered now."""
    if isinstance(start, Position):
        return start.at_us
    return max(0, engine.time.earliest_us() - MARGIN_US) if start == "newest" else 0
