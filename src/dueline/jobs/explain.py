"""Finds out why a job is not running."""

import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Final, NamedTuple

from dueline.coordination.worker_registry import Presence, live_workers
from dueline.core.attempt import read_epitaph
from dueline.core.call_options import THROTTLED, is_past, read_options
from dueline.core.engine import Engine
from dueline.core.errors import NotFound, StoreCorrupt
from dueline.core.job import Job, JobId, State
from dueline.core.job_status import status_of
from dueline.core.lane import limits_of, task_key, tenant_of
from dueline.core.store_capabilities import PREFETCH_US_MAX
from dueline.jobs import cancel_requests
from dueline.jobs.claim_order import jobs_before
from dueline.jobs.claims import claims_of
from dueline.jobs.explanation import (
    Explanation,
    Facts,
    explain_batch,
    explain_closed_limit,
    explain_dead,
    explain_ended,
    explain_expired,
    explain_full_limit,
    explain_rate,
    explain_signal,
    explain_suspect,
    line,
    position_text,
    when,
    with_clock_ahead,
    with_request,
    with_step,
)
from dueline.jobs.paused_tasks import is_deferred
from dueline.jobs.queue import Queues
from dueline.jobs.unknown_tasks import unknown_text
from dueline.limits import usage
from dueline.workflows import records
from dueline.workflows.readiness import Broken, Held, Runnable, Waits
from dueline.workflows.release import is_parked
from dueline.workflows.status import missing, named, readiness_of, step_statuses
from dueline.workflows.workflow import WorkflowView

CLAIMS_MAX: Final = 10_000
"""Maximum number of claimed jobs that are counted."""

_NAMED_MAX: Final = 5

_PUT_BACK_BY_HANDLER: Final = {
    "snoozed": "snoozed it",
    THROTTLED: "raised Throttled, which defers it",
}


def explain(queues: Queues, job_id: JobId) -> Explanation:
    """Explain why a job is not running, from the state of its queue now.

    An unknown job is explained too, as `unknown`.
    """
    try:
        found = queues.find(job_id)
    except NotFound as error:
        return Explanation("unknown", f"{error.message} {error.hint}")
    now_us = queues.engine.time.latest_us()
    if found.row is None:
        assert found.outcome is not None
        return explain_ended(found.outcome, now_us)
    return with_clock_ahead(
        found.row, with_step(found.row, _of_row(queues, found.row, now_us)), now_us
    )


def _of_row(queues: Queues, job: Job, now_us: int) -> Explanation:
    if job.state == State.DEAD:
        return explain_dead(job.at_us, read_epitaph(job.error)[0], now_us)
    queues.engine.catalog.forget(job.lane.queue)  # read the settings as they are now
    workers = [one for one in live_workers(queues.engine) if job.lane.queue in one.queues]
    status = status_of(job, now_us)
    if status == "running":
        found = _claimed_step(queues, job, now_us) or _claimed(queues, job, workers, now_us)
        is_asked = job.id in cancel_requests.asked(queues.engine.store, [job.id])
        return with_request(job, found) if is_asked else found
    if status == "expired":
        return explain_expired(job, now_us)
    waits = _parked_step(queues.engine, job, now_us)
    if waits is not None:
        return waits
    if job.at_us > now_us:
        aside = _paused(queues, job) if is_deferred(job) else None
        return aside or _later(queues, job, workers, now_us)
    return (
        _paused(queues, job)
        or _unserved(job, workers)
        or _limited_by(queues.engine, job, now_us)
        or _ready(queues, job, workers, now_us)
    )


# A worker has claimed it


def _claimed_step(queues: Queues, job: Job, now_us: int) -> Explanation | None:
    """Explain what a step waits for while a worker has claimed it to check its needs."""
    return None if job.state == State.STARTED else _parked_step(queues.engine, job, now_us)


def _claimed(queues: Queues, job: Job, workers: Sequence[Presence], now_us: int) -> Explanation:
    facts: Facts = {
        "worker": job.worker,
        "claimed_us": job.claimed_us,
        "lease_ends_us": job.at_us,
        "attempt": job.errors + 1,
        "crashes": job.crashes,
    }
    holder = next((one for one in workers if one.worker == job.worker), None)
    if holder is None:
        return Explanation(
            "worker gone",
            f"Worker {job.worker} claimed it and is gone; it is due again when the lease ends, "
            f"at {when(job.at_us, now_us)}, or sooner, when the monitor releases it.",
            facts,
        )
    start_us = _start_us(queues, job)
    if start_us > now_us:
        at = when(start_us, now_us)
        return Explanation(
            "scheduled",
            f"It is not due until {at}; worker {job.worker} has claimed it and starts it then.",
            {**facts, "at_us": start_us},
        )
    if job.state == State.STARTED:
        return Explanation(
            "running",
            f"It is running: attempt {job.errors + 1}, in worker {job.worker} "
            f"since {when(job.claimed_us, now_us)}.",
            facts,
        )
    if job.alone:
        return explain_suspect(job, facts)
    return explain_batch(job, holder, facts, now_us) or Explanation(
        "claimed",
        f"Worker {job.worker} claimed it at {when(job.claimed_us, now_us)} "
        "and starts it as soon as a slot is free.",
        facts,
    )


def _start_us(queues: Queues, job: Job) -> int:
    """Return when a prefetched job is to start; 0 if it was due when it was claimed."""
    lease_us = queues.engine.catalog.settings(job.lane.queue).lease_us
    last_us = job.claimed_us + PREFETCH_US_MAX
    times = [us for us in (job.at_us - lease_us, job.due_us) if job.claimed_us < us <= last_us]
    return max(times, default=0) if job.state == State.CLAIMED else 0


# Its time has not come


def _later(queues: Queues, job: Job, workers: Sequence[Presence], now_us: int) -> Explanation:
    at = when(job.at_us, now_us)
    facts: Facts = {
        "at_us": job.at_us,
        "due_us": job.due_us,
        "errors": job.errors,
        "error": job.error,
    }
    explanation = _waiting_for_time(job, at, facts)
    claiming = [one for one in workers if one.is_claiming]
    if claiming and not any(one.can_run(job) for one in claiming):
        said = f"{explanation.sentence[:-1]}; so far {unknown_text(_key_of(job))}."
        explanation = Explanation(explanation.reason, said, {**explanation.facts, "task": job.task})
    pause = _pause_of(queues, job)
    if pause is None:
        return explanation
    return Explanation(
        explanation.reason,
        f"{explanation.sentence[:-1]}, and not before the pause ends: {pause.clause}.",
        {**pause.facts, **explanation.facts},
    )


def _waiting_for_time(job: Job, at: str, facts: Facts) -> Explanation:
    put_back = _put_back_by(job)
    expires = _expires_instead(job, at)
    if put_back in _PUT_BACK_BY_HANDLER:
        failed = f" Attempts that failed before: {job.errors} ({line(job.error)})."
        done = f"Its handler {_PUT_BACK_BY_HANDLER[put_back]}"
        said = f"{done} for longer; {expires}." if expires else f"{done} until {at}."
        return Explanation("put back", f"{said}{failed if job.errors else ''}", facts)
    if put_back or (job.fence and not job.errors and not job.crashes):
        return Explanation("put back", f"A worker released it until {at}.", facts)
    if job.errors or job.crashes:
        failed = f"Attempt {job.errors} failed" if job.errors else "A worker died on it"
        then = expires or f"it is retried at {at}"
        return Explanation("retrying", f"{failed} ({line(job.error)}); {then}.", facts)
    return Explanation("scheduled", f"It is not due until {at}.", facts)


def _expires_instead(job: Job, at: str) -> str:
    """Return that a job expires when it would run again; empty if it runs."""
    with suppress(StoreCorrupt):  # whatever runs it says so
        return f"it expires before that, at {at}" if is_past(job, job.at_us) else ""
    return ""


def _put_back_by(job: Job) -> str:
    """Return how the last attempt released a job; empty if it is not known to have."""
    with suppress(StoreCorrupt):  # whatever runs it says so
        put_back = read_options(job.opts).put_back
        if put_back is not None and put_back[1] == job.at_us:
            return put_back[0]
    return ""


# It is ready


class _Pause(NamedTuple):
    """What is paused, and the command that resumes it."""

    clause: str
    facts: Facts


def _pause_of(queues: Queues, job: Job) -> _Pause | None:
    """Return the pause that keeps a job from being claimed."""
    queue = job.lane.queue
    settings, tenant = queues.engine.catalog.settings(queue), tenant_of(job.lane)
    resume = ["dueline", "queues", "resume", queue]
    if settings.is_paused:
        return _Pause(f"the queue {queue} is paused (`{shlex.join(resume)}`)", {"queue": queue})
    if job.task in settings.paused_tasks:
        again = shlex.join([*resume, "--task", job.task])
        return _Pause(
            f"in the queue {queue} the task {job.task} is paused (`{again}`)",
            {"queue": queue, "task": job.task},
        )
    if tenant in settings.paused_tenants:
        who = f"the tenant {tenant} is" if tenant else "jobs without a tenant are"
        again = shlex.join([*resume, "--tenant", tenant])
        return _Pause(
            f"in the queue {queue} {who} paused (`{again}`)", {"queue": queue, "tenant": tenant}
        )
    return None


def _paused(queues: Queues, job: Job) -> Explanation | None:
    pause = _pause_of(queues, job)
    if pause is None:
        return None
    ready = "Its time has come" if "task" in pause.facts else "It is ready"
    return Explanation("paused", f"{ready}, but {pause.clause}.", pause.facts)


def _unserved(job: Job, workers: Sequence[Presence]) -> Explanation | None:
    queue = job.lane.queue
    facts: Facts = {"queue": queue, "task": job.task, "workers": len(workers)}
    claiming = [one for one in workers if one.is_claiming]
    if not claiming:
        sentence = f"It is ready, but no live worker serves the queue {queue}"
        if workers:
            names = ", ".join(one.worker for one in workers[:_NAMED_MAX])
            how = "quiet or stopping" if any(one.is_quiet for one in workers) else "stopping"
            sentence += f" any more: those that did are {how}, and claim nothing ({names})"
        return Explanation("no worker", f"{sentence}.", facts)
    if not any(one.can_run(job) for one in claiming):
        served = f"; live workers of the queue {queue}: {len(claiming)}"
        return Explanation(
            "task unknown", f"It is ready, but {unknown_text(_key_of(job))}{served}.", facts
        )
    return None


def _key_of(job: Job) -> str:
    return task_key(job.task, job.codec)


def _ready(queues: Queues, job: Job, workers: Sequence[Presence], now_us: int) -> Explanation:
    workers = [one for one in workers if one.is_claiming]
    knowing = [one for one in workers if one.can_run(job)]
    ahead = min(
        (
            jobs_before(queues.engine, job, names, now_us, tasks)
            for names, tasks in {(one.queues, one.known) for one in knowing}
        ),
        key=lambda one: one.jobs,
    )
    load = _load(queues, workers, now_us)
    queue = job.lane.queue
    own = [one.own[queue][0] for one in workers if queue in one.own]
    position = ahead.by_queue.get(queue, 0) + 1
    facts: Facts = {
        "queue": queue,
        "position": position,
        "position_is_at_least": ahead.is_capped,
        "before_in_other_queues": ahead.jobs + 1 - position,
        "workers": len(workers),
        "held": sum(load.held.values()),
        "slots": sum(one.slots for one in workers),
        "crashes": job.crashes,
    }
    if own:
        facts = {**facts, "own_slots": sum(own), "own_taken": load.taken(workers, queue)}
    if job.alone:
        return explain_suspect(job, facts)
    full = ", none free" if all(load.is_full(one, queue) for one in knowing) else ""
    some = f" of which the queue may take {sum(own)}" if own else ""
    return Explanation(
        "waiting",
        f"It is ready, at position {position_text(queue, position, ahead)}; live workers: "
        f"{len(workers)}, jobs that they hold: {facts['held']}, slots: {facts['slots']}{some}"
        f"{full}.",
        facts,
    )


class _Load(NamedTuple):
    """What workers hold. held: jobs, by worker. slots: taken ones, by worker and queue."""

    held: Counter[str]
    slots: Counter[tuple[str, str]]

    def taken(self, workers: Sequence[Presence], queue: str) -> int:
        """Return how many slots jobs of a queue take."""
        return sum(self.slots[one.worker, queue] for one in workers)

    def is_full(self, one: Presence, queue: str) -> bool:
        """Return whether a worker has no slot for another job of a queue."""
        if queue in one.own and self.slots[one.worker, queue] >= one.own[queue][0]:
            return True
        return sum(self.slots[one.worker, name] for name in one.queues) >= one.slots


def _load(queues: Queues, workers: Sequence[Presence], now_us: int) -> _Load:
    """Count what workers hold, by the rows: their own reports are some seconds old.

    A prefetched job takes no slot yet, and a batch takes one.
    """
    by_name = {one.worker: one for one in workers}
    names = sorted(set(chain.from_iterable(one.queues for one in workers)))
    load = _Load(Counter(), Counter())
    batches: Counter[tuple[str, str, str]] = Counter()
    for job in claims_of(queues.engine, names, CLAIMS_MAX):
        worker, queue = by_name.get(job.worker), job.lane.queue
        if worker is None or _start_us(queues, job) > now_us:
            continue
        load.held[worker.worker] += 1
        if job.task not in worker.batches:
            load.slots[worker.worker, queue] += 1
        elif job.state == State.STARTED:
            batches[worker.worker, queue, job.task] += 1
    for (name, queue, task), count in batches.items():
        load.slots[name, queue] += -(-count // by_name[name].batches[task][0])
    return load


# A limit or a workflow holds it


def _limited_by(engine: Engine, job: Job, now_us: int) -> Explanation | None:
    """Explain the first limit that lets no job start: a rate, a closed limit, a full one."""
    slow, uses = usage.look(engine, limits_of(job.lane))
    if slow:
        return explain_rate(job, max(slow, key=lambda one: one.next_us), now_us)
    full = [use for use in uses if use.is_full]
    if not full:
        return None
    closed = max(full, key=lambda one: one.closed_us)
    if closed.closed_us:
        return explain_closed_limit(job, closed, now_us)
    return explain_full_limit(job, min(full, key=lambda one: one.capacity > 0), now_us)


def _parked_step(engine: Engine, job: Job, now_us: int) -> Explanation | None:
    """Explain what a step waits for; None if its workflow knows of nothing.

    A step that needs nothing does not ask its workflow.
    """
    found, place = records.step_of(job), records.place_of(job)
    if found is None or place is None or (job.task and not place.parked_us):
        return None
    flow, step = found
    try:
        look = WorkflowView(engine, flow)
    except NotFound as error:
        return Explanation(
            "steps",
            f"It is a step of an unknown workflow. {error.message} The next worker that claims it "
            "moves it to the dead-letter list.",
        )
    word = readiness_of(engine, look, step)
    of = f"of the workflow {flow.hex()}"
    if isinstance(word, Waits):
        return _waiting_step(engine, look, step, word)
    if isinstance(word, Held):
        first, end = word.failure
        return Explanation(
            "held",
            f"It is held by {named(look.layout, first)} {of}, which is dead because of "
            f"{line(end.error)}, until that is retried (`dueline flows retry {flow.hex()}`).",
            {"dead_step": first, "error": end.error},
        )
    if isinstance(word, Broken):
        return Explanation(
            "steps",
            f"It waits until the other steps of its group have ended, which are cancelled since "
            f"{named(look.layout, word.failure.step)} {of} failed.",
            {"failed_step": word.failure.step},
        )
    if not isinstance(word, Runnable) or not is_parked(job):
        return None
    return explain_signal(look.layout, job, place.until_us, now_us) or Explanation(
        "steps",
        f"All steps {of} that it needs have ended; it continues when a worker releases it, or "
        f"at {when(job.at_us, now_us)}, when it checks this itself.",
        {"at_us": job.at_us},
    )


def _waiting_step(engine: Engine, look: WorkflowView, step: int, word: Waits) -> Explanation:
    first = step_statuses(engine, look, [word.first])[0]
    facts: Facts = {
        "steps_left": word.steps,
        "first_step": word.first,
        "first_task": look.layout.nodes[word.first].title,
        "first_state": first.state,
    }
    said = missing(look.layout, step, word)
    return Explanation(
        "steps",
        f"It waits for {said}, which is {first.state}, of the workflow {look.flow.hex()}.",
        facts,
    )
