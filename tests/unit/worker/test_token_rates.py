"""Rates of which jobs take random costs (F12): no window is exceeded, and little stays unused."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from dueline.core.clock import SECOND_US
from dueline.limits import rate
from dueline.limits.rate import Rate
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA, world_of
from tests.harness.costs import CostWorker, costing, put, units_in
from tests.harness.world import World

MINUTE_US = 60 * SECOND_US
TOKENS = Rate(200_000, MINUTE_US)
COST_MAX = 4_000
WORKERS = 3
BACKLOG = 60
"""Jobs that wait at any time, at least: more than one claim brings."""

RUN_US_MAX = 20 * SECOND_US
STEP_US_MAX = SECOND_US
LEAST_USED = 0.98
FIRST_MINUTES = 0.96
"""Least use of the first minutes: after the burst at the start, more returns at the same moment."""


Starts = list[tuple[int, int]]
"""Timestamps and costs, in the order of the timestamps."""


def starts_in(world: World, minutes: int, *, seed: int) -> Starts:
    """Let workers run jobs that take random times, never short of them; return their starts."""
    rate.define(world.store, "tokens", TOKENS, ids=world.queues.engine.ids)
    chance = random.Random(seed)
    workers = [CostWorker(world, f"w{number}") for number in range(WORKERS)]
    ends_us: dict[bytes, int] = {}
    starts: Starts = []
    waiting, until_us = 0, world.now_us + minutes * MINUTE_US
    while world.now_us < until_us:
        for worker in workers:
            for _ in range(BACKLOG - waiting):
                cost = costing("tokens", chance.randint(1, COST_MAX))
                put(world, cost, tenant=chance.choice("ab"))
            waiting = max(waiting, BACKLOG)
            taken = worker.claim()
            waiting -= len(taken)
            starts += [(world.now_us, units_in([job], "tokens")) for job in taken]
            ends_us |= {job.id: world.now_us + chance.randrange(RUN_US_MAX) for job in taken}
        world.clock.advance(us=chance.randrange(1, STEP_US_MAX))
        for worker in workers:
            worker.end([job for job in worker.held if ends_us[job.id] <= world.now_us])
    return starts


def use_of(starts: Starts) -> tuple[int, float]:
    """Return the most tokens of any minute, and the mean of all after the first.

    A minute ends at any moment, so the mean does not depend on when the tokens were taken in it.
    """
    changes = sorted([*starts, *((at_us + MINUTE_US, -units) for at_us, units in starts)])
    first_us, last_us = starts[0][0] + MINUTE_US, starts[-1][0]
    used = most = total = 0
    for (at_us, units), (next_us, _) in pairwise(changes):
        used += units  # an end comes before a start of the same time
        most = max(most, used)
        total += used * max(0, min(next_us, last_us) - max(at_us, first_us))
    return most, total / (last_us - first_us)


def check(starts: Starts, least_used: float = LEAST_USED) -> None:
    most, mean = use_of(starts)
    assert most <= TOKENS.count
    assert mean >= least_used * TOKENS.count


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*IN_MEMORY, *LONG_ON_CASSANDRA])
def test_random_costs_use_a_rate_and_never_exceed_it(kind: str, tmp_path: Path) -> None:
    # F12, rules N5 and N9
    with world_of(kind, tmp_path) as world:
        check(starts_in(world, 3, seed=1), FIRST_MINUTES)


@pytest.mark.long  # ten seconds
def test_random_costs_use_a_rate_for_an_hour(tmp_path: Path) -> None:
    with world_of("memory", tmp_path) as world:
        check(starts_in(world, 60, seed=2))


def test_what_exceeds_a_rate_or_leaves_it_unused_is_noticed() -> None:
    half = TOKENS.count // 2
    full = [(place * MINUTE_US // 2, half) for place in range(20)]
    assert use_of(full) == (TOKENS.count, TOKENS.count)
    check(full)
    with pytest.raises(AssertionError):
        check([*full[:9], (full[9][0] - 1, half), *full[10:]])
    with pytest.raises(AssertionError):
        check([(at_us, units - 2100) for at_us, units in full])
    with pytest.raises(AssertionError):
        check(full[:9] + full[10:])
