"""What an explanation is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from dueline.core.durations import distance_text, instant_text

Reason = Literal[
    "unknown",
    "done",
    "dead",
    "cancelled",
    "expired",
    "lost",
    "running",
    "claimed",
    "batch",
    "worker gone",
    "scheduled",
    "retrying",
    "put back",
    "steps",
    "held",
    "signal",
    "paused",
    "no worker",
    "task unknown",
    "limit",
    "suspect",
    "waiting",
]

Facts: TypeAlias = Mapping[str, int | str | bool]

_ERROR_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Explanation:
    """The one reason why a job is not running; as a string, the sentence.

    sentence: the reason in words. facts: what it rests on; names that end in `_us` are
    instants, microseconds UTC.
    """

    reason: Reason
    sentence: str
    facts: Facts = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the sentence."""
        return self.sentence


def when(instant_us: int, now_us: int) -> str:
    """Write an instant, and how far it lies from now."""
    return f"{instant_text(instant_us)} ({distance_text(instant_us, now_us)})"


def line(error: str) -> str:
    """Give an error's first line, cut."""
    first = error.strip().partition("\n")[0]
    return first if len(first) <= _ERROR_CHARACTERS else f"{first[:_ERROR_CHARACTERS]}..."
