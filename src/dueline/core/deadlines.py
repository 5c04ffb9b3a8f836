"""Deadlines as priorities: the earlier, the more urgent.

Lanes are visited by priority, so a deadline, counted in seconds and negated, is all that it takes
for the earliest deadline to go first. It can be read off a priority again.
"""

from typing import Final

from dueline.core.clock import SECOND_US
from dueline.core.lane import PRIORITY_MIN

EPOCH_S: Final = 1_577_836_800
"""From here seconds are counted: 2020-01-01. Up to 2088 they fit into a priority."""

LARGEST: Final = -100_000_000
"""No larger priority is a deadline; none is earlier than March 2023."""


def priority_of(deadline_us: int) -> int:
    """Tell the priority of a deadline, which is rounded up to a second."""
    seconds = -(-deadline_us // SECOND_US) - EPOCH_S
    return max(PRIORITY_MIN, min(LARGEST, -seconds))


def deadline_of(priority: int) -> int | None:
    """Tell the deadline that a priority is; None: it is none."""
    return (EPOCH_S - priority) * SECOND_US if priority <= LARGEST else None


def late_us(priority: int, ended_us: int) -> int:
    """Tell how long after its deadline a job of this priority ended; 0: in time."""
    deadline_us = deadline_of(priority)
    return 0 if deadline_us is None else max(0, ended_us - deadline_us)
