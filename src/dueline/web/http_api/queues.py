"""Queues and the store as a whole: counts, rates, pause and resume, settings."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dueline.admin.read_models import QueueSummary
from dueline.core.clock import SECOND_US, to_datetime
from dueline.core.errors import BadInput, NotFound
from dueline.core.queue_settings import (
    SPANS,
    QueueSettings,
    check_queue_name,
    chosen_shards,
    weights_of,
)
from dueline.web.http_api.frame import Call, Input, operation
from dueline.web.http_api.shapes import Done, Seconds, time_of


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


class Settings(msgspec.Struct):
    """The settings of a queue. Durations are in seconds; 0 as `dueline queues set` says.

    shards_range: minimum and maximum of a number that follows the load; null for a fixed one.
    bucket: width of the time slices, fixed when the queue is created.
    """

    shards: int
    shards_range: tuple[int, int] | None
    lease: float
    keep: float
    aging: float
    history: str
    history_keep: float
    dead_keep: float
    version_wait: float
    poll: float
    bucket: float
    deliver: str
    dead_in_order: str
    weights: Mapping[str, int]


class NewSettings(Input):
    """What to change; what is left out stays. `shards`: a number, or a minimum and a maximum."""

    shards: int | tuple[int, int] | None = None
    lease: Seconds | None = None
    keep: Seconds | None = None
    aging: Seconds | None = None
    history: str | None = None
    history_keep: Seconds | None = None
    dead_keep: Seconds | None = None
    version_wait: Seconds | None = None
    poll: Seconds | None = None
    deliver: str | None = None
    dead_in_order: str | None = None
    weights: Annotated[dict[str, int], Meta(max_length=1_000)] | None = None


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
    queue = next((queue for queue in call.site.admin.queues() if queue.name == name), None)
    if queue is None:
        raise NotFound(f"There is no queue {name}.", hint="The first job creates one.")
    return _queue(queue)


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


@operation("GET", "/queues/{name}/settings", role="reader")
def get_settings(call: Call) -> Settings:
    """Return the settings of a queue."""
    return _settings(call.site.admin.engine.catalog.settings(_known(call), age_us_max=1))


@operation("POST", "/queues/{name}/settings", role="admin")
def change_settings(call: Call, body: NewSettings) -> Settings:
    """Change settings of a queue: clients and workers apply them within five seconds."""
    changes: dict[str, Any] = {**chosen_shards(body.shards)}
    for name, field in SPANS.items():
        if (seconds := getattr(body, name, None)) is not None:
            changes[field] = round(seconds * SECOND_US)
    if body.weights is not None:
        changes["weights"] = weights_of(body.weights)
    for name in ("history", "deliver", "dead_in_order"):
        if (word := getattr(body, name)) is not None:
            changes[name] = word
    if not changes:
        raise BadInput("No setting is given.", hint='Send {"keep": 3600}, for example.')
    return _settings(call.operations().configure(_known(call), **changes))


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


def _settings(settings: QueueSettings) -> Settings:
    spans = {name: getattr(settings, field) / SECOND_US for name, field in SPANS.items()}
    least_most = settings.shards_range
    return Settings(
        shards=settings.shards,
        shards_range=(least_most[0], least_most[1]) if least_most else None,
        history=settings.history,
        deliver=settings.deliver,
        dead_in_order=settings.dead_in_order,
        weights=dict(settings.weights),
        **spans,
    )


def _queue(queue: QueueSummary) -> Queue:
    counts = queue.counts
    return Queue(
        name=queue.name,
        is_paused=queue.settings.is_paused,
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
        done_in_a_minute=queue.done_in_a_minute,
    )


OPERATIONS = (
    list_queues, get_queue, pause_queue, resume_queue, get_settings, change_settings, get_stats,
)  # fmt: skip
