"""Records and jobs that cannot be read."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice

from dueline import cuts
from dueline.errors import StoreCorrupt
from dueline.finishing import stored
from dueline.job import Job
from dueline.lane import dead_queue, limits_of
from dueline.limiting import semaphore_of
from dueline.options import read_options
from dueline.queue import Queues
from dueline.recipes import flow, rate, registry, roster, schedule, semaphore
from dueline.recipes.readable import Unreadable, unreadable
from dueline.recipes.registry import Presence
from dueline.recipes.roster import Member
from dueline.recipes.schedule import Schedule
from dueline.settings import QueueSettings, StreamSettings
from dueline.store import SETTINGS_PARTITION


def unreadable_in(queues: Queues, *, most: int) -> Iterator[Unreadable]:
    """Yield what cannot be read.

    Args:
      most: maximum number of jobs of each queue that are read, living and dead.
    """
    store = queues.store
    yield from unreadable(store, SETTINGS_PARTITION, QueueSettings)
    yield from unreadable(store, registry.PARTITION, Presence)
    yield from unreadable(store, roster.PARTITION, Member)
    yield from unreadable(store, schedule.PARTITION, Schedule)
    yield from unreadable(store, cuts.PARTITION, StreamSettings)
    limits = _limits(queues)
    yield from semaphore.unreadable_of(store, limits)
    yield from rate.unreadable_of(store, limits)
    yield from flow.unreadable_in(store)
    for queue in queues.catalog.names():
        try:
            jobs = chain(queues.jobs_of(queue), queues.jobs_of(dead_queue(queue)))
            for job in islice(jobs, most):
                yield from _unreadable_of(job)
        except StoreCorrupt:  # the queue's own record, which is named above
            continue


def _limits(queues: Queues) -> list[str]:
    """Name the semaphores and rates that jobs name, or that were made."""
    found = {*semaphore.capacities(queues.store), *rate.rates(queues.store)}
    for queue in queues.catalog.names():
        with suppress(StoreCorrupt):  # the queue's own record
            lanes = queues.lanes_of(queue)
            found.update(semaphore_of(limit) for lane in lanes for limit in limits_of(lane))
    return sorted(found)


def _unreadable_of(job: Job) -> Iterator[Unreadable]:
    try:
        if job.outcome:
            stored(job)
        elif job.opts:
            read_options(job.opts)
    except StoreCorrupt as error:
        yield Unreadable(f"job {job.id.hex()} in {job.lane.queue}", error.message)
