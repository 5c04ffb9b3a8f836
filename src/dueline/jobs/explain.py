"""Why a job is not running."""

import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Final, NamedTuple, get_args

from dueline.coordination.live_workers import live_workers
from dueline.coordination.worker_registry import Presence
from dueline.core.attempt import FinalState, Outcome, read_epitaph
from dueline.core.call_options import read_options
from dueline.core.durations import span_text
from dueline.core.errors import NotFound, StoreCorrupt
from dueline.core.job import Job, JobId, State
from dueline.core.job_status import ahead_of, status_of
from dueline.core.lane import tenant_of
from dueline.core.retry import CRASHES_MAX
from dueline.core.store_capabilities import AHEAD_US
from dueline.jobs.claim_order import Ahead, jobs_before
from dueline.jobs.claims import claims_of
from dueline.jobs.explain_limits import limited
from dueline.jobs.explain_steps import as_step, parked
from dueline.jobs.explanation import Explanation, Facts, line, when
from dueline.jobs.paused_tasks import is_aside
from dueline.jobs.queue import Queues

CLAIMS_MAX: Final = 10_000
"""Maximum number of claimed jobs that are counted."""

_NAMED_MAX: Final = 5


def explain(queues: Queues, job_id: JobId) -> Explanation:
    """Say why a job is not running, from the state of its queue now.

    A job that is not known is explained too, as `unknown`.
    """
    try:
        found = queues.find(job_id)
    except NotFound as error:
        return Explanation("unknown", f"{error.message} {error.hint}")
    now_us = queues.engine.time.latest_us()
    if found.row is None:
        assert found.outcome is not None
        return _ended(found.outcome, now_us)
    return _by_clock(found.row, as_step(found.row, _of_row(queues, found.row, now_us)), now_us)


def _by_clock(job: Job, explanation: Explanation, now_us: int) -> Explanation:
    """Add that a row was written by a clock that was ahead, where its times show that."""
    ahead_us = ahead_of(job, now_us)
    if not ahead_us:
        return explanation
    written = "claimed" if job.claimed_us > job.enqueued_us else "enqueued"
    return Explanation(
        explanation.reason,
        f"{explanation.sentence} It was {written} by a clock that was ahead: by its own times that "
        f"happens {span_text(ahead_us)} from now. `dueline jobs reschedule` brings it forward.",
        {**explanation.facts, "clock_ahead_us": ahead_us},
    )


def _of_row(queues: Queues, job: Job, now_us: int) -> Explanation:
    if job.state == State.DEAD:
        return _dead(job.at_us, read_epitaph(job.error)[0], now_us)
    queues.engine.catalog.forget(job.lane.queue)  # as it is set now, not some seconds ago
    workers = [one for one in live_workers(queues.engine) if job.lane.queue in one.queues]
    status = status_of(job, now_us)
    if status == "running":
        return _claimed(queues, job, workers, now_us)
    if status == "expired":
        return _expired(job, now_us)
    waits = parked(queues.engine, job, now_us)
    if waits is not None:
        return waits
    if job.at_us > now_us:
        aside = _paused(queues, job) if is_aside(job) else None
        return aside or _later(queues, job, workers, now_us)
    return (
        _paused(queues, job)
        or _unserved(job, workers)
        or limited(queues.engine, job, now_us)
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


# A worker has claimed it


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
        return _suspect(job, facts)
    return _gathered(job, holder, facts, now_us) or Explanation(
        "claimed",
        f"Worker {job.worker} claimed it at {when(job.claimed_us, now_us)} "
        "and starts it as soon as a slot is free.",
        facts,
    )


def _start_us(queues: Queues, job: Job) -> int:
    """Return when a job that was claimed before its time is to start; 0: its time had come."""
    lease_us = queues.engine.catalog.settings(job.lane.queue).lease_us
    last_us = job.claimed_us + AHEAD_US
    times = [us for us in (job.at_us - lease_us, job.due_us) if job.claimed_us < us <= last_us]
    return max(times, default=0) if job.state == State.CLAIMED else 0


def _gathered(job: Job, holder: Presence, facts: Facts, now_us: int) -> Explanation | None:
    """Say of a job whose task takes many at once that it waits for others."""
    if job.task not in holder.batches:
        return None
    size, within_us = holder.batches[job.task]
    until_us = job.claimed_us + within_us
    if until_us <= now_us:
        return None
    return Explanation(
        "batch",
        f"Worker {job.worker} claimed it at {when(job.claimed_us, now_us)} and gathers a batch of "
        f"up to {size} jobs of its task; it starts when the batch is full, at the latest at "
        f"{when(until_us, now_us)}.",
        {**facts, "size": size, "until_us": until_us},
    )


# Its time has not come


def _later(queues: Queues, job: Job, workers: Sequence[Presence], now_us: int) -> Explanation:
    at = when(job.at_us, now_us)
    facts: Facts = {
        "at_us": job.at_us,
        "due_us": job.due_us,
        "errors": job.errors,
        "error": job.error,
    }
    explanation = _waiting_for_time(job, workers, at, facts)
    pause = _pause_of(queues, job)
    if pause is None or explanation.reason == "task unknown":
        return explanation
    return Explanation(
        explanation.reason,
        f"{explanation.sentence[:-1]}, and not before the pause ends: {pause.clause}.",
        {**pause.facts, **explanation.facts},
    )


def _waiting_for_time(job: Job, workers: Sequence[Presence], at: str, facts: Facts) -> Explanation:
    put_back = _put_back_by(job)
    if put_back == "snoozed":
        failed = f" Attempts that failed before: {job.errors} ({line(job.error)})."
        return Explanation(
            "put back",
            f"Its handler snoozed it until {at}.{failed if job.errors else ''}",
            facts,
        )
    if put_back or (job.fence and not job.errors and not job.crashes):
        claiming = [one for one in workers if not one.is_draining]
        if claiming and not _knowing(job, claiming):
            unknown = _unserved(job, workers, again_us=job.at_us)
            if unknown is not None:
                return unknown
        return Explanation("put back", f"A worker put it back until {at}.", facts)
    if job.errors or job.crashes:
        failed = f"Attempt {job.errors} failed" if job.errors else "A worker died on it"
        return Explanation(
            "retrying",
            f"{failed} ({line(job.error)}); it is tried again at {at}.",
            facts,
        )
    return Explanation("scheduled", f"It is not due until {at}.", facts)


def _put_back_by(job: Job) -> str:
    """Return how the last attempt put a job back; empty where it is not known to have."""
    with suppress(StoreCorrupt):  # whatever runs it says so
        put_back = read_options(job.opts).put_back
        if put_back is not None and put_back[1] == job.at_us:
            return put_back[0]
    return ""


# It is ready


class _Pause(NamedTuple):
    """What of a queue is paused, and the command that ends it."""

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


def _unserved(
    job: Job, workers: Sequence[Presence], *, again_us: int | None = None
) -> Explanation | None:
    queue = job.lane.queue
    facts: Facts = {"queue": queue, "task": job.task, "workers": len(workers)}
    if again_us is not None:
        facts = {**facts, "at_us": again_us}
    claiming = [one for one in workers if not one.is_draining]
    if not claiming:
        sentence = f"It is ready, but no live worker serves the queue {queue}"
        if workers:
            names = ", ".join(one.worker for one in workers[:_NAMED_MAX])
            sentence += f" any more: those that did are stopping, and claim nothing ({names})"
        return Explanation("no worker", f"{sentence}.", facts)
    if not _knowing(job, claiming):
        which = "the live worker" if len(claiming) == 1 else f"any of the {len(claiming)} workers"
        return Explanation(
            "task unknown",
            f"The task {job.task} is not known to {which} of the queue {queue}.",
            facts,
        )
    return None


def _knowing(job: Job, workers: Sequence[Presence]) -> list[Presence]:
    """Return the workers that can run a job; every one can run a workflow's own steps."""
    return [one for one in workers if not job.task or job.task in one.tasks]


def _ready(queues: Queues, job: Job, workers: Sequence[Presence], now_us: int) -> Explanation:
    workers = [one for one in workers if not one.is_draining]
    knowing = _knowing(job, workers)
    ahead = min(
        (
            jobs_before(queues.engine, job, names, now_us)
            for names in {one.queues for one in knowing}
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
        return _suspect(job, facts)
    full = ", none free" if all(load.is_full(one, queue) for one in knowing) else ""
    some = f" of which the queue may take {sum(own)}" if own else ""
    return Explanation(
        "waiting",
        f"It is ready, at position {_position(queue, position, ahead)}; live workers: "
        f"{len(workers)}, jobs that they hold: {facts['held']}, slots: {facts['slots']}{some}"
        f"{full}.",
        facts,
    )


def _position(queue: str, position: int, ahead: Ahead) -> str:
    least = "or later " if ahead.is_capped else ""
    turns = ", where tenants take turns" if ahead.has_turns else ""
    others = [f"{name}: {count}" for name, count in ahead.by_queue.items() if name != queue]
    before = f", behind jobs of other queues that share its slots ({', '.join(others)})"
    return f"{position} {least}of the queue {queue}{turns}{before if others else ''}"


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
    """Count what workers hold, by the rows: what a worker says of itself is some seconds old.

    A job that was claimed before its time takes no slot yet, and a batch takes one.
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


def _suspect(job: Job, facts: Facts) -> Explanation:
    return Explanation(
        "suspect",
        f"A worker died while it ran (crash {job.crashes}, dead at {CRASHES_MAX}), so it runs "
        "only when a worker has nothing else to run beside it.",
        facts,
    )
