"""Workers move events of topics to the tasks that subscribe to them (rules F10 and F11).

Each such task is a consumer group of the stream of topics. All workers that have the task are
members of its group: the one that holds a shard inserts a job for each event.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from dueline.api.maps import NO_KEYS
from dueline.api.task import Using
from dueline.coordination.leases import BEATS_A_TTL
from dueline.core.clock import DAY_US, SECOND_US, Clock
from dueline.core.codec import JSON, encode
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, DuelineError
from dueline.core.ids import created_us
from dueline.core.job import Job, JobId
from dueline.core.lane import bucket_of
from dueline.core.limit_names import limits_of_call
from dueline.core.logging import log
from dueline.core.process_identity import worker_name
from dueline.core.wakeup import Signal
from dueline.jobs.queue import Queues
from dueline.streams import topics
from dueline.streams.batch import Batch, ConsumerOptions
from dueline.streams.consumer import Consumer
from dueline.streams.event import Event
from dueline.streams.stream import Stream, channel

BATCH: Final = 100
"""Maximum number of events whose jobs are inserted together."""

LEASE_US: Final = 10 * SECOND_US

PAUSE_S: Final = 0.25
"""How long an idle thread waits if nothing wakes it."""

STOP_S: Final = 5.0
"""How long the end of a worker waits for the thread."""

RETRY_US: Final = SECOND_US
"""How long a subscriber waits after an error."""


class Host(Protocol):
    """The application, as deliveries need it."""

    _subscriptions: dict[str, tuple[Using[..., Any], Any]]

    @property
    def queues(self) -> Queues:
        """Its queues."""
        ...

    @property
    def clock(self) -> Clock:
        """Its clock."""
        ...

    @property
    def topic_stream(self) -> Stream:
        """The stream of all topics."""
        ...


class _Subscriber(NamedTuple):
    """A task that subscribes, its group, and this worker's membership of that."""

    task: Using[..., Any]
    group: str
    member: Consumer


class Deliveries:
    """The subscribing tasks of a worker. One thread calls all methods but `stop`."""

    def __init__(self, app: Host) -> None:
        self._app = app
        self._engine: Engine = app.queues.engine
        stream = app.topic_stream
        name = worker_name()
        self._subscribers = [
            _Subscriber(
                task,
                group,
                Consumer(
                    self._engine,
                    app.clock,
                    name,
                    stream=stream.name,
                    settings=stream.look,
                    group=group,
                    terms=ConsumerOptions(
                        BATCH, LEASE_US, pattern=subscription.pattern, is_trusted=True
                    ),
                    owner=app,
                    from_us=topics.begin_us(self._engine, subscription.start),
                ),
            )
            for group, (task, subscription) in app._subscriptions.items()  # noqa: SLF001  (of this package)
        ]
        self._balance_us = 0
        self._again_us: dict[Consumer, int] = {}
        self._stopping = threading.Event()
        self._wakeup = Signal()
        self._listener = self._engine.wakeups.listen([channel(stream.name)], self._wakeup)
        self._thread = threading.Thread(target=self._run, name="dueline-topics", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and let others have its shards."""
        self._stopping.set()
        self._wakeup.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        self._listener.close()
        if self._thread.is_alive():  # a call to the store hangs: its leases expire
            return
        for subscriber in self._subscribers:
            _try(subscriber.member.leave)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wakeup.clear()
            if not self.step():
                self._wakeup.wait(PAUSE_S)

    def step(self) -> bool:
        """Do what is due for each subscriber; return whether events were moved."""
        now_us = self._app.clock.monotonic_us()
        is_due = now_us >= self._balance_us
        if is_due:
            self._balance_us = now_us + LEASE_US // BEATS_A_TTL
        has_moved = False
        for subscriber in self._subscribers:
            member = subscriber.member
            if is_due or member.is_unsettled():
                _try(member.balance)
            if now_us < self._again_us.get(member, 0):
                continue
            for shard in member.held:
                moved = _try(lambda: self._move(subscriber, shard))  # noqa: B023  (called at once)
                if moved is None:
                    self._again_us[member] = now_us + RETRY_US
                    break
                has_moved |= moved
        return has_moved

    def _move(self, subscriber: _Subscriber, shard: int) -> bool:
        member = subscriber.member
        if not member.begin(shard):
            return False
        try:
            batch = member.poll(shard)
            if batch is None:
                return False
            jobs = jobs_of(
                self._engine, batch, subscriber.group, partial(self._row, subscriber.task)
            )
            tells_all = self._engine.catalog.settings(jobs[0].lane.queue).tells_all
            store = self._engine.recording_store if tells_all else self._engine.store
            member.commit_with(batch, jobs, store)
            self._engine.announce(jobs)
        except BaseException:
            member.forget(shard)
            raise
        finally:
            member.end(shard)
        return True

    def _row(self, task: Using[..., Any], event: Event, job_id: JobId, body: bytes) -> Job:
        """Return the row of a new job; its argument is not checked, and may fit no handler."""
        options, handler = task._options, task._handler  # noqa: SLF001  (of this package)
        limits: Sequence[Sequence[str]] = ()
        if options.limits:
            with suppress(BadInput):  # then the job fails, without limits
                named = handler.arguments.named((event.value,), {})
                limits = [limits_of_call(options.limits, named)]
        using = task.using(headers=headers_of(event))
        request = using._request((JSON, [body], NO_KEYS, limits))  # noqa: SLF001  (of this package)
        (row,) = self._app.queues.rows(request._replace(job_ids=[job_id]))
        return row


def jobs_of(
    engine: Engine, batch: Batch, group: str, new: Callable[[Event, JobId, bytes], Job]
) -> list[Job]:
    """Return a row for each event of a batch: as planned or stored before, or a new one.

    An event may come twice, from two shards, with the same id (rule F3). Its second row is then the
    first one: as it is stored, or with the same key, since its time is that of the event.

    Args:
      engine: The engine.
      batch: The events.
      group: The group of the task.
      new: Makes a row from an event, the id of the job and its body.
    """
    ids = [topics.job_id_of(group, event.row.id) for event in batch.events]
    stored = [row for row in engine.store.find(ids) if row is not None]
    known = {row.id: as_inserted(row) for row in stored}
    plan = batch.hold.note.plan
    known |= {} if plan is None else {row.id: row for row in plan.jobs}
    jobs = []
    for event, job_id in zip(batch.events, ids, strict=True):
        body = encode([event.value])
        row = known.get(job_id) or _at_time(engine, new(event, job_id, body), event)
        jobs.append(row._replace(body=body))
    return jobs


def as_inserted(row: Job) -> Job:
    """Return a row as it was before any claim."""
    return Job(*row[:10], row.pos_us)


def _at_time(engine: Engine, row: Job, event: Event) -> Job:
    """Return a new row with the time of its event; the id of an event has it to the microsecond."""
    at_us, event_id = event.row.at_us, event.row.id
    called_us = created_us(JobId(event_id)) + ((int.from_bytes(event_id[6:8]) & 0xFFF) * 1000 >> 12)
    if not 0 <= at_us - called_us <= DAY_US:  # the id was made elsewhere
        called_us = at_us
    bucket = bucket_of(called_us, engine.catalog.settings(row.lane.queue).width_us)
    return row._replace(
        lane=row.lane._replace(bucket=bucket), pos_us=called_us, due_us=called_us,
        enqueued_us=called_us, at_us=called_us,
    )  # fmt: skip


def headers_of(event: Event) -> dict[str, str]:
    """Return the headers of the job of an event: its own, and what the handler knows it by."""
    own = {"topic": event.topic or "", "topic-event": event.id}
    if event.key is not None:
        own["topic-key"] = event.key
    return {**event.headers, **own}


def deliver_all(app: Host) -> int:
    """Move the events that there are, as before a burst; return the number of steps that did."""
    if not app._subscriptions:  # noqa: SLF001  (of this package)
        return 0
    deliveries = Deliveries(app)
    try:
        count = 0
        while deliveries.step():
            count += 1
        return count
    finally:
        deliveries.stop()


@contextmanager
def delivering(app: Host, *, at_once: bool) -> Iterator[None]:
    """Move events to the subscribing tasks while the block runs.

    Args:
      at_once: First move those that there are.
    """
    if at_once:
        _try(lambda: deliver_all(app))
    deliveries = Deliveries(app)
    deliveries.start()
    try:
        yield
    finally:
        deliveries.stop()


def _try(step: Callable[[], Any]) -> Any:  # noqa: ANN401
    """Run a step; log its failure, so that the next steps run."""
    try:
        return step()
    except DuelineError as error:
        log.warning("topics continue after an error: %s", error)
    except Exception:  # noqa: BLE001  (a thread that ended would hold its shards for ever)
        log.exception("topics continue after an error")
    return None
