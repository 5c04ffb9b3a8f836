"""Queues that are never used again."""

from dueline.jobs.queue import Queues
from tests.harness.clocks import HandClock
from tests.harness.empty_queues import (
    CALL,
    Put,
    against_monitor,
    hurried_against_monitor,
    rounds,
)
from tests.harness.world import World


def names(world: World) -> list[str]:
    """Name the queues."""
    return world.queues.engine.catalog.names()


def a_queue_that_nobody_uses_vanishes(world: World) -> None:
    # C16
    world.queues.engine.catalog.settings("q")
    world.queues.engine.catalog.settings("r")
    assert rounds(world) == [2, 2, 2]
    assert names(world) == []
    assert rounds(world, 1) == [0]


def a_queue(_monitor: Queues, _clock: HandClock) -> Put:
    """Prepare nothing: the queue that is read of first is empty."""
    return lambda producer: producer.enqueue(CALL)


def producer_against_monitor() -> int:
    """Let a job be put while the monitor lets its queue vanish."""
    return against_monitor(a_queue)


def hurried_producer_against_monitor() -> int:
    """Let a job be put late while the monitor lets its queue vanish."""
    return hurried_against_monitor(a_queue)
