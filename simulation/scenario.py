"""Setup of a run: its queue, processes and faults."""

from dataclasses import replace
from typing import NamedTuple

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.queue_settings import QueueSettings
from simulation.faults import Fault, swarm
from simulation.tape import Tape

QUEUE = "q"

PRIORITIES = (0, 5, -5)
TENANTS = ("", "ants", "bees")


class Scenario(NamedTuple):
    """One run. All durations in microseconds.

    is_stepped: the store has no transactions, and each of its steps is a call. lasts_us: duration
    of the faults. hears: workers are notified. keys: number of unique keys.
    """

    is_stepped: bool
    settings: QueueSettings
    faults: tuple[Fault, ...]
    producers: int
    calls: int
    workers: int
    slots: int
    has_operator: bool
    keys: int
    hears: bool
    is_redeployed: bool
    lasts_us: int
    drifts: bool


def scenario_of(seed: int, tape: Tape) -> Scenario:
    """Draw a run; lower choices give simpler runs."""
    settings = QueueSettings(
        shards=(1, 1, 3)[tape.pick(3)],
        width_us=(5 * SECOND_US, SECOND_US, DAY_US, 2 * SECOND_US)[tape.pick(4)],
        lease_us=(3 * SECOND_US, 2 * SECOND_US, 6 * SECOND_US)[tape.pick(3)],
        history=("attempts", "attempts", "off")[tape.pick(3)],
        keep_us=(DAY_US, 0)[tape.pick(2)],
        aging_us=(0, 0, SECOND_US)[tape.pick(3)],
        deliver=("at_least_once", "at_least_once", "at_least_once", "at_most_once")[tape.pick(4)],
    )
    return Scenario(
        is_stepped=bool(seed & 1),
        settings=replace(settings, shards_read=settings.shards),
        faults=swarm(tape),
        producers=1 + tape.pick(3),
        calls=3 + tape.pick(12),
        workers=1 + tape.pick(3),
        slots=1 + tape.pick(3),
        has_operator=tape.pick(2) == 1,
        keys=(0, 0, 2)[tape.pick(3)],
        hears=tape.pick(3) == 0,
        is_redeployed=tape.pick(4) == 3,
        lasts_us=(5 + 5 * tape.pick(5)) * SECOND_US,
        drifts=tape.pick(2) == 1,
    )
