"""A job that a worker has claimed: it runs, or starts there, or its worker died."""

from dueline.coordination.worker_registry import Presence
from dueline.core.engine import Engine
from dueline.core.job import Job, State
from dueline.core.retry import is_poison
from dueline.core.store_capabilities import PREFETCH_US_MAX
from dueline.jobs.conditions.subject import Subject
from dueline.jobs.explanation import Condition, Facts, when


def start_us(engine: Engine, job: Job) -> int:
    """Return when a prefetched job is to start; 0 if it was due when it was claimed."""
    lease_us = engine.catalog.settings(job.lane.queue).lease_us
    last_us = job.claimed_us + PREFETCH_US_MAX
    times = [us for us in (job.at_us - lease_us, job.due_us) if job.claimed_us < us <= last_us]
    return max(times, default=0) if job.state == State.CLAIMED else 0


def facts_of(job: Job) -> Facts:
    """Return the facts of a claim."""
    return {
        "worker": job.worker,
        "claimed_us": job.claimed_us,
        "lease_ends_us": job.at_us,
        "attempt": job.errors + 1,
        "crashes": job.crashes,
    }


def fate_of(subject: Subject) -> str:
    """Return how a job ends whose worker died, instead of running again; empty if it runs."""
    job = subject.job
    if job.state != State.STARTED:
        return "lost" if subject.settings.is_once and job.crashes else ""
    if subject.settings.is_once:
        return "lost"
    return "dead" if is_poison(job.crashes + 1) else ""


def fate_text(subject: Subject) -> str:
    """Return how a job ends after the death of its worker, and why, in words."""
    if fate_of(subject) == "lost":
        return (
            f"it ends as lost and is never due again, since {subject.queue} delivers at most once"
        )
    return f"it ends as a dead-letter job, since {subject.job.crashes + 1} workers have died on it"


def worker_gone(subject: Subject) -> Condition:
    """Return that the worker of a claim has died."""
    job = subject.job
    at = f"at {when(job.at_us, subject.now_us)}, or sooner, when the monitor releases it"
    claimed = f"worker {job.worker} claimed it and is gone"
    if fate_of(subject):
        clause = (
            f"{claimed}; {fate_text(subject)}. A worker records that after the lease ends, {at}"
        )
    else:
        clause = f"{claimed}; it is due again when the lease ends, {at}"
    return Condition(
        "worker gone", job.worker, clause, "time", job.at_us,
        unknown="how far its handler came", facts=facts_of(job),
    )  # fmt: skip


def worker_silent(subject: Subject, holder: Presence) -> Condition:
    """Return that the worker of a claim sends no heartbeats, although it counts as alive."""
    job, now_us = subject.job, subject.now_us
    does = "is running" if job.state == State.STARTED else "is claimed"
    then = fate_text(subject) if fate_of(subject) else "it is due again"
    process = subject.stopped.get(job.worker)
    return Condition(
        "worker silent",
        job.worker,
        f"it {does} as far as is known, in worker {job.worker} since {when(job.claimed_us, now_us)}"
        f", but {subject.silence_of(holder)}. If that lasts until its lease ends, at "
        f"{when(job.at_us, now_us)}, {then}",
        "time",
        job.at_us,
        command="" if process is None else f"kill -CONT {process}",
        unknown=f"whether the worker {job.worker} still lives",
        facts={**facts_of(job), "beat_us": holder.beat_us},
    )


def lease_ended(subject: Subject) -> str:
    """Return that the last worker of a job died in its handler; empty if not."""
    job = subject.job
    if job.state != State.STARTED:
        return ""
    return (
        f"Worker {job.worker} died on it, by its lease, which ended at "
        f"{when(job.at_us, subject.now_us)}: it runs only while its next worker runs nothing else."
    )


def claimed(subject: Subject, holder: Presence) -> Condition:
    """Return what a claimed job waits for in its worker before it starts."""
    job, now_us = subject.job, subject.now_us
    at_us = start_us(subject.engine, job)
    facts = facts_of(job)
    if at_us > now_us:
        clause = (
            f"it is not due until {when(at_us, now_us)}; worker {job.worker} has claimed it and "
            "starts it then"
        )
        facts = {**facts, "at_us": at_us}
        return Condition("scheduled", job.id.hex(), clause, "time", at_us, facts=facts)
    batch = _batch(subject, holder)
    if batch is not None:
        return batch
    since = f"worker {job.worker} claimed it at {when(job.claimed_us, now_us)}"
    if holder.is_draining:
        clause = f"{since} and is stopping: it releases the job, or starts it if a slot is free"
    else:
        clause = f"{since} and starts it as soon as a slot is free"
    return Condition(
        "claimed", job.worker, clause, "work",
        unknown="when the jobs that the worker runs end", facts=facts,
    )  # fmt: skip


def _batch(subject: Subject, holder: Presence) -> Condition | None:
    """Return that a job waits until its batch is full; None if it does not."""
    job, now_us = subject.job, subject.now_us
    if job.task not in holder.batches:
        return None
    size, within_us = holder.batches[job.task]
    until_us = job.claimed_us + within_us
    if until_us <= now_us:
        return None
    return Condition(
        "batch",
        job.task,
        f"worker {job.worker} claimed it at {when(job.claimed_us, now_us)} and gathers a batch of "
        f"up to {size} jobs of its task; it starts when the batch is full, at the latest at "
        f"{when(until_us, now_us)}",
        "time",
        until_us,
        facts={**facts_of(job), "size": size, "until_us": until_us},
    )
