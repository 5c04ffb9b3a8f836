"""Queues and the store as a whole: counts, rates, pause and resume."""

from datetime import datetime

import msgspec

from dueline.admin.read_models import QueueSummary
from dueline.core.clock import SECOND_US, to_datetime
from dueline.core.errors import NotFound
from dueline.core.queue_settings import check_queue_name
from dueline.web.http_api.frame import Call, operation
from dueline.web.http_api.shapes import Done, time_of


class Queue(msgspec.Struct):
    """A queue. is_capped: there are more jobs than were counted.

    done_in_a_minute: jobs that were done in the last minute.
    """

    name: str
    is_paused: bool
    ready: int
    running: int
    scheduled: int
    retrying: int
    paused: int
    expired: int
    dead: int
    is_capped: bool
    oldest_ready: datetime | None
    workers: int
    done_in_a_minute: int


class QueueList(msgspec.Struct):
    """All queues."""

    queues: list[Queue]


class Stats(msgspec.Struct):
    """What happens in the store now.

    Latencies are the time from when a job was due to its start, in seconds, of the last minute;
    null without a start.
    """

    now: datetime
    ready: int
    running: int
    scheduled: int
    retrying: int
    paused: int
    dead: int
    is_capped: bool
    workers: int
    done_per_second: float
    start_latency_p50: float | None
    start_latency_p95: float | None
    start_latency_p99: float | None


@operation("GET", "/queues", role="reader")
def list_queues(call: Call) -> QueueList:
    """Return all queues."""
    return QueueList([_queue(queue) for queue in call.site.admin.queues()])


@operation("GET", "/queues/{name}", role="reader")
def get_queue(call: Call) -> Queue:
    """Return one queue."""
    name = check_queue_name(call.path["name"])
    found = next((queue for queue in call.site.admin.queues() if queue.name == name), None)
    if found is None:
        raise NotFound(f"There is no queue {name}.", hint="The first job creates one.")
    return _queue(found)


@operation("POST", "/queues/{name}/pause", role="operator")
def pause_queue(call: Call) -> Done:
    """Pause a queue: workers stop claiming its jobs within five seconds."""
    call.operations().pause(_known(call))
    return Done()


@operation("POST", "/queues/{name}/resume", role="operator")
def resume_queue(call: Call) -> Done:
    """Resume a queue."""
    call.operations().resume(_known(call))
    return Done()


@operation("GET", "/stats", role="reader")
def get_stats(call: Call) -> Stats:
    """Return counts, start latency and workers of the whole store."""
    picture = call.site.admin.stats()
    counts = picture.counts
    recent = picture.throughput
    late_us = (recent.late_p50_us, recent.late_p95_us, recent.late_p99_us)
    p50, p95, p99 = (None if us is None else us / SECOND_US for us in late_us)
    return Stats(
        now=to_datetime(picture.now_us),
        ready=sum(count.ready for count in counts),
        running=sum(count.running for count in counts),
        scheduled=sum(count.scheduled for count in counts),
        retrying=sum(count.retrying for count in counts),
        paused=sum(count.paused for count in counts),
        dead=sum(count.dead for count in counts),
        is_capped=any(count.is_capped for count in counts),
        workers=len(picture.workers),
        done_per_second=round(recent.per_s(), 3),
        start_latency_p50=p50,
        start_latency_p95=p95,
        start_latency_p99=p99,
    )


def _known(call: Call) -> str:
    """Return the name of the queue in the path.

    Raises: NotFound: there is no such queue.
    """
    name = check_queue_name(call.path["name"])
    call.site.admin.engine.catalog.chosen(name)
    return name


def _queue(one: QueueSummary) -> Queue:
    counts = one.counts
    return Queue(
        name=one.name,
        is_paused=one.settings.is_paused,
        ready=counts.ready,
        running=counts.running,
        scheduled=counts.scheduled,
        retrying=counts.retrying,
        paused=counts.paused,
        expired=counts.expired,
        dead=counts.dead,
        is_capped=counts.is_capped,
        oldest_ready=time_of(counts.oldest_ready_us),
        workers=counts.workers,
        done_in_a_minute=one.done_in_a_minute,
    )


OPERATIONS = (list_queues, get_queue, pause_queue, resume_queue, get_stats)
