"""Who is woken for permits that come back, and who comes before whom."""

from collections.abc import Collection
from pathlib import Path

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.wakeup import NoWakeups, Wakeup
from dueline.jobs.queue import EnqueueRequest
from dueline.worker.claimer import Claimer
from tests.harness.permits import permits_of, take
from tests.harness.swaps import swap
from tests.harness.world import world_on


class Bell(NoWakeups):
    """Notes who is woken."""

    def __init__(self) -> None:
        """Wake nobody yet."""
        self.woken: list[str] = []

    def wake(self, wakeups: Collection[Wakeup]) -> None:
        """Note the channels."""
        self.woken += [one.channel for one in wakeups]


def test_who_waits_is_woken_for_what_a_job_needed_and_not_for_what_none_did() -> None:
    # F3: two who find nothing due would wake each other without end
    world, bell = world_on("memory", Path()), Bell()
    swap(world.queues, wakeups=bell)
    one, other = permits_of(world), permits_of(world, "w2")
    assert take(one, "s") == 1
    assert take(other, "s") == 0  # it waits
    one.unused(("s",), 1)
    one.settle(list)
    assert bell.woken == []
    assert take(one, "t") == 1
    assert take(other, "t") == 0
    (job,) = world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"], limits=[("t",)]))
    bell.woken.clear()
    one.settle(lambda: [job])
    one.settle(list)  # its job is done
    assert bell.woken == ["w2"]


def test_a_released_permit_notifies_one_waiting_worker() -> None:
    # F3: no herd, and nobody in vain
    world, bell = world_on("memory", Path()), Bell()
    swap(world.queues, wakeups=bell)
    one, *others = (permits_of(world, name) for name in ("w1", "w2", "w3", "w4"))
    assert take(one, "s") == 1
    for number, other in enumerate(others):
        world.clock.advance(us=1)
        assert take(other, "s", priority=number % 2) == 0
    (job,) = world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"], limits=[("s",)]))
    one.settle(lambda: [job])
    bell.woken.clear()
    one.settle(list)  # its job is done
    assert bell.woken == ["w3"]  # the most urgent


def test_whoever_waits_comes_before_the_next_job_of_who_holds_the_permit() -> None:
    # F3, F4: across queues, else one with work for ever would never let the other go on
    world, bell = world_on("memory", Path()), Bell()
    swap(world.queues, wakeups=bell)
    one, other = permits_of(world), permits_of(world, "w2")
    assert take(one, "s") == 1
    (job,) = world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"], limits=[("s",)]))
    one.settle(lambda: [job])
    assert take(other, "s") == 0
    world.clock.advance(us=1)
    bell.woken.clear()
    assert take(one, "s") == 0  # its job is done, and there is a next one
    one.settle(list)
    assert bell.woken == ["w2"]
    assert take(other, "s") == 1


@pytest.mark.parametrize("is_told", [True, False])
def test_a_job_that_waits_for_a_permit_ages_meanwhile(*, is_told: bool) -> None:
    # T5: where its lane was let be, too
    world = world_on("memory", Path())
    world.queues.engine.catalog.configure("q", aging_us=SECOND_US)
    other, permits = permits_of(world, "w2"), permits_of(world)
    assert take(other, "s") == 1
    slow = world.put(limits=["s"])
    world.clock.advance(15)
    urgent = [world.put(priority=9), world.put(priority=9)]
    claimer = Claimer(world.queues.engine, ["q"], "w1", permits=permits)
    claimer.refresh()
    permits.begin(list, 4)
    assert claimer.claim(1, {})[0].job.id in urgent  # the permit of the other is taken
    other.settle(list)
    world.clock.advance(1)
    claimer.unblock(["s"] if is_told else permits.begin(list, 4))
    assert [one.job.id for one in claimer.claim(1, {})] == [slow]
    assert claimer.claim(1, {})[0].job.id in urgent
    world.store.close()
