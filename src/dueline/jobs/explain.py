"""Finds everything that must change before a job can start."""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace

from dueline.batches import records as batches
from dueline.core.attempt import Outcome, read_epitaph
from dueline.core.batch_ids import batch_of, is_batched, position_of
from dueline.core.durations import span_text
from dueline.core.errors import NotFound
from dueline.core.job import PAUSED_US, Job, JobId, State, is_away, is_paused
from dueline.core.job_status import ahead_of, status_of
from dueline.core.retry import UNCERTAIN, is_uncertain
from dueline.jobs import cancel_requests
from dueline.jobs.conditions import held
from dueline.jobs.conditions.limits import busy_limits
from dueline.jobs.conditions.pauses import pauses_of
from dueline.jobs.conditions.steps import StepWait, step_wait
from dueline.jobs.conditions.subject import Subject
from dueline.jobs.conditions.times import due, expiry_of, failed_before
from dueline.jobs.conditions.turn import deadline_text, suspect, turn_of
from dueline.jobs.conditions.workers import resources_busy, workers_missing
from dueline.jobs.explanation import Condition, Explanation, Facts, explanation_of, line, when
from dueline.jobs.paused_tasks import is_deferred
from dueline.jobs.queue import Queues
from dueline.workflows import records

_READY = "It is ready, but "


def explain(
    queues: Queues,
    job_id: JobId,
    *,
    wait_of: Callable[[Subject], Condition | None] = lambda _: None,
) -> Explanation:
    """Explain why a job is not running: every condition that must change before it can start.

    The conditions are in the order in which the job meets them: its worker or workflow, its time,
    pauses, workers, limits, the jobs before it. An unknown job is explained too, as `unknown`.

    Args:
      wait_of: Returns what a durable function waits for; None for other jobs.
    """
    explanation = _explained(queues, job_id, wait_of)
    name = is_batched(job_id) and batches.name_of(queues.engine.store, batch_of(job_id))
    if not name:
        return explanation
    place = position_of(job_id)
    note = f"It is the item {place} of the batch {name}."
    return explanation.with_note(note, {"batch": name, "batch_item": place})


def _explained(
    queues: Queues, job_id: JobId, wait_of: Callable[[Subject], Condition | None]
) -> Explanation:
    engine = queues.engine
    try:
        current = queues.find(job_id)
    except NotFound as error:
        engine.catalog.features.check()
        moved_to = engine.catalog.features.moved_to
        if moved_to:
            return explanation_of("", [_moved(job_id, moved_to)])
        return Explanation("unknown", f"{error.message} {error.hint}")
    now_us = engine.time.latest_us()
    if current.row is None:
        assert current.outcome is not None
        return _of_outcome(job_id, current.outcome, now_us)
    subject = Subject(engine, current.row, now_us, wait_of)
    return _with_clock_ahead(subject, _with_step(subject.job, _of_row(subject)))


def _of_row(subject: Subject) -> Explanation:
    job, now_us = subject.job, subject.now_us
    if job.state == State.DEAD:
        return _of_dead(job.id, job.at_us, read_epitaph(job.error)[0], now_us)
    _ = subject.settings  # read anew, with the names of features
    moved_to = subject.engine.catalog.features.moved_to
    if moved_to or is_away(job):
        return explanation_of("", [_moved(job.id, moved_to)])
    if subject.engine.catalog.features.is_closed and not job.is_claimed():
        return explanation_of("", [_FROZEN])
    if is_paused(job):
        return _of_paused(subject)
    is_asked = job.fence > 0 and bool(cancel_requests.asked(subject.engine.store, [job.id]))
    status = status_of(job, now_us)
    if status == "running":
        return _of_claim(subject, is_asked=is_asked)
    if status == "expired":
        return _of_expired(job, now_us)
    workflow = step_wait(subject)
    if is_asked:
        return Explanation("never", _ENDS_ON_REQUEST, {"is_cancel_asked": True}, (), "cancelled")
    return workflow.ends or _of_waiting(subject, workflow)


def _of_paused(subject: Subject) -> Explanation:
    """Explain a job that is paused by itself, and what else keeps it from starting."""
    job = subject.job
    placed = replace(subject, job=job._replace(at_us=job.at_us - PAUSED_US))
    command = f"dueline jobs resume {job.id.hex()}"
    paused = Condition(
        "paused", job.id.hex(), f"it is paused (`{command}`)", "operator",
        command=command, facts={"queue": subject.queue, "at_us": placed.job.at_us},
    )  # fmt: skip
    later = [due(placed)] if placed.job.at_us > subject.now_us else []
    return explanation_of("", [paused, *later, *_later_gates(placed)])


def _of_claim(subject: Subject, *, is_asked: bool) -> Explanation:
    """Explain a job that a worker has claimed."""
    job = subject.job
    workflow = step_wait(subject) if job.state != State.STARTED else StepWait()
    if workflow.condition is not None:  # the worker checks its needs, and releases it
        return explanation_of("", [workflow.condition, *_later_gates(subject)])
    holder = next((worker for worker in subject.serving if worker.worker == job.worker), None)
    if holder is None:
        gone = held.worker_gone(subject)
        fate = "cancelled" if is_asked else held.fate_of(subject)
        rest = [] if fate else _later_gates(subject)
        explanation = replace(explanation_of("", [gone, *rest]), ends_as=fate)
        facts = {"is_cancel_asked": True}
        return explanation.with_note(_ENDS_ON_REQUEST, facts) if is_asked else explanation
    if subject.silence_of(holder):
        silent = held.worker_silent(subject, holder)
        explanation = explanation_of("", [silent])
    elif job.state == State.STARTED:
        sentence = (
            f"It is running: attempt {job.errors + 1}, in worker {job.worker} "
            f"since {when(job.claimed_us, subject.now_us)}."
        )
        explanation = Explanation("running", sentence, held.facts_of(job))
    elif job.alone and held.start_us(subject.engine, job) <= subject.now_us:
        explanation = explanation_of("", [suspect(subject)], held.facts_of(job))
    else:
        explanation = explanation_of("", [held.claimed(subject, holder)])
    if not is_asked:
        return explanation
    note = (
        "Its end was asked for, and its handler has not checked for that yet; "
        f"`dueline jobs cancel {job.id.hex()} --force` ends it now."
    )
    return explanation.with_note(note, {"is_cancel_asked": True})


_ENDS_ON_REQUEST = "Its end was asked for: the worker that claims it next ends it without a run."


def _of_waiting(subject: Subject, workflow: StepWait) -> Explanation:
    """Explain a job that no worker has claimed, or whose claim has expired."""
    job, now_us = subject.job, subject.now_us
    if job.is_claimed() and (fate := held.fate_of(subject)):  # the lease has expired
        sentence = (
            f"It will not run again: worker {job.worker} claimed it and died, so "
            f"{held.fate_text(subject)}. The next worker that claims it records that."
        )
        return Explanation("never", sentence, held.facts_of(job), ends_as=fate)
    conditions: list[Condition] = []
    if workflow.condition is not None:
        conditions.append(workflow.condition)
    elif workflow.is_ready:
        conditions.append(_released_later(subject))
    elif (wait := subject.wait_of(subject)) is not None:
        conditions.append(wait)
    elif job.at_us > now_us and not (is_deferred(job) and _is_paused_task(subject)):
        conditions.append(due(subject))
    is_ready = not conditions
    conditions += _later_gates(subject)
    explanation = _of_ready(subject, conditions) if is_ready else explanation_of("", conditions)
    if explanation.conditions and not any(condition.kind == "waiting" for condition in conditions):
        unknown = (*explanation.unknown, "which jobs come before it then")
        explanation = replace(explanation, unknown=unknown)
    return _with_expiry(subject, _with_notes(subject, explanation))


def _of_ready(subject: Subject, conditions: list[Condition]) -> Explanation:
    """Explain a job whose time has come."""
    may_be_claimed = subject.able and not any(
        condition.kind == "paused" for condition in conditions
    )
    if subject.job.alone:
        conditions.append(suspect(subject))
    if may_be_claimed:
        turn = turn_of(subject)
        if not conditions and turn.is_next:
            sentence = f"It is ready, {turn.condition.clause.removeprefix('it is ')}."
            return Explanation("waiting", sentence, turn.condition.facts)
        if not turn.is_next:
            conditions.append(turn.condition)
    first = conditions[0]
    if first.kind == "waiting":
        ready = replace(first, clause=first.clause.removeprefix("it is "))
        explanation = explanation_of("It is ready, ", [ready, *conditions[1:]])
        return replace(explanation, conditions=tuple(conditions))
    if first.kind == "suspect":
        return explanation_of("", conditions)
    is_paused = "task" in first.facts and first.kind == "paused"
    return explanation_of("Its time has come, but " if is_paused else _READY, conditions)


def _later_gates(subject: Subject) -> list[Condition]:
    """Return what must change besides the time and the workflow of a job.

    A limit that is known to open before the job is due is left out.
    """
    limits = [
        limit
        for limit in busy_limits(subject)
        if not (limit.change == "time" and limit.at_us <= subject.job.at_us and limit.at_us)
    ]
    workers = [*workers_missing(subject), *resources_busy(subject)]
    return [*pauses_of(subject), *workers, *limits]


def _is_paused_task(subject: Subject) -> bool:
    return subject.job.task in subject.settings.paused_tasks


def _released_later(subject: Subject) -> Condition:
    """Return that a parked step waits for nothing, and is still to be released."""
    at_us = subject.job.at_us
    return Condition(
        "steps",
        subject.job.id.hex(),
        "all steps that it needs have ended; it continues when a worker releases it, or "
        f"at {when(at_us, subject.now_us)}, when it checks this itself",
        "time",
        at_us,
        command=f"dueline jobs retry {subject.job.id.hex()}",
        facts={"at_us": at_us},
    )


# The end of a job


def _of_outcome(job_id: JobId, outcome: Outcome, now_us: int) -> Explanation:
    if outcome.state == "dead":
        return _of_dead(job_id, outcome.ended_us, outcome.error, now_us)
    sign = ":" if outcome.state == "cancelled" else " because of"  # what follows is a sentence
    because = f"{sign} {line(outcome.error)}" if outcome.error else ""
    return Explanation(
        outcome.state,
        f"It has been {outcome.state} since {when(outcome.ended_us, now_us)}{because}.",
        {"ended_us": outcome.ended_us, "error": outcome.error},
    )


def _of_dead(job_id: JobId, ended_us: int, error: str, now_us: int) -> Explanation:
    command = f"dueline dead retry {job_id.hex()}"
    clause = f"it has been dead since {when(ended_us, now_us)} because of {line(error)}"
    if is_uncertain(error):
        clause = (
            f"it has been uncertain since {when(ended_us, now_us)}: "
            f"{line(error.removeprefix(UNCERTAIN)).rstrip('.')}; nobody knows how far it came, so "
            f"an operator decides: `dueline dead retry`, `dueline jobs settle` or `dueline dead "
            f"purge`, with {job_id.hex()}"
        )
    facts: Facts = {"ended_us": ended_us, "error": error}
    dead = Condition("dead", job_id.hex(), clause, "operator", command=command, facts=facts)
    return explanation_of("", [dead])


def _of_expired(job: Job, now_us: int) -> Explanation:
    expires_us = expiry_of(job)
    return Explanation(
        "expired",
        f"It expired at {when(expires_us, now_us)} and will not run; the next worker that "
        "claims it records this in the history.",
        {"expires_us": expires_us},
        ends_as="expired",
    )


_FROZEN = Condition(
    "frozen", "", "`dueline export` reads the store, and nothing starts meanwhile", "work",
    unknown="when the export ends",
)  # fmt: skip


def _moved(job_id: JobId, moved_to: str) -> Condition:
    """Return that a store has moved, or moves, and the job with it."""
    if not moved_to:
        clause = "`dueline move` is taking it to another store, and it starts there"
        return Condition("moved", "", clause, "work", unknown="whether the move still runs")
    command = shlex.join(["dueline", "--store", moved_to, "jobs", "explain", job_id.hex()])
    return Condition(
        "moved",
        moved_to,
        f"the store has moved to {moved_to}, and its jobs start there (`{command}`)",
        "work",
        command=command,
        unknown="what keeps the job from starting in the other store",
        facts={"moved_to": moved_to},
    )


# Notes


def _with_notes(subject: Subject, explanation: Explanation) -> Explanation:
    for note in _notes(subject):
        explanation = explanation.with_note(note)
    return explanation


def _notes(subject: Subject) -> Iterator[str]:
    for note in (failed_before(subject.job), held.lease_ended(subject), deadline_text(subject)):
        if note:
            yield note


def _with_expiry(subject: Subject, explanation: Explanation) -> Explanation:
    """Add when a job expires, and whether it will."""
    expires_us = expiry_of(subject.job)
    if not expires_us:
        return explanation
    facts = {"expires_us": expires_us}
    at = when(expires_us, subject.now_us)
    opens_later = any(condition.at_us >= expires_us for condition in explanation.conditions)
    if any(condition.kind == "expires" for condition in explanation.conditions):
        explanation = replace(explanation, ends_as="expired")
        return explanation.with_note("Its limit opens after that.") if opens_later else explanation
    if opens_later:
        return explanation.with_note(f"It expires before that, at {at}.", facts, ends_as="expired")
    must = any(condition.change == "operator" for condition in explanation.conditions)
    still = ", whether or not that has changed" if must else ", unless it has started by then"
    return explanation.with_note(f"It expires at {at}{still}.", facts)


def _with_step(job: Job, explanation: Explanation) -> Explanation:
    """Add the workflow of a job, if it is a step of one."""
    step_of = records.step_of(job)
    if step_of is None:
        return explanation
    flow, step = step_of[0].hex(), step_of[1]
    facts = {"flow": flow, "step": step, **explanation.facts}
    said = explanation.sentence
    if flow not in said:
        said = f"{said} It is step {step} of the workflow {flow}."
    return replace(explanation, sentence=said, facts=facts)


def _with_clock_ahead(subject: Subject, explanation: Explanation) -> Explanation:
    """Add that a clock that was ahead wrote the row, if its times show that."""
    job = subject.job
    ahead_us = ahead_of(job, subject.now_us)
    if not ahead_us:
        return explanation
    written = "claimed" if job.claimed_us > job.enqueued_us else "enqueued"
    return explanation.with_note(
        f"It was {written} by a clock that was ahead: by its own times that "
        f"happens {span_text(ahead_us)} from now. `dueline jobs reschedule` brings it forward.",
        {"clock_ahead_us": ahead_us},
    )
