"""The states of jobs as users see them."""

from contextlib import suppress

from dueline.core.call_options import is_past
from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Job, is_paused
from dueline.core.lane import DEAD_SUFFIX


def status_of(job: Job, now_us: int) -> str:
    """Return the state of a job that has a row.

    A job that waits past its expiry is expired: no worker runs it. One that is paused by itself is
    not, until it is resumed.
    """
    if job.lane.queue.endswith(DEAD_SUFFIX):
        return "dead"
    if job.is_claimed() and job.at_us > now_us:
        return "running"
    if is_paused(job):
        return "paused"
    if not job.is_claimed() and _is_expired(job, now_us):
        return "expired"
    if job.at_us <= now_us:
        return "ready"
    return "retrying" if job.errors or job.crashes else "scheduled"


def ahead_of(job: Job, now_us: int) -> int:
    """Return how far a row's own times are ahead of now, in microseconds.

    It is 0 below a second, since synchronized clocks may differ that much.
    """
    ahead_us = max(job.enqueued_us, job.claimed_us) - now_us
    return ahead_us if ahead_us > SECOND_US else 0


def _is_expired(job: Job, now_us: int) -> bool:
    with suppress(StoreCorrupt):  # the worker that claims it reports that
        return is_past(job, now_us)
    return False
