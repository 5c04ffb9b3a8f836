"""Webhooks: the end of a job inserts the job that reports it.

The call of a job names an address. The insert of the delivery is an effect of the end, so it is
stored in the write of the outcome, or by the process that completes that (rule T3). The address is
in its options, which no page shows.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from dueline.core.attempt import Outcome
from dueline.core.call_options import CallOptions, carried_by
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import JSON, encode
from dueline.core.engine import Engine
from dueline.core.ids import derived
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane, bucket_of, lane_tenant, living_queue, tenant_of
from dueline.core.wakeup import Wakeup

QUEUE: Final = "webhooks"
"""Queue of the deliveries, so that none of them delays another job."""

TASK: Final = "dueline.deliver_webhook"

LIMIT: Final = "webhooks"
"""Semaphore of the deliveries; its keys are hosts."""

_WIDTH_US: Final = DAY_US
"""Width of the buckets of deliveries: no queue has wider ones, so each is listed as past."""

_ERROR_CHARACTERS: Final = 500


def deliveries(job: Job, outcome: Outcome) -> tuple[Job, ...]:
    """Return the job that reports how a job ended; the same for each repeat of this end."""
    if not job.opts:
        return ()
    address = carried_by(job).webhook
    if not address:
        return ()
    at_us = outcome.ended_us
    job_id = JobId(derived(job.id + TASK.encode() + at_us.to_bytes(8), 0))
    host = urlsplit(address).hostname or ""
    lane = Lane(QUEUE, 0, bucket_of(at_us, _WIDTH_US), 0, lane_tenant("", [f"{LIMIT}:{host}"]))
    body = encode([host, _event(job, outcome)])
    opts = CallOptions(deliver_to=address).to_bytes()
    return (Job(lane, at_us, job_id, 0, at_us, at_us, TASK, JSON, body, opts, at_us),)


def wake(engine: Engine, ended: Iterable[Job]) -> None:
    """Wake the workers of deliveries, of jobs that may have ended."""
    if any(carried_by(job).webhook for job in ended):
        engine.wakeups.wake([Wakeup(QUEUE)])


def _event(job: Job, outcome: Outcome) -> str:
    """Return what is sent, as JSON: neither arguments nor the result, which may be secret."""
    at = datetime.fromtimestamp(outcome.ended_us / SECOND_US, UTC).isoformat()
    data = {
        "id": job.id.hex(),
        "task": job.task,
        "queue": living_queue(job.lane.queue),
        "tenant": tenant_of(job.lane),
        "state": outcome.state,
        "error": outcome.error[:_ERROR_CHARACTERS],
        "ended_at": at,
    }
    return encode({"type": f"job.{outcome.state}", "timestamp": at, "data": data}).decode()
