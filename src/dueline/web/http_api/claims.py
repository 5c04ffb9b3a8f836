"""Claims: workers in other languages claim jobs, extend their leases, and end them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.concurrency import run_in_threadpool

from dueline.api.claim_sessions import ClaimSessions, HandedJob, Terms
from dueline.api.job_handle import parse_id
from dueline.core.attempt import Ending, Failed, GivenBack, Snoozed
from dueline.core.call_options import headers_of
from dueline.core.clock import SECOND_US, to_datetime
from dueline.core.codec import RESULT_BYTES_MAX
from dueline.core.errors import DuelineError, LeaseLost
from dueline.core.job import Job, Token
from dueline.core.lane import tenant_of
from dueline.core.logging import log
from dueline.core.queue_settings import LEASE_US_MAX, check_queue_name
from dueline.web.http_api.frame import Call, Input, operation
from dueline.web.http_api.shapes import Done, Name, Seconds
from dueline.web.http_api.waiting import Wait, poll

CLAIM_MAX: Final = 100
RESULT_BODY_BYTES_MAX: Final = RESULT_BYTES_MAX + 64 * 1024

Lease = Annotated[
    float,
    Meta(ge=0.1, le=LEASE_US_MAX / SECOND_US, description="In seconds; by default the queue's."),
]
ClaimToken = Annotated[str, Meta(pattern="^[0-9a-f]{32}$", description="From the claim.")]


class NewClaim(Input):
    """Which jobs a worker claims. tasks: those that it knows; null for all.

    Workers with equal `worker`, `queues`, `tasks` and `lease` share the limits that they hold.
    """

    queues: Annotated[list[Name], Meta(min_length=1, max_length=20)]
    tasks: Annotated[list[Name], Meta(max_length=500)] | None = None
    most: Annotated[int, Meta(ge=1, le=CLAIM_MAX)] = 1
    wait: Wait = 0
    lease: Lease | None = None
    worker: Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]{1,64}$")] = "http"


class ClaimedJob(msgspec.Struct):
    """A job to run. token: needed to extend and end the claim. fence: only grows with each claim.

    lease_until: the job is due again then, unless the claim is extended.
    """

    id: str
    token: str
    fence: int
    lease_until: datetime
    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    queue: str
    tenant: str
    priority: int
    due: datetime
    attempt: int
    headers: dict[str, str]


class ClaimedJobs(msgspec.Struct):
    """The claimed jobs, the most urgent first; none if nothing was due in time."""

    jobs: list[ClaimedJob]


class Extend(Input):
    """The new lease, from now."""

    token: ClaimToken
    lease: Lease | None = None


class Extended(msgspec.Struct):
    """The new end of the claim. is_cancelled: stop, and release or fail the job."""

    lease_until: datetime
    is_cancelled: bool


class Complete(Input):
    """The result, kept as the queue or the call says."""

    token: ClaimToken
    result: Any = None


class Fail(Input):
    """Why the attempt failed. retry: false moves the job to the dead-letter list.

    retry_after: wait instead of that of the policy.
    """

    token: ClaimToken
    error: Annotated[str, Meta(min_length=1, max_length=200)]
    message: Annotated[str, Meta(max_length=4096)] = ""
    traceback: Annotated[str, Meta(max_length=16384)] = ""
    retry: bool = True
    retry_after: Seconds | None = None


class Release(Input):
    """Give the job back; it does not count as an attempt. after: wait before it is due again."""

    token: ClaimToken
    after: Seconds = 0


@operation("POST", "/claims", role="worker")
async def claim_jobs(call: Call, body: NewClaim) -> ClaimedJobs:
    """Claim due jobs.

    Waits up to `wait` seconds for the first. Pauses, limits, tenants and unknown tasks are heeded
    as in other workers. A job whose claim ends without an outcome is due again; after three such
    claims it is a dead-letter job.
    """
    terms = Terms(
        body.worker,
        tuple(dict.fromkeys(map(check_queue_name, body.queues))),
        None if body.tasks is None else frozenset(body.tasks),
        None if body.lease is None else round(body.lease * SECOND_US),
    )

    async def claim() -> list[ClaimedJob] | None:
        sessions = call.site.claims
        return await run_in_threadpool(sessions.claim, terms, body.most, _shown) or None

    claimed = await poll(call.request, claim, body.wait)
    if claimed and await call.request.is_disconnected():
        await run_in_threadpool(_release_all, call.site.claims, claimed)
        claimed = None
    return ClaimedJobs(claimed or [])


def _release_all(sessions: ClaimSessions, jobs: Sequence[ClaimedJob]) -> None:
    """Release jobs whose client left; if that fails, their leases end."""
    for job in jobs:
        try:
            _settle(sessions, _held(sessions, job.id, job.token), GivenBack())
        except DuelineError as error:
            log.info("job %s is not released: %s", job.id, error)


def _shown(handed: HandedJob) -> ClaimedJob:
    job = handed.job
    args, kwargs = handed.arguments()
    return ClaimedJob(
        id=job.id.hex(),
        token=job.token.hex(),
        fence=job.fence,
        lease_until=to_datetime(job.at_us),
        task=job.task,
        args=args,
        kwargs=kwargs,
        queue=job.lane.queue,
        tenant=tenant_of(job.lane),
        priority=job.lane.priority,
        due=to_datetime(job.due_us),
        attempt=job.errors + 1,
        headers=headers_of(job),
    )


@operation("POST", "/claims/{id}/extend", role="worker")
def extend_claim(call: Call, body: Extend) -> Extended:
    """Extend a claim; it never becomes shorter.

    Send it every third of the lease. A claim with limits lasts no longer than its permits.
    """
    claims = call.site.claims
    lease_us = None if body.lease is None else round(body.lease * SECOND_US)
    job = _held(claims, call.path["id"], body.token)
    (until_us,) = claims.extend([job], lease_us)
    if until_us is None:
        raise _lost(job)
    return Extended(to_datetime(until_us), claims.is_cancelled(job))


@operation("POST", "/claims/{id}/complete", role="worker", bytes_max=RESULT_BODY_BYTES_MAX)
def complete_claim(call: Call, body: Complete) -> Done:
    """End a job as done."""
    claims = call.site.claims
    job = _held(claims, call.path["id"], body.token)
    return _settle(claims, job, claims.done(job, body.result))


@operation("POST", "/claims/{id}/fail", role="worker")
def fail_claim(call: Call, body: Fail) -> Done:
    """Fail an attempt; the job is retried as its task or call says."""
    claims = call.site.claims
    job = _held(claims, call.path["id"], body.token)
    after_us = None if body.retry_after is None else round(body.retry_after * SECOND_US)
    return _settle(
        claims, job, Failed(body.error, body.message, body.traceback, body.retry, after_us)
    )


@operation("POST", "/claims/{id}/release", role="worker")
def release_claim(call: Call, body: Release) -> Done:
    """Give a job back without using up an attempt."""
    claims = call.site.claims
    job = _held(claims, call.path["id"], body.token)
    after_us = round(body.after * SECOND_US)
    return _settle(claims, job, Snoozed(after_us) if after_us else GivenBack())


def _held(claims: ClaimSessions, job_id: str, token: str) -> Job:
    return claims.held(parse_id(job_id), Token(bytes.fromhex(token)))


def _settle(claims: ClaimSessions, job: Job, ending: Ending) -> Done:
    if claims.settle([(job, ending)]):
        raise _lost(job)
    return Done()


def _lost(job: Job) -> LeaseLost:
    return LeaseLost(f"The claim on the job {job.id.hex()} was lost.")


OPERATIONS = (claim_jobs, extend_claim, complete_claim, fail_claim, release_claim)
