"""Why a job is not running."""

import shlex
from collections.abc import Sequence
from typing import NamedTuple, get_args

from dueline.aside import is_aside
from dueline.attempt import FinalState, Outcome, read_epitaph
from dueline.errors import NotFound
from dueline.explaining_limits import limited
from dueline.explaining_steps import as_step, parked
from dueline.explanation import Explanation, Facts, line, when
from dueline.job import Job, JobId, State
from dueline.lane import tenant_of
from dueline.options import read_options
from dueline.policy import CRASHES_MAX
from dueline.queue import Queues
from dueline.recipes.registry import Presence, present
from dueline.status import status_of

AHEAD_MAX = 10_000
"""How many jobs are counted that stand before a waiting one."""

_PAGE = 500


def explain(queues: Queues, job_id: JobId) -> Explanation:
    """Say why a job is not running, from the state of its queue now.

    A job that is not known is explained too, as `unknown`.
    """
    try:
        found = queues.find(job_id)
    except NotFound as error:
        return Explanation("unknown", f"{error.message} {error.hint}")
    now_us = queues.time.latest_us()
    if found.row is None:
        assert found.outcome is not None
        return _ended(found.outcome, now_us)
    return as_step(found.row, _of_row(queues, found.row, now_us))


def _of_row(queues: Queues, job: Job, now_us: int) -> Explanation:
    if job.state == State.DEAD:
        return _dead(job.at_us, read_epitaph(job.error)[0], now_us)
    workers = [one for one in present(queues.store) if job.lane.queue in one.queues]
    status = status_of(job, now_us)
    if status == "running":
        return _claimed(job, workers, now_us)
    if status == "expired":
        return _expired(job, now_us)
    waits = parked(queues, job, now_us)
    if waits is not None:
        return waits
    if job.at_us > now_us:
        aside = _paused(queues, job) if is_aside(job) else None
        return aside or _later(job, workers, now_us)
    return (
        _paused(queues, job)
        or _unserved(job, workers)
        or limited(queues, job, now_us)
        or _ready(queues, job, workers, now_us)
    )


# It has ended


def _ended(outcome: Outcome, now_us: int) -> Explanation:
    if outcome.state == "dead":
        return _dead(outcome.ended_us, outcome.error, now_us)
    assert outcome.state in get_args(FinalState)
    because = f" because of {line(outcome.error)}" if outcome.error else ""
    return Explanation(
        outcome.state,
        f"It has been {outcome.state} since {when(outcome.ended_us, now_us)}{because}.",
        {"ended_us": outcome.ended_us, "error": outcome.error},
    )


def _dead(ended_us: int, error: str, now_us: int) -> Explanation:
    return Explanation(
        "dead",
        f"It has been dead since {when(ended_us, now_us)} because of {line(error)}.",
        {"ended_us": ended_us, "error": error},
    )


def _expired(job: Job, now_us: int) -> Explanation:
    expires_us = read_options(job.opts).expires_us
    assert expires_us is not None
    return Explanation(
        "expired",
        f"It expired at {when(expires_us, now_us)} and is not run any more; the next worker "
        "that comes to it says so in the history.",
        {"expires_us": expires_us},
    )


# Somebody has it


def _claimed(job: Job, workers: Sequence[Presence], now_us: int) -> Explanation:
    facts: Facts = {
        "worker": job.worker,
        "claimed_us": job.claimed_us,
        "lease_ends_us": job.at_us,
        "attempt": job.errors + 1,
        "crashes": job.crashes,
    }
    if job.worker not in {one.worker for one in workers}:
        return Explanation(
            "worker gone",
            f"Worker {job.worker} claimed it and is gone; it is due again when the lease ends, "
            f"at {when(job.at_us, now_us)}.",
            facts,
        )
    if job.state == State.STARTED:
        return Explanation(
            "running",
            f"It is running: attempt {job.errors + 1}, in worker {job.worker} "
            f"since {when(job.claimed_us, now_us)}.",
            facts,
        )
    if job.alone:
        return _suspect(job, facts)
    return Explanation(
        "claimed",
        f"Worker {job.worker} claimed it at {when(job.claimed_us, now_us)} "
        "and starts it as soon as a slot is free.",
        facts,
    )


# Its time has not come


def _later(job: Job, workers: Sequence[Presence], now_us: int) -> Explanation:
    at = when(job.at_us, now_us)
    facts: Facts = {
        "at_us": job.at_us,
        "due_us": job.due_us,
        "errors": job.errors,
        "error": job.error,
    }
    if job.fence and not job.errors and not job.crashes:
        if workers and not _knowing(job, workers):
            return _unserved(job, workers, again_us=job.at_us) or _put_back(at, facts)
        return _put_back(at, facts)
    if job.errors or job.crashes:
        failed = f"Attempt {job.errors} failed" if job.errors else "A worker died on it"
        return Explanation(
            "retrying",
            f"{failed} ({line(job.error)}); it is tried again at {at}.",
            facts,
        )
    return Explanation("scheduled", f"It is not due until {at}.", facts)


def _put_back(at: str, facts: Facts) -> Explanation:
    return Explanation(
        "put back",
        f"It was put back, snoozed or given back by a worker, until {at}.",
        facts,
    )


# It is ready


def _paused(queues: Queues, job: Job) -> Explanation | None:
    queue = job.lane.queue
    queues.catalog.forget(queue)  # as it is set now, not some seconds ago
    settings, tenant = queues.catalog.settings(queue), tenant_of(job.lane)
    if settings.is_paused:
        return Explanation(
            "paused",
            f"It is ready, but the queue {queue} is paused (`dueline queues resume {queue}`).",
            {"queue": queue},
        )
    if job.task in settings.paused_tasks:
        again = shlex.join(["dueline", "queues", "resume", queue, "--task", job.task])
        return Explanation(
            "paused",
            f"Its time has come, but in the queue {queue} the task {job.task} is paused "
            f"(`{again}`).",
            {"queue": queue, "task": job.task},
        )
    if tenant in settings.paused_tenants:
        who = f"the tenant {tenant}" if tenant else "jobs without a tenant"
        again = shlex.join(["dueline", "queues", "resume", queue, "--tenant", tenant])
        return Explanation(
            "paused",
            f"It is ready, but in the queue {queue} {who} {'is' if tenant else 'are'} paused "
            f"(`{again}`).",
            {"queue": queue, "tenant": tenant},
        )
    return None


def _unserved(
    job: Job, workers: Sequence[Presence], *, again_us: int | None = None
) -> Explanation | None:
    queue = job.lane.queue
    facts: Facts = {"queue": queue, "task": job.task, "workers": len(workers)}
    if again_us is not None:
        facts = {**facts, "at_us": again_us}
    if not workers:
        return Explanation(
            "no worker", f"It is ready, but no live worker serves the queue {queue}.", facts
        )
    if not _knowing(job, workers):
        which = "the live worker" if len(workers) == 1 else f"any of the {len(workers)} workers"
        return Explanation(
            "task unknown",
            f"The task {job.task} is not known to {which} of the queue {queue}.",
            facts,
        )
    return None


def _knowing(job: Job, workers: Sequence[Presence]) -> list[Presence]:
    return [one for one in workers if job.task in one.tasks]


def _ready(queues: Queues, job: Job, workers: Sequence[Presence], now_us: int) -> Explanation:
    held, slots = sum(one.held for one in workers), sum(one.slots for one in workers)
    ahead = _ahead(queues, job, now_us)
    facts: Facts = {
        "queue": job.lane.queue,
        "position": ahead.jobs + 1,
        "position_is_at_least": ahead.is_capped,
        "workers": len(workers),
        "held": held,
        "slots": slots,
        "crashes": job.crashes,
    }
    if job.alone:
        return _suspect(job, facts)
    least = "or later " if ahead.is_capped else ""
    return Explanation(
        "waiting",
        f"It is ready, at position {ahead.jobs + 1} {least}of the queue {job.lane.queue}; live "
        f"workers: {len(workers)}, jobs that they hold: {held}, slots: {slots}.",
        facts,
    )


def _suspect(job: Job, facts: Facts) -> Explanation:
    return Explanation(
        "suspect",
        f"A worker died while it ran (crash {job.crashes}, dead at {CRASHES_MAX}), so it runs "
        "only when a worker has nothing else to run beside it.",
        facts,
    )


class _Ahead(NamedTuple):
    jobs: int
    is_capped: bool


def _ahead(queues: Queues, job: Job, now_us: int) -> _Ahead:
    """Count the ready jobs that stand before one: of higher priority, or earlier."""
    count = 0
    for lane in queues.lanes_of(job.lane.queue):
        if lane.priority < job.lane.priority:
            continue
        is_rival = lane.priority == job.lane.priority
        until_us = min(now_us, job.at_us) if is_rival else now_us
        after = None
        while count < AHEAD_MAX:
            page = queues.store.scan(lane, after=after, until_us=until_us, limit=_PAGE)
            count += sum(
                not is_rival or (row.at_us, row.id) < (job.at_us, job.id) for row in page.jobs
            )
            after = page.after
            if after is None:
                break
        if count >= AHEAD_MAX:
            return _Ahead(count, is_capped=True)
    return _Ahead(count, is_capped=False)
