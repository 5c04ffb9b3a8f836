"""How many workers keep a target (O8)."""

import heapq
import random
from pathlib import Path

import pytest

from dueline.admin.scaling import CALM_US, scale_of
from dueline.coordination import notes
from dueline.coordination.run_times import PARTITION, QueueTimes, TaskTimes, WorkerTimes, step_of
from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.errors import BadInput
from dueline.core.store import Put
from dueline.foresight.rates import KIND, QueueRates, Sums
from dueline.foresight.staffing import slots_for_backlog, slots_for_rate, variation_of
from dueline.foresight.target import Target, target_of
from tests.harness.world import World, world_on


def waits_s(per_s: float, slots: int, sigma: float, seed: int) -> list[float]:
    """Simulate arrivals that are independent of each other, with a mean run time of 1 s."""
    chance = random.Random(seed)
    free = [0.0] * slots
    now, found = 0.0, []
    for _ in range(30_000):
        now += chance.expovariate(per_s)
        start = max(now, heapq.heappop(free))
        found.append(start - now)
        heapq.heappush(free, start + chance.lognormvariate(-sigma * sigma / 2, sigma))
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize(("per_s", "sigma"), [(1.5, 1.0), (6, 0.5), (30, 0.8)])
def test_the_wanted_slots_keep_the_target_and_much_fewer_do_not(per_s: float, sigma: float) -> None:
    target = Target(0.95, 500_000)
    chance = random.Random(1)
    times: dict[int, int] = {}
    for _ in range(20_000):
        step = step_of(round(chance.lognormvariate(-sigma * sigma / 2, sigma) * SECOND_US))
        times[step] = times.get(step, 0) + 1
    slots = slots_for_rate(per_s, SECOND_US, target, variation=variation_of(times))
    share = [
        sum(one <= 0.5 for one in waits_s(per_s, n, sigma, 7)) / 30_000
        for n in (slots, slots - 1 - slots // 8)
    ]
    assert share[0] > 0.945
    assert share[1] < 0.95


def test_nothing_needs_no_slot() -> None:
    assert slots_for_rate(0, SECOND_US, Target(0.99, 1)) == 0
    assert slots_for_backlog(0, 0, SECOND_US, SECOND_US) == 0


@pytest.mark.parametrize(
    ("text", "target"),
    [("p99<2s", Target(0.99, 2_000_000)), (" p99.9 < 500ms", Target(0.999, 500_000)),
     ("p50<1h30m", Target(0.5, 5_400_000_000))],
)  # fmt: skip
def test_a_target_is_read_and_written(text: str, target: Target) -> None:
    assert target_of(text) == target
    assert target_of(str(target)) == target


@pytest.mark.parametrize("text", ["", "99<2s", "p100<2s", "p0<2s", "p99<0s", "p99<soon", "p99>2s"])
def test_what_is_not_a_target_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"is not a (target|duration)"):
        target_of(text)


@pytest.fixture
def world() -> World:
    made = world_on("memory", Path())
    times = TaskTimes(100, 0, {step_of(SECOND_US): 100})
    record = WorkerTimes(made.now_us, made.now_us, {"q": QueueTimes({"t": times})})
    made.store.commit(PARTITION, (Put("w1", b"v", encode(record)),))
    return made


TEN_S = Target(0.99, 10 * SECOND_US)


def desired(world: World, target: Target = TEN_S) -> int:
    return scale_of(world.queues.engine, ["q"], slots=4, target=target, ahead_us=0).desired_workers


def test_a_backlog_is_started_within_the_target(world: World) -> None:
    assert desired(world) == 0
    for _ in range(85):
        world.put()
    assert desired(world) == 3
    assert desired(world, Target(0.99, SECOND_US)) == 21


def test_the_present_rate_keeps_the_target(world: World) -> None:
    rates = QueueRates(
        world.now_us - 600 * SECOND_US, world.now_us, {}, {"t": Sums(3_000, 3_000, 3_000, 3_000)}
    )
    world.store.commit(notes.PARTITION, (notes.put(KIND, "q", encode(rates), b"v"),))
    per_s = rates.per_s()
    assert 10 < per_s < 12
    assert desired(world) * 4 >= slots_for_rate(per_s, 983_040, TEN_S) > 10


def test_fewer_workers_are_wanted_only_after_a_while(world: World) -> None:
    ids = [world.put() for _ in range(85)]
    assert desired(world) == 3
    for job_id in ids:
        world.queues.cancel(job_id)
    world.clock.advance(us=CALM_US - 1)
    assert desired(world) == 3
    world.clock.advance(us=2)
    assert desired(world) == 0
