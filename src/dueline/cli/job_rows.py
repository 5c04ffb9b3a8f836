"""The output of a job, its attempts, progress and outcome."""

from contextlib import suppress

from dueline.admin.job_views import JobSummary, summary_of_attempt, summary_of_row
from dueline.cli.output import Entry, Instant, Raw, Span, Value
from dueline.core.attempt import Attempt, Outcome, read_epitaph
from dueline.core.call_options import read_options
from dueline.core.deadlines import deadline_of
from dueline.core.errors import BadInput, StoreCorrupt
from dueline.core.job import Job, JobId
from dueline.jobs.explanation import Facts
from dueline.tasks.payload_codecs import as_json
from dueline.tasks.progress import Progress
from dueline.workflows.records import step_of

LIST_COLUMNS = ("id", "state", "at", "priority", "queue", "task")
ENDED_COLUMNS = ("id", "state", "ended", "took", "queue", "task")
DEAD_COLUMNS = ("id", "at", "task", "error")
TAIL_COLUMNS = ("ended", "outcome", "took", "queue", "task", "id", "error")
TAIL_WIDTHS = (20, 10, 7, 12, 24, 32, 0)
ATTEMPT_COLUMNS = ("attempt", "outcome", "ended", "took", "worker")


def of_row(job: Job, now_us: int) -> dict[str, Value]:
    """Return the output of a job with a row. at: when it is next due, or when it died."""
    return of_waiting(summary_of_row(job, now_us))


def of_waiting(job: JobSummary) -> dict[str, Value]:
    """Return the output of the summary of a job with a row."""
    return {
        "id": job.id,
        "state": job.shown_state,
        "queue": job.queue,
        "task": job.task,
        "tenant": job.tenant,
        "priority": job.priority,
        "at": Instant(job.at_us),
        "due": Instant(job.due_us),
        "enqueued": Instant(job.enqueued_us),
        "errors": job.errors,
        "crashes": job.crashes,
        "alone": job.alone,
        "claims": job.claims,
        "claimed": Instant(job.claimed_us) if job.claimed_us else None,
        "worker": job.worker,
        "error": job.error,
        "tags": list(job.tags),
        "limits": list(job.limits),
    }


def of_ended(job: JobSummary) -> dict[str, Value]:
    """Return the output of the summary of a job that has ended, or expired."""
    began_us = job.started_us
    return {
        "id": job.id,
        "state": job.state,
        "queue": job.queue,
        "task": job.task,
        "tenant": job.tenant,
        "priority": job.priority,
        "ended": Instant(job.ended_us),
        "due": Instant(job.due_us),
        "enqueued": Instant(job.enqueued_us),
        "claimed": Instant(job.claimed_us) if job.claimed_us else None,
        "started": Instant(began_us) if began_us else None,
        "took": Span(job.ended_us - began_us) if began_us else None,
        "worker": job.worker,
        "error": job.error,
        **({"late": Span(job.late_us)} if job.late_us else {}),
    }


def body_of(job: Job) -> dict[str, Value]:
    """Return the output of a job's arguments, options and traceback."""
    try:
        shown: dict[str, Value] = {"arguments": Raw(as_json(job.codec, job.body))}
    except BadInput as error:  # encrypted arguments stay encrypted here
        shown = {"arguments": f"({len(job.body)} bytes, not shown: {error.message})"}
    deadline_us = deadline_of(job.lane.priority)
    if deadline_us is not None:
        shown["deadline"] = Instant(deadline_us)
    with suppress(StoreCorrupt):  # the worker that runs it reports that
        options = read_options(job.opts)
        if options.expires_us is not None:
            shown["expires"] = Instant(options.expires_us)
        if (found := step_of(job)) is not None:
            shown |= {"workflow": found[0].hex(), "step": found[1]}
        if options.unique is not None:
            shown["unique"] = options.unique.key
        if options.headers:
            shown["headers"] = dict(options.headers)
    if traceback := read_epitaph(job.error)[1]:
        shown["traceback"] = f"\n{traceback.rstrip()}"
    return shown


def of_attempt(attempt: Attempt) -> dict[str, Value]:
    """Return the output of an ended attempt."""
    return of_ended(summary_of_attempt(attempt))


def attempt_entry(attempt: Attempt) -> Entry:
    """Return the output of one attempt of a job; attempts are numbered by claims."""
    shown = of_attempt(attempt)
    keys = ("ended", "claimed", "started", "took", "worker", "error")
    return {"attempt": attempt.fence, "outcome": attempt.outcome, **{k: shown[k] for k in keys}}


def of_tailed(attempt: Attempt) -> Entry:
    """Return the output of an attempt in a list of several jobs."""
    shown = of_attempt(attempt)
    del shown["state"]
    return {**shown, "outcome": attempt.outcome, "attempt": attempt.fence}


def of_outcome(job_id: JobId, outcome: Outcome) -> dict[str, Value]:
    """Return the output of an ended job that has no row."""
    shown: dict[str, Value] = {
        "id": job_id.hex(),
        "state": outcome.state,
        "ended": Instant(outcome.ended_us),
    }
    if outcome.value:
        shown["result"] = Raw(outcome.value)
    return shown | {"error": outcome.error}


def of_progress(progress: Progress) -> Entry:
    """Return the output of progress."""
    shown: dict[str, Value] = {"done": _amount(progress.done), "total": _amount(progress.total)}
    if progress.total > 0:
        shown["percent"] = round(100 * progress.done / progress.total, 1)
    if progress.note:
        shown["note"] = progress.note
    return shown | {"at": Instant(progress.at_us)}


def _amount(number: float) -> float:
    return int(number) if number == int(number) else number


def facts_of(facts: Facts) -> Entry:
    """Return the facts of an explanation; names that end in `_us` are timestamps."""
    return {
        name.removesuffix("_us"): Instant(int(value)) if name.endswith("_us") else value
        for name, value in facts.items()
    }
