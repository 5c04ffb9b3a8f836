"""Kinds of faults, and which of them one run has."""

from collections.abc import Sequence
from enum import Enum

from simulation.tape import Tape


class Fault(Enum):
    """A fault of a call, or of the process that makes it."""

    REFUSED = "is refused without effect"
    DROPPED = "is lost without effect"
    UNANSWERED = "takes effect, and its response is lost"
    LATE = "has no response, and takes effect later"
    OVERTAKES = "has no response, and takes effect just before a later call of the same thread"
    PAUSED_BEFORE = "is sent after its process was paused"
    PAUSED_AFTER = "takes effect, and its process is paused before it sees the response"
    SUSPENDED = "is sent after its machine was suspended"
    KILLED_BEFORE = "has no effect, because its process dies"
    KILLED_AFTER = "takes effect while its process dies"
    KILLED_LATE = "takes effect some time after its process died"
    CUT = "starts a time in which its process cannot reach the store"
    OUTAGE = "starts a time in which no process can reach the store"
    JUMP = "is sent after its machine's wall clock was set"


KINDS: Sequence[Fault] = tuple(kind for kind in Fault if kind is not Fault.OVERTAKES)
"""Faults to draw; if calls may be late, conditional writes may also overtake their retries."""

DULL_SPAN = 1024
"""Number of calls of which about RATES have a fault, at the usual rate."""

RATES = (4, 1, 12, 40)
"""Possible numbers of faults in DULL_SPAN calls."""


def swarm(tape: Tape) -> tuple[Fault, ...]:
    """Draw which faults a run has, and how often; none for a tape of zeros.

    Many runs with few kinds of faults find more than many runs with all kinds, because faults
    hide each other (swarm testing).
    """
    present = [kind for kind in KINDS if tape.pick(3) == 2]
    rate = RATES[tape.pick(len(RATES))]
    if not present:
        return ()
    return tuple(present[place % len(present)] for place in range(max(rate, len(present))))


DELAYS_US: Sequence[int] = (200, 50, 400, 1_000, 3_000, 10_000, 40_000, 200_000)
"""Latencies of a call in one direction; the first is the default."""

TIMEOUTS_US: Sequence[int] = (1_000_000, 50_000, 4_000_000)
"""Time after which a caller gives up."""

OVERTAKING = 32
"""One in this many conditional writes overtakes its retry, in runs with late calls."""

SKIPS: Sequence[int] = (1, 0, 1, 2, 1, 3)
"""Number of calls between one without a response and the call that it precedes.

Usually one: the read in between does not show it, and its retry comes after it.
"""

SPANS_US: Sequence[int] = (
    2_000_000, 300_000, 1_100_000, 3_000_000, 5_500_000, 8_000_000, 20_000_000, 60_000_000,
)  # fmt: skip
"""Durations of delays, pauses and interruptions."""

JUMPS_US: Sequence[int] = (1_000_000, -1_000_000, 600_000_000, -600_000_000, -86_400_000_000)
