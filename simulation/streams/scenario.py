"""Setup of a run of a stream."""

from typing import NamedTuple

from dueline.core.clock import SECOND_US
from simulation.faults import Fault, swarm
from simulation.tape import Tape

STREAM = "s"
GROUPS = ("bill", "mail")
TASK_GROUP = "task ship"
"""Group of a task, for each event of which a job is inserted."""

QUEUE = "parcels"
QUEUE_SHARDS = (1, 4, 2)
"""Shards of the queue of these jobs, one number after the other."""

KEYS = ("ant", "bee", "cat", "dog", None)

STALL_US = 300 * SECOND_US
"""Duration for which a producer freezes between two steps of an append."""

SKEWS_US = (600 * SECOND_US, -600 * SECOND_US)


class Scenario(NamedTuple):
    """One life. All spans in microseconds.

    is_stepped: the store has no transactions, and each of its steps stands alone. batch: how
    many events a member handles at once. calls: how many appends each producer makes. threads:
    how many shards a member handles at once. keep_us: how long events are kept, 0 for ever.
    stalls: producers stand still for STALL_US. is_skewed: wall clocks are off by SKEWS_US.
    lasts_us: how long there are accidents. hears: members are woken. cuts: into how many shards
    the stream is cut, one time after the other. delivers: members insert jobs for a task, too.
    """

    is_stepped: bool
    faults: tuple[Fault, ...]
    shards: int
    ttl_us: int
    batch: int
    groups: int
    producers: int
    calls: int
    members: int
    threads: int
    keep_us: int
    stalls: bool
    is_skewed: bool
    monitors: int
    is_redeployed: bool
    hears: bool
    drifts: bool
    lasts_us: int
    cuts: tuple[int, ...]
    delivers: bool = False


def scenario_of(seed: int, tape: Tape) -> Scenario:
    """Draw a run; lower choices give simpler runs."""
    stalls = tape.pick(6) == 5
    return Scenario(
        is_stepped=bool(seed & 1),
        faults=swarm(tape),
        shards=(1, 1, 3, 7)[tape.pick(4)],
        ttl_us=(4 * SECOND_US, 2 * SECOND_US, 10 * SECOND_US)[tape.pick(3)],
        batch=(10, 1, 50)[tape.pick(3)],
        groups=1 + tape.pick(2),
        producers=1 + tape.pick(3),
        calls=4 + tape.pick(12),
        members=1 + tape.pick(3),
        threads=1 + tape.pick(2),
        keep_us=(0, 0, 20 * SECOND_US)[tape.pick(3)],
        stalls=stalls,
        is_skewed=tape.pick(3) == 2,
        monitors=(0, 0, 2)[tape.pick(3)],
        is_redeployed=tape.pick(4) == 3,
        hears=tape.pick(3) == 0,
        drifts=tape.pick(2) == 1,
        lasts_us=(10 + 5 * tape.pick(5)) * SECOND_US + (STALL_US if stalls else 0),
        cuts=((), (), (7, 3), (3,), (1, 7))[tape.pick(5)],
        delivers=seed % 3 == 0,  # not of the tape, whose choices stay those of the other lives
    )
