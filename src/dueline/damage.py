"""Records and jobs that cannot be read."""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, islice

from dueline import cuts, groups
from dueline.engine import Engine
from dueline.errors import StoreCorrupt
from dueline.finishing import stored
from dueline.frontier import MARK_MAX, NOTHING_CLOSED
from dueline.history import HISTORY_SUFFIX
from dueline.job import Job
from dueline.lane import dead_queue, limits_of
from dueline.limiting import semaphore_of
from dueline.options import read_options
from dueline.paging import records_in
from dueline.parking import read_note
from dueline.recipes import checkpoint, flow, quota, rate, registry, roster, schedule, semaphore
from dueline.recipes.lease import Grant
from dueline.recipes.offices import OFFICES
from dueline.recipes.readable import Unreadable, readable, unreadable, unreadable_by
from dueline.recipes.registry import Presence
from dueline.recipes.roster import Member
from dueline.recipes.schedule import Schedule
from dueline.settings import QueueSettings, StreamSettings
from dueline.store import SETTINGS_PARTITION, Record


def unreadable_in(engine: Engine, *, most: int) -> Iterator[Unreadable]:
    """Yield what cannot be read.

    Args:
      most: maximum number of jobs of each queue that are read, living and dead.
    """
    store = engine.store
    yield from unreadable(store, SETTINGS_PARTITION, QueueSettings)
    yield from unreadable(store, registry.PARTITION, Presence)
    yield from unreadable(store, roster.PARTITION, Member)
    yield from unreadable(store, schedule.PARTITION, Schedule)
    yield from unreadable(store, cuts.PARTITION, StreamSettings)
    yield from unreadable(store, OFFICES, Grant)
    limits = _limits(engine)
    yield from semaphore.unreadable_of(store, limits)
    yield from rate.unreadable_of(store, limits)
    yield from flow.unreadable_in(store)
    yield from _unreadable_streams(engine)
    for queue in engine.catalog.names():
        yield from quota.unreadable_of(store, queue)
        try:
            jobs = chain(engine.jobs_of(queue), engine.jobs_of(dead_queue(queue)))
            for job in islice(jobs, most):
                yield from _unreadable_of(job)
        except StoreCorrupt:  # the queue's own record, which is named above
            continue


def _unreadable_streams(engine: Engine) -> Iterator[Unreadable]:
    """Yield what cannot be read of streams and histories: groups, checkpoints, marks."""
    store = engine.store
    streams = [(record.key, one) for record, one in readable(store, cuts.PARTITION, StreamSettings)]
    for stream, _ in streams:
        yield from groups.unreadable_of(store, stream)
        for group in [one.key for one in records_in(store, groups.groups_at(stream))]:
            partition = groups.checkpoints_at(stream, group)
            yield from unreadable_by(store, partition, partial(_read_checkpoint, partition))
    if store.transactional:  # its tables refuse such marks
        return
    known = readable(store, SETTINGS_PARTITION, QueueSettings)
    histories = ((one.key + HISTORY_SUFFIX, range(own.shards_read)) for one, own in known)
    for stream, shards in chain(((name, cuts.shards_of(one)) for name, one in streams), histories):
        for shard in shards:
            mark = store.close_until(stream, shard, at_us=NOTHING_CLOSED)  # only reads it
            if mark > MARK_MAX:
                place = f"mark of stream {stream}, shard {shard}"
                yield Unreadable(place, f"It is {mark}, above {MARK_MAX}: events are not stored.")


def _read_checkpoint(partition: str, record: Record) -> None:
    read_note(checkpoint.read(partition, record).note)


def _limits(engine: Engine) -> list[str]:
    """Name the semaphores and rates that jobs name, or that were made."""
    found = {*semaphore.capacities(engine.store), *rate.rates(engine.store)}
    for queue in engine.catalog.names():
        with suppress(StoreCorrupt):  # the queue's own record
            lanes = engine.lanes_of(queue)
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
