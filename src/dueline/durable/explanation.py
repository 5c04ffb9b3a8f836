"""Why a durable function is not running: what it waits for, or why it is stopped."""

from collections.abc import Sequence
from typing import Final

from dueline.core.call_options import durable_place
from dueline.core.errors import StoreCorrupt
from dueline.core.job import JobId
from dueline.durable.stopped import stop_of
from dueline.durable.suspension import ADVICE
from dueline.durable.views import RecordedCall, open_calls_of
from dueline.jobs import explain as jobs
from dueline.jobs.conditions.subject import Subject
from dueline.jobs.explanation import Change, Condition, Explanation, Facts, line, when
from dueline.jobs.parked_functions import is_parked
from dueline.jobs.queue import Queues

CALLS_READ: Final = 200
"""Number of calls at the end of a log among which is what a function waits for."""


def explain(queues: Queues, job_id: JobId) -> Explanation:
    """Explain why a job is not running, also if it is a durable function."""
    return jobs.explain(queues, job_id, wait_of=wait_of)


def wait_of(subject: Subject) -> Condition | None:
    """Return what a durable function waits for; None for other jobs, and if it is to run."""
    job = subject.job
    stop = stop_of(job)
    if stop is not None:
        is_due = stop.at_us <= subject.now_us
        again = "now" if is_due else f"at {when(stop.at_us, subject.now_us)}"
        clause = (
            f"it is stopped since {when(stop.since_us, subject.now_us)}: {line(stop.why)}; "
            f"{ADVICE[stop.kind]}; a worker tries again {again}"
        )
        command = f"dueline flows show {job.id.hex()}"
        facts: Facts = {"why": stop.why, "since_us": stop.since_us, "at_us": stop.at_us}
        return Condition("stopped", job.id.hex(), clause, "operator", 0, command, facts=facts)
    if not is_parked(job) or job.at_us <= subject.now_us:
        return None
    try:
        calls = open_calls_of(subject.engine.store, job, CALLS_READ)
    except StoreCorrupt as error:
        clause = f"it waits, and its log cannot be read: {line(error.message)} (`dueline doctor`)"
        return Condition("stopped", job.id.hex(), clause, "operator", 0, "dueline doctor")
    return _waiting(subject, calls) if calls else None


def _waiting(subject: Subject, calls: Sequence[RecordedCall]) -> Condition | None:
    job, call = subject.job, calls[-1]
    place, durable = f"in call {call.position} of {job.task}", durable_place(job)
    generation = 0 if durable is None else durable.generation
    facts: Facts = {"call": call.position, "since_us": call.at_us, "generation": generation}
    until = f" until {when(call.until_us, subject.now_us)}" if call.until_us else ""
    if call.state == "sleeping":
        facts = {**facts, "until_us": call.until_us}
        return Condition(
            "sleep", job.id.hex(), f"it sleeps{until}, {place}", "time", call.until_us, facts=facts
        )
    if call.state == "waiting":
        since = when(call.at_us, subject.now_us)
        command = f"dueline flows signal {job.id.hex()} {call.name}"
        facts = {**facts, "signal": call.name}
        if call.until_us:
            facts = {**facts, "until_us": call.until_us}
        clause = f"it waits for the signal {call.name} since {since}{until}, {place} (`{command}`)"
        change: Change = "time" if call.until_us else "operator"
        return Condition("signal", call.name, clause, change, call.until_us, command,
                         unknown=f"when the signal {call.name} is sent", facts=facts)  # fmt: skip
    if call.state == "running":
        return _calling(job.id, calls, place, facts)
    if call.state == "retrying":
        clause = (
            f"attempt {call.tries} of {call.name or 'a step'} failed ({line(call.error)}); it is "
            f"retried at {when(job.at_us, subject.now_us)}, {place}"
        )
        return Condition("retrying", job.id.hex(), clause, "time", job.at_us, facts=facts)
    return None


def _calling(job_id: JobId, calls: Sequence[RecordedCall], place: str, facts: Facts) -> Condition:
    """Return that a function waits for jobs that it called."""
    call = calls[-1]
    what, unknown = f"the ends of {call.name}", "when they end"
    command, shown = "", ""
    if len(calls) > 1:  # with `wait=False`; the log does not say for which of them
        names = ", ".join(dict.fromkeys(call.name for call in calls))
        what = f"the end of one of {len(calls)} jobs: {names}"
        command = f"dueline flows show {job_id.hex()}"
        shown = f" (`{command}`)"
    elif call.job:
        what, unknown = f"the end of the job of {call.name}", "when it ends"
        command = f"dueline jobs explain {call.job}"
        shown = f" (`{command}`)"
    return Condition(
        "calls", call.name, f"it waits for {what}, {place}{shown}", "work", 0, command,
        unknown=unknown, facts={**facts, "job": call.job},
    )  # fmt: skip
