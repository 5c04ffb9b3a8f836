"""Records and jobs that cannot be read."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice

from dueline.admin import operations
from dueline.admin.function_logs import damage_of
from dueline.coordination import worker_registry
from dueline.coordination.leases import ELECTIONS, Grant
from dueline.coordination.worker_registry import Presence, Registration
from dueline.core.call_options import read_options
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Job
from dueline.core.lane import dead_queue, limits_of
from dueline.core.limit_names import semaphore_of
from dueline.core.queue_settings import QueueSettings, StreamSettings
from dueline.core.readable_records import Unreadable, readable, unreadable
from dueline.core.store import SETTINGS_PARTITION
from dueline.core.watermark import MARK_MAX, NOTHING_CLOSED
from dueline.jobs import function_list
from dueline.jobs.completion import stored
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.limits import quota, rate, semaphore
from dueline.schedules import schedule
from dueline.schedules.schedule import Schedule
from dueline.streams import groups, resharding
from dueline.workflows import records


def unreadable_in(engine: Engine, *, most: int) -> Iterator[Unreadable]:
    """Yield records and jobs that cannot be read.

    Args:
      most: maximum number of jobs of each queue that are read, living and dead.
    """
    store = engine.store
    yield from unreadable(store, SETTINGS_PARTITION, QueueSettings)
    yield from unreadable(store, worker_registry.PARTITION, Presence)
    yield from unreadable(store, worker_registry.REGISTRATIONS, Registration)
    yield from unreadable(store, schedule.PARTITION, Schedule)
    yield from unreadable(store, resharding.PARTITION, StreamSettings)
    yield from unreadable(store, ELECTIONS, Grant)
    yield from unreadable(store, operations.PARTITION, operations.Action)
    limits = _limits(engine)
    yield from semaphore.unreadable_of(store, limits)
    yield from rate.unreadable_of(store, limits)
    yield from records.unreadable_in(store)
    yield from function_list.unreadable_in(store, most=most)
    yield from _unreadable_streams(engine)
    for queue in engine.catalog.names():
        yield from quota.unreadable_of(store, queue)
        try:
            jobs = chain(engine.jobs_of(queue), engine.jobs_of(dead_queue(queue)))
            for job in islice(jobs, most):
                yield from _unreadable_of(job)
                yield from damage_of(engine, job)
        except StoreCorrupt:  # the settings of the queue, which are reported above
            continue


def _unreadable_streams(engine: Engine) -> Iterator[Unreadable]:
    """Yield unreadable records of streams and histories: groups, checkpoints, watermarks."""
    store = engine.store
    streams = [
        (record.key, own) for record, own in readable(store, resharding.PARTITION, StreamSettings)
    ]
    for stream, _ in streams:
        yield from groups.unreadable_of(store, stream)
    if store.transactional:  # tables with transactions refuse such marks
        return
    known = readable(store, SETTINGS_PARTITION, QueueSettings)
    histories = ((record.key + HISTORY_SUFFIX, range(own.shards_read)) for record, own in known)
    for stream, shards in chain(
        ((name, resharding.shards_of(own)) for name, own in streams), histories
    ):
        for shard in shards:
            mark = store.close_until(stream, shard, at_us=NOTHING_CLOSED)  # only reads it
            if mark > MARK_MAX:
                place = f"mark of stream {stream}, shard {shard}"
                yield Unreadable(place, f"It is {mark}, above {MARK_MAX}: events are not stored.")


def _limits(engine: Engine) -> list[str]:
    """Return the semaphores and rates that jobs name, or that were set."""
    limits = {*semaphore.capacities(engine.store), *rate.rates(engine.store)}
    for queue in engine.catalog.names():
        with suppress(StoreCorrupt):  # the settings of the queue
            lanes = engine.lanes_of(queue)
            limits.update(semaphore_of(limit) for lane in lanes for limit in limits_of(lane))
    return sorted(limits)


def _unreadable_of(job: Job) -> Iterator[Unreadable]:
    try:
        if job.outcome:
            stored(job)
        elif job.opts:
            read_options(job.opts)
    except StoreCorrupt as error:
        yield Unreadable(f"job {job.id.hex()} in {job.lane.queue}", error.message)
