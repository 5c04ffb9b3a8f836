"""Calls and rows that tests put into queues."""

from collections.abc import Mapping, Sequence

from dueline.core.call_options import CallOptions
from dueline.core.codec import JSON
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane, bucket_of
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Lease, Store, Want
from dueline.core.worker_needs import read_needs
from dueline.jobs.queue import EnqueueRequest, Queues
from tests.harness.clocks import NOW_US

LEASE_US = QueueSettings().lease_us
WIDTH_US = QueueSettings().width_us


def call(
    number: int = 0,
    *,
    queue: str = "default",
    task: str = "tests.task",
    due_us: int | None = None,
    priority: int = 0,
    tenant: str = "",
    needs: Mapping[str, int | str] | None = None,
) -> EnqueueRequest:
    """Make a numbered call."""
    opts = CallOptions(needs=read_needs(needs)).to_bytes() if needs else b""
    return EnqueueRequest(queue, task, JSON, [b"[%d]" % number], due_us, priority, tenant, opts)


def calls(first: int, end: int, *, queue: str = "default") -> EnqueueRequest:
    """Make calls that go into one write, numbered from `first` up to `end`."""
    return EnqueueRequest(
        queue, "tests.task", JSON, [b"[%d]" % number for number in range(first, end)]
    )


def number_of(job: Job) -> int:
    """Read the number of a call back."""
    return int(job.body[1:-1])


def numbers(jobs: Sequence[Job]) -> list[int]:
    """Read the numbers of calls back."""
    return [number_of(job) for job in jobs]


def put(queues: Queues, *calls: EnqueueRequest) -> list[Job]:
    """Enqueue calls."""
    return [job for call in calls for job in queues.enqueue(call)]


def row_of(number: int = 1, *, at_us: int = NOW_US, task: str = "tests.task") -> Job:
    """Make a row that is in no store."""
    lane = Lane("default", 0, bucket_of(at_us, WIDTH_US), 0, "")
    body = b"[%d]" % number
    return Job(
        lane, at_us, JobId(number.to_bytes(16)), 0, at_us, at_us, task, JSON, body, b"", at_us
    )


def claim_all(
    queues: Queues,
    *lanes: Lane,
    limit: int = 1000,
    worker: str = "worker",
    lease_us: int = LEASE_US,
) -> list[Job]:
    """Claim what is due, from lanes in this order, or from all lanes of `default`."""
    chosen = lanes or tuple(queues.engine.lanes_of("default"))
    if not chosen:
        return []
    claimed = queues.engine.store.claim(
        [Want(lane, limit) for lane in chosen],
        limit=limit,
        lease=Lease(queues.engine.time.earliest_us(), lease_us, worker, queues.engine.ids.token()),
    )
    return list(claimed.jobs)


def row_in(store: Store, job_id: JobId) -> Job:
    """Read a row that must be there."""
    (row,) = store.find([job_id])
    assert row is not None
    return row
