"""Jobs: enqueue, list, read and change."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.concurrency import run_in_threadpool

from dueline.admin.job_views import JobSummary as Summary
from dueline.api.application import Dueline
from dueline.api.dependency import Dependency
from dueline.api.job_handle import parse_id
from dueline.api.task import PlannedCall, Using
from dueline.core.attempt import read_epitaph
from dueline.core.call_options import CARRIED, OrderKey, Unique, without_names
from dueline.core.clock import SECOND_US, to_us
from dueline.core.codec import encode_result
from dueline.core.errors import BadInput
from dueline.core.option_table import OPTIONS, Shape
from dueline.core.retry import Retry
from dueline.web.http_api.frame import KEY_HEADER, Call, Input, operation
from dueline.web.http_api.idempotency import Key, request_key
from dueline.web.http_api.shapes import (
    AttemptSummary,
    Done,
    Enqueued,
    JobDetails,
    JobList,
    JobSummary,
    Name,
    NewJob,
    ProgressReport,
    Seconds,
    Time,
    time_of,
)
from dueline.web.http_api.waiting import Wait, poll

ENQUEUE_BYTES_MAX: Final = 512 * 1024
BULK_BYTES_MAX: Final = 8 * 1024 * 1024
BULK_MAX: Final = 1_000
PAGE_MAX: Final = 500


class NewJobs(Input):
    """Several calls, which are stored together as far as possible."""

    jobs: Annotated[list[NewJob], Meta(min_length=1, max_length=BULK_MAX)]


class JobQuery(Input):
    """Which jobs: `filter` as in the dashboard, such as `queue:mail state:dead priority>3`."""

    filter: Annotated[str, Meta(max_length=500)] = ""
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 50
    cursor: Annotated[str, Meta(max_length=100)] | None = None


@operation("POST", "/jobs", role="producer", status=201, bytes_max=ENQUEUE_BYTES_MAX, is_keyed=True)
def enqueue_job(call: Call, body: NewJob) -> Enqueued:
    """Enqueue a job.

    Arguments are checked against the task, if the server's application has a task of this name;
    the arguments of others are checked by the worker.
    """
    try:
        return _enqueue(call, [body])[0]
    except BadInput as error:
        message = error.message.removeprefix("calls[0]: ")
        raise BadInput(message, hint=error.hint) from error


@operation(
    "POST", "/jobs/bulk", role="producer", status=201, bytes_max=BULK_BYTES_MAX, is_keyed=True
)
def enqueue_jobs(call: Call, body: NewJobs) -> list[Enqueued]:
    """Enqueue several jobs.

    If the store fails in the middle, `unsent` of the problem counts the jobs at the end that are
    not stored. A repeat with the same Idempotency-Key stores the rest.
    """
    return _enqueue(call, body.jobs)


def _enqueue(call: Call, jobs: list[NewJob]) -> list[Enqueued]:
    app = call.site.producer
    key = call.request.headers.get(KEY_HEADER)
    checked = [new_job.task in app.tasks for new_job in jobs]
    if key is None:
        stored = app.enqueue_many(
            [_planned(app, new_job, None) for new_job in jobs], chunk=BULK_MAX
        )
        is_new = True
    else:
        with request_key(app.engine, key, sender=call.identity.name, body=call.raw) as used:
            planned = [_planned(app, new_job, (used, place)) for place, new_job in enumerate(jobs)]
            stored = app.enqueue_many(planned, chunk=BULK_MAX)
            is_new = used.is_new
    return [
        Enqueued(job.id, is_checked, repeated=not is_new)
        for job, is_checked in zip(stored, checked, strict=True)
    ]


_OPTIONS: Final = tuple(
    option.name for option in OPTIONS if option.http and option.shape != Shape.OWN
)
"""Members of a job that are options as they are."""


def _planned(app: Dueline, job: NewJob, key: tuple[Key, int] | None) -> PlannedCall[Any]:
    task: Using[..., Any] = (
        app.task_named(job.task) if job.task in app.tasks else app.unchecked(job.task)
    )
    options: dict[str, Any] = {name: getattr(job, name) for name in _OPTIONS}
    if key is not None:
        if job.unique is not None or task.has_unique_key:
            raise BadInput(
                "A call with a unique key needs no Idempotency-Key.", hint="Omit the header."
            )
        options["unique"] = key[0].unique(key[1])
    elif job.unique is not None:
        plain = without_names(job.unique.key)
        options["unique"] = Unique(plain, mode=job.unique.mode, within=job.unique.within)
    if (order := job.order_key) is not None:
        options["order_key"] = OrderKey(without_names(order.key), order.dead)
    if (awaited := job.depends_on) is not None:
        options["depends_on"] = Dependency(awaited.jobs, awaited.failures)
    if (retry := job.retry) is not None:
        options["retry"] = (
            Retry(retry.attempts, delays=retry.delays)  # type: ignore[arg-type]  # None is allowed
            if retry.delays
            else Retry(retry.attempts, base=retry.base, cap=retry.cap)  # type: ignore[arg-type]
        )
    return PlannedCall(task.using(**options), job.args, job.kwargs)


@operation("GET", "/jobs", role="reader")
def list_jobs(call: Call, query: JobQuery) -> JobList:
    """List jobs by time, a page at a time; ended ones with `state:done`, the latest first."""
    page = call.site.admin.list(query.filter, limit=query.limit, after=query.cursor)
    return JobList([JobSummary(**_summary(job)) for job in page.jobs], page.next, page.is_capped)


@operation("GET", "/jobs/{id}", role=("reader", "producer"))
def get_job(call: Call) -> JobDetails:
    """Return all that is stored of a job."""
    site = call.site
    details = site.admin.get(call.path["id"])
    summary, redaction, progress = details.summary, site.redaction, details.progress
    carried = {
        name: redaction.value(form.show(getattr(details.carried, name)))
        for name, form in CARRIED.items()
        if name in JobDetails.__struct_fields__
    }
    return JobDetails(
        **{**carried, **_summary(summary)},
        arguments=redaction.arguments(details.arguments, site.parameters(summary.task)),
        hidden=details.hidden,
        result=redaction.value(details.result),
        progress=None
        if progress is None
        else ProgressReport(progress.done, progress.total, progress.note),
        traceback=details.traceback,
        unique=details.unique,
        order_key=details.order_key,
        order_first=details.order_first,
        workflow=details.workflow,
        attempts=[
            AttemptSummary(
                attempt.fence, attempt.outcome, attempt.error, attempt.worker,
                time_of(attempt.claimed_us), time_of(attempt.started_us), time_of(attempt.ended_us),
            )
            for attempt in details.attempts
        ],
    )  # fmt: skip


def _summary(summary: Summary) -> dict[str, Any]:
    """Return the fields of a summary."""
    values = asdict(summary)
    times = {name: time_of(values[f"{name}_us"]) for name in
             ("due", "enqueued", "claimed", "started", "ended")}  # fmt: skip
    known = {name: values[name] for name in JobSummary.__struct_fields__ if name in values}
    return {**known, **times, "next": time_of(summary.at_us)}


class Result(msgspec.Struct):
    """How a job ended; while it waits or runs, or if no result is kept, only its state."""

    state: str
    result: Any = None
    error: str = ""


class ResultQuery(Input):
    """How long to wait for the end of the job."""

    wait: Wait = 0


class Cancel(Input):
    """How to cancel. force: a running job ends whatever its handler does."""

    force: bool = False


class Settle(Input):
    """The result of a job that is done by other means."""

    result: Any = None


class Cancelled(msgspec.Struct):
    """Whether the job has ended; otherwise its handler was asked to stop."""

    ended: bool


class Reschedule(Input):
    """The new due time: exactly one of both."""

    due: Time | None = None
    after: Seconds | None = None


@operation("GET", "/jobs/{id}/result", role="producer")
async def get_result(call: Call, query: ResultQuery) -> Result:
    """Return the result of a job, as it is stored.

    Waits up to `wait` seconds for the job to end. A state of `dead` may change if it is retried.
    """
    queues, job_id = call.site.app.queues, parse_id(call.path["id"])

    async def read() -> bool | None:
        job = await run_in_threadpool(queues.find, job_id)
        return job.outcome is not None or job.status in ("dead", "expired") or None

    await poll(call.request, read, query.wait)
    job = await run_in_threadpool(queues.find, job_id)
    if (outcome := job.outcome) is not None:
        value = msgspec.json.decode(outcome.value) if outcome.value else None
        return Result(outcome.state, value, outcome.error)
    error = read_epitaph(job.row.error)[0] if job.row else ""
    return Result(job.status, None, error)


@operation("POST", "/jobs/{id}/cancel", role="operator")
def cancel_job(call: Call, body: Cancel) -> Cancelled:
    """Cancel a waiting job, or ask the handler of a running one to stop."""
    operations, job_id = call.operations(), parse_id(call.path["id"])
    return Cancelled(operations.cancel(job_id, by_force=body.force))


@operation("POST", "/jobs/{id}/retry", role="operator")
def retry_job(call: Call) -> Done:
    """Run a waiting or dead-letter job as soon as possible."""
    call.operations().retry(parse_id(call.path["id"]))
    return Done()


@operation("POST", "/jobs/{id}/settle", role="operator")
def settle_job(call: Call, body: Settle) -> Done:
    """End a dead-letter job as done, with a result; what waits for it goes on."""
    result = encode_result(body.result, "the job")
    call.operations().settle(parse_id(call.path["id"]), result)
    return Done()


@operation("POST", "/jobs/{id}/reschedule", role="operator")
def reschedule_job(call: Call, body: Reschedule) -> Done:
    """Change when a waiting job is due."""
    if (body.due is None) == (body.after is None):
        raise BadInput("Pass exactly one of `due` and `after`.", hint='Use {"after": 60}.')
    if body.due is not None:
        at_us = to_us(body.due)
    else:
        at_us = call.site.now_us() + round((body.after or 0) * SECOND_US)
    call.operations().reschedule(parse_id(call.path["id"]), at_us)
    return Done()


class Move(Input):
    """The queue to move a job to."""

    to: Name


class MoveJobs(Input):
    """Which waiting jobs, as in the dashboard and with their queue, and the queue to move them to.

    dry_run: only count them.
    """

    filter: Annotated[str, Meta(max_length=500)]
    to: Name
    dry_run: bool = False


class Moved(msgspec.Struct):
    """Numbers of the jobs that were moved, and of those that were left, by the reason."""

    moved: int
    left: Mapping[str, int]


@operation("POST", "/jobs/{id}/move", role="operator")
def move_job(call: Call, body: Move) -> Done:
    """Move a waiting job to another queue."""
    call.operations().move_job(parse_id(call.path["id"]), body.to)
    return Done()


@operation("POST", "/jobs/move", role="operator")
def move_jobs(call: Call, body: MoveJobs) -> Moved:
    """Move up to 5,000 waiting jobs of a queue to another one; a repeat continues after them."""
    like = call.site.admin.filter(body.filter)
    operations = call.operations()
    if body.dry_run:
        moves = operations.preview_move(like, body.to)
    else:
        moves = operations.move(like, body.filter, body.to)
    return Moved(moves.moved, dict(moves.left))


@operation("POST", "/jobs/{id}/pause", role="operator")
def pause_job(call: Call) -> Done:
    """Let no worker claim a waiting job until it is resumed."""
    call.operations().pause_job(parse_id(call.path["id"]))
    return Done()


@operation("POST", "/jobs/{id}/resume", role="operator")
def resume_job(call: Call) -> Done:
    """Return a paused job to its place."""
    call.operations().resume_job(parse_id(call.path["id"]))
    return Done()


OPERATIONS = (
    enqueue_job, enqueue_jobs, list_jobs, get_job,
    get_result, cancel_job, retry_job, settle_job, reschedule_job, move_job, move_jobs,
    pause_job, resume_job,
)  # fmt: skip
