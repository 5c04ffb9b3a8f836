"""Shards that no new jobs come to."""

from dueline.core.job import Job
from dueline.core.queue_settings import QueueSettings
from dueline.jobs.queue import Queues
from dueline.stores.memory.store import MemoryStore
from tests.harness.clocks import HandClock
from tests.harness.empty_queues import (
    CALL,
    Put,
    against_monitor,
    hurried_against_monitor,
)
from tests.harness.queues import queues_on

SHARDS = 2
"""Of which the last is left over."""


def job_in_last_shard(clock: HandClock) -> Job:
    """Make a job as a producer does who knows of all shards."""
    settings = QueueSettings(shards=SHARDS, shards_read=SHARDS)
    queues = queues_on(MemoryStore(clock), clock, settings)
    while (job := queues.enqueue(CALL)[0]).lane.shard < SHARDS - 1:
        pass
    return job


def narrow(queues: Queues) -> None:
    """Leave the last shard over."""
    queues.engine.catalog.configure("q", shards=SHARDS)
    queues.engine.catalog.configure("q", shards=SHARDS - 1)


def a_shard(monitor: Queues, clock: HandClock) -> Put:
    """Leave a shard over; a job comes to it by one who knew all shards."""
    job = job_in_last_shard(clock)
    narrow(monitor)
    return lambda producer: producer.enqueue_again([job])


def producer_against_monitor() -> int:
    """Let a job be put while the monitor lets its shard go."""
    return against_monitor(a_shard)


def hurried_producer_against_monitor() -> int:
    """Let a job be put late while the monitor lets its shard go."""
    return hurried_against_monitor(a_shard)
