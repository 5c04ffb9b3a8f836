"""The output of a job, its attempts, progress and outcome."""

from collections.abc import Iterable

from dueline.admin.job_views import JobDetails, JobSummary, summary_of_attempt, summary_of_row
from dueline.admin.search import ENDED_STATES
from dueline.api.chunks import Chunk
from dueline.cli.output import Entry, Instant, Part, Raw, Span, Value
from dueline.core.attempt import Attempt, EnqueuedEvent
from dueline.core.call_options import CARRIED, Carried
from dueline.core.clock import to_us
from dueline.core.codec import encode
from dueline.core.job import Job
from dueline.durable.views import FunctionView, RecordedCall
from dueline.jobs.explanation import Condition, Explanation, Facts, Until

LIST_COLUMNS = ("id", "state", "at", "priority", "queue", "task")
ENDED_COLUMNS = ("id", "state", "ended", "took", "queue", "task")
DEAD_COLUMNS = ("id", "at", "task", "error")
TAIL_COLUMNS = ("ended", "outcome", "took", "queue", "task", "id", "error")
TAIL_WIDTHS = (20, 10, 7, 12, 24, 32, 0)
CHUNK_COLUMNS = ("id", "attempt", "value")
CHUNK_WIDTHS = (12, 7, 0)
CALL_COLUMNS = ("call", "kind", "name", "state", "at", "until", "error")
ATTEMPT_COLUMNS = ("fence", "outcome", "ended", "took", "worker")


def of_row(job: Job, now_us: int) -> dict[str, Value]:
    """Return the output of a job with a row. at: when it is next due, or when it died."""
    return of_waiting(summary_of_row(job, now_us))


_OF_BOTH = ("id", "state", "queue", "task", "tenant", "priority")
_WAITING = (
    *_OF_BOTH, "at_us", "due_us", "enqueued_us", "errors", "crashes", "alone", "claims",
    "claimed_us", "worker", "error", "tags", "limits",
)  # fmt: skip
_ENDED = (*_OF_BOTH, "ended_us", "due_us", "enqueued_us", "claimed_us", "started_us")


def _shown(job: JobSummary, names: Iterable[str]) -> dict[str, Value]:
    """Return fields of a job by the names of columns, which say nothing of units."""
    shown: dict[str, Value] = {}
    for name in names:
        value = getattr(job, name)
        if name.endswith("_us"):
            is_missing = not value and name in ("claimed_us", "started_us")
            shown[name.removesuffix("_us")] = None if is_missing else Instant(value)
        else:
            shown[name] = list(value) if isinstance(value, tuple) else value
    return shown


def of_waiting(job: JobSummary) -> dict[str, Value]:
    """Return the output of the summary of a job with a row."""
    return _shown(job, _WAITING) | {"state": job.shown_state}


def of_ended(job: JobSummary) -> dict[str, Value]:
    """Return the output of the summary of a job that has ended, or expired."""
    took = Span(job.ended_us - job.started_us) if job.started_us else None
    late = {"late": Span(job.late_us)} if job.late_us else {}
    return {**_shown(job, _ENDED), "took": took, "worker": job.worker, "error": job.error, **late}


def of_details(details: JobDetails) -> dict[str, Value]:
    """Return the output of all that is stored of a job, without its attempts."""
    job = details.summary
    has_ended = job.state in ENDED_STATES
    if not has_ended:
        shown = of_waiting(job)
    elif details.attempts:
        shown = of_ended(job)
    else:
        shown = {"id": job.id, "state": job.state, "ended": Instant(job.ended_us)}
    if not details.hidden:
        shown["arguments"] = Raw(encode(details.arguments).decode())
    elif not has_ended:
        shown["arguments"] = details.not_json or f"({details.hidden})"
    if details.has_result:
        shown["result"] = Raw(encode(details.result).decode())
    if details.workflow:
        shown |= {"workflow": details.workflow, "step": details.step}
    others: dict[str, Value] = {
        "deadline": Instant(details.deadline_us) if details.deadline_us else None,
        "expires": Instant(details.expires_us) if details.expires_us else None,
        "unique": details.unique,
        "order_key": details.order_key,
        "order_first": details.order_first,
        **shown_options(details.carried),
        "progress": _progress_of(details),
        "meta": Raw(encode(details.meta).decode()) if details.meta else None,
    }
    shown |= {name: value for name, value in others.items() if value}
    if details.function is not None:
        shown |= of_function(details.function)
    shown["error"] = job.error
    if details.traceback:
        shown["traceback"] = f"\n{details.traceback}"
    return shown


def of_chunk(chunk: Chunk) -> dict[str, Value]:
    """Return the output of a partial result."""
    value = chunk.value if isinstance(chunk.value, str) else Raw(encode(chunk.value).decode())
    at = Instant(to_us(chunk.at))
    return {"id": chunk.id, "attempt": chunk.attempt, "value": value, "at": at}


def of_function(view: FunctionView) -> dict[str, Value]:
    """Return the output of a durable function, without its calls."""
    unread = [f"{name} ({count})" for name, count in (view.unread or {}).items()]
    shown: dict[str, Value] = {
        "stopped": None if view.stop is None else view.stop.why,
        "stopped_since": None if view.stop is None else Instant(view.stop.since_us),
        "ends_as": view.end,
        "cancel_asked": view.is_cancelled,
        "unread_signals": unread,
        "generation": view.generation,
    }
    return {name: value for name, value in shown.items() if value}


_LEFT_OUT = (
    "stopped",
    "task",
    "priority",
    "at",
    "due",
    "enqueued",
    "errors",
    "crashes",
    "claims",
    "claimed",
)


def of_shown_function(details: JobDetails, why: str) -> Entry:
    """Return the output of a durable function as a workflow, without its calls."""
    job, view = details.summary, details.function
    is_waiting = job.state == "scheduled" and view is not None and view.open_calls
    begin = {
        "id": job.id,
        "kind": "function",
        "name": job.task,
        "state": "waiting" if is_waiting else job.shown_state,
        "started": Instant(job.enqueued_us) if job.enqueued_us else None,
    }
    rest = {name: value for name, value in of_details(details).items() if name not in _LEFT_OUT}
    return {**begin, **rest, **begin, "why": why}


def of_call(call: RecordedCall) -> Entry:
    """Return the output of a recorded call of a durable function. at: when that was recorded."""
    return {
        "call": call.position,
        "kind": call.kind,
        "name": call.name,
        "state": call.state,
        "at": Instant(call.at_us),
        "until": Instant(call.until_us) if call.until_us else None,
        "tries": call.tries,
        "job": call.job,
        "error": call.error,
    }


def calls_part(view: FunctionView) -> Part:
    """Return the table of the calls of a durable function."""
    return Part("calls", [of_call(call) for call in view.calls], CALL_COLUMNS)


def shown_options(carried: Carried) -> dict[str, Value]:
    """Return the output of the options that a job or a schedule carries, without its tags."""
    return {
        name: form.show(getattr(carried, name)) for name, form in CARRIED.items() if name != "tags"
    }


def of_attempt(attempt: Attempt) -> dict[str, Value]:
    """Return the output of an ended attempt."""
    return of_ended(summary_of_attempt(attempt))


def attempt_entry(attempt: Attempt) -> Entry:
    """Return the output of one attempt of a job, or of an event under its last claim."""
    shown = of_attempt(attempt)
    keys = ("ended", "claimed", "started", "took", "worker", "error")
    return {"fence": attempt.fence, "outcome": attempt.outcome, **{k: shown[k] for k in keys}}


def of_tailed(attempt: Attempt) -> Entry:
    """Return the output of an attempt in a list of several jobs."""
    shown = of_attempt(attempt)
    del shown["state"]
    headers = attempt.headers if isinstance(attempt, EnqueuedEvent) else {}
    given: Entry = {"headers": dict(headers)} if headers else {}
    return {**shown, "outcome": attempt.outcome, "fence": attempt.fence, **given}


def _progress_of(details: JobDetails) -> Entry | None:
    progress = details.progress
    if progress is None:
        return None
    shown: dict[str, Value] = {"done": _amount(progress.done), "total": _amount(progress.total)}
    if progress.total > 0:
        shown["percent"] = round(100 * progress.done / progress.total, 1)
    if progress.note:
        shown["note"] = progress.note
    return shown | {"at": Instant(progress.at_us)}


def _amount(number: float) -> float:
    return int(number) if number == int(number) else number


def of_explanation(job: str, explanation: Explanation) -> Entry:
    """Return the output of an explanation."""
    return {
        "id": job,
        "reason": explanation.reason,
        "sentence": explanation.sentence,
        "facts": facts_of(explanation.facts),
        "conditions": [_of_condition(condition) for condition in explanation.conditions],
        "ends_as": explanation.ends_as,
        "unknown": list(explanation.unknown),
        "until": None if explanation.until is None else _of_until(explanation.until),
    }


def _of_until(until: Until) -> Entry:
    """Return the output of whether a job starts by a time."""
    return {
        "at": Instant(until.until_us),
        "starts": until.starts,
        "text": until.sentence,
        "commands": list(until.commands),
    }


def _of_condition(condition: Condition) -> Entry:
    """Return the output of a condition. at: when it changes by itself; None if not known."""
    return {
        "kind": condition.kind,
        "subject": condition.subject,
        "text": condition.clause,
        "change": condition.change,
        "at": Instant(condition.at_us) if condition.at_us else None,
        "command": condition.command,
        "unknown": condition.unknown,
        "facts": facts_of(condition.facts),
    }


def facts_of(facts: Facts) -> Entry:
    """Return the facts of an explanation; names that end in `_us` are timestamps."""
    return {
        name.removesuffix("_us"): Instant(int(value)) if name.endswith("_us") else value
        for name, value in facts.items()
    }
