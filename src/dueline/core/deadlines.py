"""Deadlines as priorities: the earlier, the more urgent.

Lanes are read by priority, so a deadline is stored as a priority: its seconds, negated. The
deadline can be read from the priority again.
"""

from typing import Final

from dueline.core.clock import SECOND_US
from dueline.core.lane import PRIORITY_MIN

EPOCH_S: Final = 1_577_836_800
"""Start of the count of seconds, 2020-01-01; they fit into a priority until 2088."""

LARGEST: Final = -100_000_000
"""Largest priority that is a deadline; it is in March 2023."""


def priority_of(deadline_us: int) -> int:
    """Return the priority of a deadline, rounded up to a second."""
    seconds = -(-deadline_us // SECOND_US) - EPOCH_S
    return max(PRIORITY_MIN, min(LARGEST, -seconds))


def deadline_of(priority: int) -> int | None:
    """Return the deadline of a priority; None if the priority is not a deadline."""
    return (EPOCH_S - priority) * SECOND_US if priority <= LARGEST else None


def late_us(priority: int, ended_us: int) -> int:
    """Return how long after its deadline a job of this priority ended; 0 if in time."""
    deadline_us = deadline_of(priority)
    return 0 if deadline_us is None else max(0, ended_us - deadline_us)
