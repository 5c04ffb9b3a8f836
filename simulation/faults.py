"""What can go wrong, and which of it does in one life."""

from collections.abc import Sequence
from enum import Enum

from simulation.tape import Tape


class Fault(Enum):
    """What befalls a call, or the process that makes it; in words."""

    REFUSED = "is refused, and does not happen"
    DROPPED = "gets lost on its way, and does not happen"
    UNANSWERED = "happens, and its answer gets lost"
    LATE = "seems lost, and happens later"
    OVERTAKES = "seems lost, and happens just before a later call of the same thread"
    PAUSED_BEFORE = "comes after its process stood still"
    PAUSED_AFTER = "happens, and its process stands still before it sees the answer"
    SUSPENDED = "comes after its machine slept, clocks and all"
    KILLED_BEFORE = "does not happen, since its process dies"
    KILLED_AFTER = "happens while its process dies"
    KILLED_LATE = "happens some time after its process died"
    CUT = "begins a time in which its process cannot reach the store"
    OUTAGE = "begins a time in which nobody can reach the store"
    JUMP = "comes after its machine's wall clock was set"


KINDS: Sequence[Fault] = tuple(kind for kind in Fault if kind is not Fault.OVERTAKES)
"""What is drawn; where calls may be late, conditional writes may overtake their repeats, too."""

DULL_SPAN = 1024
"""Of so many calls of a life with faults at their usual rate, about RATES of them have one."""

RATES = (4, 1, 12, 40)
"""How many places of DULL_SPAN are faults, by choice."""


def swarm(tape: Tape) -> tuple[Fault, ...]:
    """Draw which faults one life has, and how often; none for a tape of zeros.

    Many lives with few kinds each find more than many lives with all kinds: faults hide each
    other (groce.pdf, "Swarm testing").
    """
    present = [kind for kind in KINDS if tape.pick(3) == 2]
    rate = RATES[tape.pick(len(RATES))]
    if not present:
        return ()
    return tuple(present[place % len(present)] for place in range(max(rate, len(present))))


DELAYS_US: Sequence[int] = (200, 50, 400, 1_000, 3_000, 10_000, 40_000, 200_000)
"""How long a call takes on its way, one way; the first is the dull one."""

TIMEOUTS_US: Sequence[int] = (1_000_000, 50_000, 4_000_000)
"""After what time a caller gives up."""

OVERTAKING = 32
"""Of so many conditional writes one does so, in lives whose calls may be late."""

SKIPS: Sequence[int] = (1, 0, 1, 2, 1, 3)
"""How many calls come between one that seems lost and the one that it happens before.

Mostly one: what is read back in between does not show it, and its repeat comes after it.
"""

SPANS_US: Sequence[int] = (
    2_000_000, 300_000, 1_100_000, 3_000_000, 5_500_000, 8_000_000, 20_000_000, 60_000_000,
)  # fmt: skip
"""How long something is late, paused, cut off."""

JUMPS_US: Sequence[int] = (1_000_000, -1_000_000, 600_000_000, -600_000_000, -86_400_000_000)
