"""When a job is due, and when it expires."""

from contextlib import suppress
from typing import Final

from dueline.core.call_options import THROTTLED, read_options
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Job
from dueline.jobs.conditions.subject import Subject
from dueline.jobs.explanation import Condition, ConditionKind, Facts, line, when

_BY_HANDLER: Final = {
    "snoozed": "snoozed it",
    THROTTLED: "raised Throttled, which defers it",
}


def expiry_of(job: Job) -> int:
    """Return when a job expires; 0 for never, or if its options cannot be read."""
    with suppress(StoreCorrupt):  # the worker that claims it reports that
        return read_options(job.opts).expires_us or 0
    return 0


def due(subject: Subject) -> Condition:
    """Return the wait for a job's time, or that the job expires before its time."""
    job, now_us = subject.job, subject.now_us
    at, expires_us = when(job.at_us, now_us), expiry_of(job)
    facts: Facts = {
        "at_us": job.at_us,
        "due_us": job.due_us,
        "errors": job.errors,
        "error": job.error,
    }
    kind, ended, waits = _waits(job, at)
    command = f"dueline jobs retry {job.id.hex()}"
    if not 0 < expires_us <= job.at_us:
        clause = f"{ended}{waits}"
        return Condition(kind, job.id.hex(), clause, "time", job.at_us, command, facts=facts)
    longer = " for longer" if kind == "put back" else ""
    why = "" if kind == "scheduled" else f": {ended}{longer}"
    clause = (
        f"it expires at {when(expires_us, now_us)} without another run{why} "
        f"(`{command}` runs it before)"
    )
    facts = {**facts, "expires_us": expires_us}
    return Condition("expires", job.id.hex(), clause, "operator", command=command, facts=facts)


def _waits(job: Job, at: str) -> tuple[ConditionKind, str, str]:
    """Return why a job waits for its time, in words."""
    put_back = _put_back_by(job)
    if put_back in _BY_HANDLER:
        return "put back", f"its handler {_BY_HANDLER[put_back]}", f" until {at}"
    is_due_later = job.at_us == job.due_us  # it waited for other jobs, and was released
    if put_back or (job.fence and not (job.errors or job.crashes or is_due_later)):
        return "put back", "a worker released it", f" until {at}"
    if job.errors or job.crashes:
        failed = f"attempt {job.errors} failed" if job.errors else "a worker died on it"
        return "retrying", f"{failed} ({line(job.error)})", f"; it is retried at {at}"
    return "scheduled", "it is not due", f" until {at}"


def _put_back_by(job: Job) -> str:
    """Return how the last attempt released a job; empty if it is not known to have."""
    with suppress(StoreCorrupt):  # whatever runs it says so
        put_back = read_options(job.opts).put_back
        if put_back is not None and put_back[1] == job.at_us:
            return put_back[0]
    return ""


def failed_before(job: Job) -> str:
    """Return the failures of a job that its handler deferred since, in words."""
    if job.errors and _put_back_by(job) in _BY_HANDLER:
        return f"Attempts that failed before: {job.errors} ({line(job.error)})."
    return ""
