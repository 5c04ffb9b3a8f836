"""Operators at a distance: workers, pauses of streams, redrives, logs, explanations."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from dueline import Explanation
from dueline.admin.redrives import Redrive, chosen, read_rate
from dueline.coordination.worker_requests import RequestKind
from dueline.core.clock import SECOND_US
from dueline.web.http_api.frame import Call, Input, operation
from dueline.web.http_api.shapes import Done, Name, Seconds, time_of
from dueline.web.site import begin_redrive


class LostSlot(msgspec.Struct):
    """A handler that has outlived its time limit. since: when the limit was over."""

    job: str
    task: str
    since: datetime | None


class Worker(msgspec.Struct):
    """A live worker. state: claiming, quiet or draining; held: jobs that it has claimed.

    lost: slots that are lost to handlers that have outlived their time limits.
    """

    worker: str
    state: str
    queues: Sequence[str]
    tasks: Sequence[str]
    slots: int
    held: int
    running: int | None
    started: datetime | None
    heartbeat: datetime | None
    version: str
    lost: Sequence[LostSlot]


class WorkerRequest(Input):
    """A request to one worker, by its id or the first letters of it, or without it to all."""

    what: RequestKind
    worker: Name | None = None


class AskedWorkers(msgspec.Struct):
    """The workers that were asked. request: their answers have it."""

    request: str
    workers: Sequence[str]


class RunningJob(msgspec.Struct):
    """A job whose handler runs."""

    id: str
    task: str
    claimed: datetime | None


class WorkerAnswer(msgspec.Struct):
    """What a worker answered last; memory_bytes with its child processes."""

    worker: str
    request: str
    at: datetime | None
    state: str
    started: datetime | None
    memory_bytes: int
    running: int
    jobs: Sequence[RunningJob]


class StreamPart(Input):
    """A consumer group, a shard of all groups, or a shard of one group."""

    group: Name | None = None
    shard: Annotated[int, Meta(ge=0)] | None = None


class RedriveProgress(msgspec.Struct):
    """A paced redrive. rate: jobs per second."""

    id: str
    state: str
    filter: str
    rate: float
    matching: int
    retried: int
    who: str
    began: datetime | None
    heartbeat: datetime | None


class AttemptLog(msgspec.Struct):
    """What the handler logged in one attempt."""

    fence: int
    ended: datetime | None
    text: str


@operation("GET", "/workers", role="reader")
def list_workers(call: Call) -> list[Worker]:
    """List the workers that are alive."""
    return [
        Worker(
            worker.worker, _state(quiet=worker.is_quiet, draining=worker.is_draining),
            worker.queues, worker.tasks, worker.slots, worker.held, worker.running,
            time_of(worker.started_us), time_of(worker.beat_us), worker.version,
            [LostSlot(job, task, time_of(since_us)) for job, task, since_us in worker.lost],
        )
        for worker in call.site.admin.workers()
    ]  # fmt: skip


@operation("POST", "/workers/requests", role="operator", status=202)
def ask_workers(call: Call, body: WorkerRequest) -> AskedWorkers:
    """Quiet, resume, stop or ping one live worker or all of them.

    They do so within five seconds, and answer: see `GET /workers/answers`. "stop" is as SIGTERM,
    "stop-now" as a second one.
    """
    request, workers = call.operations().ask_workers(body.what, body.worker)
    return AskedWorkers(request, [worker.worker for worker in workers])


@operation("GET", "/workers/answers", role="reader")
def list_worker_answers(call: Call) -> list[WorkerAnswer]:
    """List what workers answered in the last minute, each its last answer."""
    return [
        WorkerAnswer(
            answer.worker, answer.request, time_of(answer.at_us),
            _state(quiet=answer.is_quiet, draining=answer.is_draining), time_of(answer.started_us),
            answer.memory_bytes, answer.running,
            [RunningJob(job, task, time_of(at_us)) for job, task, at_us in answer.jobs],
        )
        for answer in call.site.admin.worker_answers().values()
    ]  # fmt: skip


def _state(*, quiet: bool, draining: bool) -> str:
    return "draining" if draining else "quiet" if quiet else "claiming"


@operation("POST", "/streams/{name}/pause", role="operator")
def pause_stream(call: Call, body: StreamPart) -> Done:
    """Pause a consumer group or a shard; consumers keep their positions."""
    call.operations().pause_stream(call.path["name"], group=body.group, shard=body.shard)
    return Done()


@operation("POST", "/streams/{name}/resume", role="operator")
def resume_stream(call: Call, body: StreamPart) -> Done:
    """Resume what was paused, with the same group and shard."""
    call.operations().resume_stream(call.path["name"], group=body.group, shard=body.shard)
    return Done()


@operation("GET", "/redrives", role="reader")
def list_redrives(call: Call) -> list[RedriveProgress]:
    """List the paced redrives of the last days, the latest first."""
    return list(map(_redrive, call.site.admin.redrives()))


class NewRedrive(Input):
    """Which dead-letter jobs, as in the dashboard, and a rate such as 50/s or 600/5m."""

    filter: Annotated[str, Meta(max_length=500)]
    rate: Annotated[str, Meta(max_length=40)]


@operation("POST", "/redrives", role="operator", status=202)
def begin_paced_redrive(call: Call, body: NewRedrive) -> RedriveProgress:
    """Retry dead-letter jobs at a rate. The server runs it; if it ends, resume the redrive."""
    like = replace(call.site.admin.filter(body.filter), state="dead")
    return _redrive(begin_redrive(call.operations(), like, body.filter, read_rate(body.rate)))


@operation("POST", "/redrives/{id}/resume", role="operator", status=202)
def resume_redrive(call: Call) -> RedriveProgress:
    """Resume a redrive that was stopped, or whose process has ended."""
    redrive = chosen(call.site.admin.engine, call.path["id"], to_resume=True)
    return _redrive(begin_redrive(call.operations(), redrive.like, redrive.written, redrive.rate))


@operation("POST", "/redrives/{id}/stop", role="operator")
def stop_redrive(call: Call) -> RedriveProgress:
    """Stop a paced redrive; its process ends about a second later."""
    return _redrive(call.operations().stop_redrive(call.path["id"]))


def _redrive(redrive: Redrive) -> RedriveProgress:
    return RedriveProgress(
        redrive.id, redrive.state, redrive.written, redrive.rate, redrive.matching, redrive.done,
        redrive.who, time_of(redrive.began_us), time_of(redrive.beat_us),
    )  # fmt: skip


@operation("GET", "/jobs/{id}/logs", role=("reader", "producer"))
def get_job_logs(call: Call) -> list[AttemptLog]:
    """Return what the handler of a job logged, of attempts that keep it."""
    details = call.site.admin.get(call.path["id"])
    return [AttemptLog(line.fence, time_of(line.ended_us), line.text) for line in details.lines]


class Condition(msgspec.Struct):
    """One thing that must change before a job can start.

    change: `time` (by itself, `at`), `work` (by itself, when is not known) or `operator`.
    """

    kind: str
    subject: str
    text: str
    change: str
    at: datetime | None
    command: str
    unknown: str


class Explained(msgspec.Struct):
    """Why a job is not running. conditions: what must change, the next one first.

    ends_as: the state in which it ends without being run, if nothing is changed. starts: whether
    it starts within the duration that was asked for (`yes`, `no`, `unknown`), and the commands that
    start it by then.
    """

    reason: str
    sentence: str
    conditions: Sequence[Condition]
    ends_as: str
    unknown: Sequence[str]
    starts: str | None = None
    commands: Sequence[str] = ()


class EventDelivery(msgspec.Struct):
    """What a consumer group does with an event. group: of a task with `on=` it is `task NAME`.

    pattern: the topics that it reads, or null. job: the id of the job of the event, or null.
    """

    group: str
    pattern: str | None
    job: str | None
    explanation: Explained


class ExplainedEvent(msgspec.Struct):
    """An event, without its value. at: null if it has expired."""

    id: str
    at: datetime | None
    shard: int | None
    key: str | None
    topic: str | None
    groups: Sequence[EventDelivery]


class ExplainQuery(Input):
    """Say also what starts the job within this duration."""

    until: Seconds | None = None


@operation("GET", "/jobs/{id}/explanation", role=("reader", "producer"))
def explain_job(call: Call, query: ExplainQuery) -> Explained:
    """Return everything that must change before a job can start."""
    within_us = None if query.until is None else round(query.until * SECOND_US)
    return _explained(call.site.admin.explain(call.path["id"], within_us=within_us))


@operation("GET", "/streams/{name}/events/{event}/explanation", role="reader")
def explain_event(call: Call) -> ExplainedEvent:
    """Return which groups get an event, by its id or position, and what it waits for."""
    details = call.site.admin.explain_event(call.path["name"], call.path["event"])
    event = details.event
    deliveries = [
        EventDelivery(
            delivery.group,
            delivery.pattern,
            delivery.job or None,
            _explained(delivery.explanation),
        )
        for delivery in details.deliveries
    ]
    if event is None:
        return ExplainedEvent(details.id, None, None, None, None, deliveries)
    return ExplainedEvent(event.id, event.at, event.shard, event.key, event.topic, deliveries)


def _explained(explanation: Explanation) -> Explained:
    until = explanation.until
    return Explained(
        explanation.reason,
        explanation.sentence,
        [
            Condition(
                condition.kind, condition.subject, condition.clause, condition.change,
                time_of(condition.at_us), condition.command, condition.unknown,
            )
            for condition in explanation.conditions
        ],
        explanation.ends_as,
        explanation.unknown,
        None if until is None else until.starts,
        () if until is None else until.commands,
    )  # fmt: skip


OPERATIONS = (
    list_workers, ask_workers, list_worker_answers, pause_stream, resume_stream, list_redrives,
    begin_paced_redrive, resume_redrive, stop_redrive, get_job_logs, explain_job,
    explain_event,
)  # fmt: skip
