"""The reason why a job is not running, and its sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias, get_args

from dueline.coordination.worker_registry import Presence
from dueline.core.attempt import FinalState, Outcome
from dueline.core.call_options import read_options
from dueline.core.durations import distance_text, instant_text, span_text
from dueline.core.job import Job
from dueline.core.job_status import ahead_of
from dueline.core.limit_names import semaphore_of
from dueline.core.retry import CRASHES_MAX
from dueline.jobs.claim_order import Ahead
from dueline.limits.usage import ExhaustedRate, LimitUsage, rate_text
from dueline.workflows import records
from dueline.workflows.graph import Layout

Reason = Literal[
    "unknown",
    "done",
    "dead",
    "cancelled",
    "expired",
    "lost",
    "running",
    "claimed",
    "batch",
    "worker gone",
    "scheduled",
    "retrying",
    "put back",
    "steps",
    "held",
    "signal",
    "paused",
    "no worker",
    "task unknown",
    "limit",
    "suspect",
    "waiting",
]

Facts: TypeAlias = Mapping[str, int | str | bool]

_ERROR_CHARACTERS: Final = 200
_WORKERS_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Explanation:
    """The one reason why a job is not running; as a string, the sentence.

    sentence: the reason in words. facts: what it rests on; names that end in `_us` are
    instants, microseconds UTC.
    """

    reason: Reason
    sentence: str
    facts: Facts = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the sentence."""
        return self.sentence


def when(instant_us: int, now_us: int) -> str:
    """Format a timestamp, and its distance from now."""
    return f"{instant_text(instant_us)} ({distance_text(instant_us, now_us)})"


def line(error: str) -> str:
    """Return an error's first line, cut, without a period at its end."""
    first = error.strip().partition("\n")[0].removesuffix(".")
    return first if len(first) <= _ERROR_CHARACTERS else f"{first[:_ERROR_CHARACTERS]}..."


# Its end


def explain_ended(outcome: Outcome, now_us: int) -> Explanation:
    """Explain that a job has ended, and how."""
    if outcome.state == "dead":
        return explain_dead(outcome.ended_us, outcome.error, now_us)
    assert outcome.state in get_args(FinalState)
    sign = ":" if outcome.state == "cancelled" else " because of"  # what follows is a sentence
    because = f"{sign} {line(outcome.error)}" if outcome.error else ""
    return Explanation(
        outcome.state,
        f"It has been {outcome.state} since {when(outcome.ended_us, now_us)}{because}.",
        {"ended_us": outcome.ended_us, "error": outcome.error},
    )


def explain_dead(ended_us: int, error: str, now_us: int) -> Explanation:
    """Explain that a job is a dead-letter job."""
    return Explanation(
        "dead",
        f"It has been dead since {when(ended_us, now_us)} because of {line(error)}.",
        {"ended_us": ended_us, "error": error},
    )


def explain_expired(job: Job, now_us: int) -> Explanation:
    """Explain that a job has expired."""
    expires_us = read_options(job.opts).expires_us
    assert expires_us is not None
    return Explanation(
        "expired",
        f"It expired at {when(expires_us, now_us)} and will not run; the next worker that "
        "claims it records this in the history.",
        {"expires_us": expires_us},
    )


# A worker, and the order of claims


def explain_batch(job: Job, holder: Presence, facts: Facts, now_us: int) -> Explanation | None:
    """Explain that a job waits until its batch is full; None if it does not."""
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


def with_request(job: Job, found: Explanation) -> Explanation:
    """Add to the explanation of a claimed job that its end was asked for."""
    asked = (
        "Its end was asked for, and its handler has not checked for that yet; "
        f"`dueline jobs cancel {job.id.hex()} --force` ends it now."
    )
    if found.reason == "worker gone":
        asked = "Its end was asked for: the worker that claims it next ends it without a run."
    sentence = f"{found.sentence} {asked}"
    return replace(found, sentence=sentence, facts={**found.facts, "is_cancel_asked": True})


def explain_suspect(job: Job, facts: Facts) -> Explanation:
    """Explain that a job runs alone because a worker died while it ran."""
    return Explanation(
        "suspect",
        f"A worker died while it ran (crash {job.crashes}, dead at {CRASHES_MAX}), so it runs "
        "only when a worker runs nothing else.",
        facts,
    )


def position_text(queue: str, position: int, ahead: Ahead) -> str:
    """Return the position of a job in the claim order, as text."""
    least = "or later " if ahead.is_capped else ""
    turns = ", where tenants take turns" if ahead.has_turns else ""
    others = [f"{name}: {count}" for name, count in ahead.by_queue.items() if name != queue]
    before = f", behind jobs of other queues that share its slots ({', '.join(others)})"
    return f"{position} {least}of the queue {queue}{turns}{before if others else ''}"


# Limits


def explain_rate(job: Job, one: ExhaustedRate, now_us: int) -> Explanation:
    """Explain that a rate delays a job, and when the next job starts."""
    facts: Facts = {"queue": job.lane.queue, "limit": one.name, "at_us": one.next_us}
    return Explanation(
        "limit",
        f"It is ready, but its limit {one.name} ({rate_text(one.rate)}) lets the next job start "
        f"at {when(one.next_us, now_us)}.",
        facts,
    )


def explain_closed_limit(job: Job, use: LimitUsage, now_us: int) -> Explanation:
    """Explain that a handler closed a limit, and when it opens."""
    return Explanation(
        "limit",
        f"It is ready, but its limit {use.name} is closed until {when(use.closed_us, now_us)}, "
        "since a handler raised Throttled.",
        {"queue": job.lane.queue, "limit": use.name, "closed_us": use.closed_us},
    )


def explain_full_limit(job: Job, use: LimitUsage, now_us: int) -> Explanation:
    """Explain that a limit has no permit left, and which workers hold its permits."""
    semaphore = semaphore_of(use.name)
    facts: Facts = {
        "queue": job.lane.queue,
        "limit": use.name,
        "semaphore": semaphore,
        "capacity": use.capacity,
        "held": use.held,
        "holders": ", ".join(f"{who}={one.count}" for who, one in use.holders.items()),
        "waiting": ", ".join(f"{who}={one.count}" for who, one in use.waiting.items()),
    }
    if use.capacity == 0:
        return Explanation(
            "limit",
            f"It is ready, but its limit {use.name} has a capacity of 0, so no job starts "
            f"(`dueline limits set {semaphore} 4`).",
            facts,
        )
    facts = {**facts, "until_us": min(one.until_us for one in use.holders.values())}
    default = "" if use.is_set else ", as nobody has set it"
    return Explanation(
        "limit",
        f"It is ready, but its limit {use.name} has no free permit (capacity {use.capacity}"
        f"{default}): {_holders_text(use, now_us)}.",
        facts,
    )


def _holders_text(use: LimitUsage, now_us: int) -> str:
    """Return which workers hold permits of a limit, and which wait, as text."""
    holding = [
        f"{who} holds {one.count} until {when(one.until_us, now_us)}"
        for who, one in use.holders.items()
    ]
    waiting = [f"{who} waits for {one.count}" for who, one in use.waiting.items()]
    return "; ".join(_list_text(names) for names in (holding, waiting) if names)


def _list_text(texts: Sequence[str]) -> str:
    more = len(texts) - _WORKERS_NAMED
    return ", ".join([*texts[:_WORKERS_NAMED], *([f"and {more} more"] if more > 0 else [])])


# Workflows, and clocks


def with_step(job: Job, explanation: Explanation) -> Explanation:
    """Add the workflow of a job, if it is a step of one."""
    found = records.step_of(job)
    if found is None:
        return explanation
    flow, step = found[0].hex(), found[1]
    facts = {"flow": flow, "step": step, **explanation.facts}
    said = explanation.sentence
    if flow not in said:
        said = f"{said} It is step {step} of the workflow {flow}."
    return replace(explanation, sentence=said, facts=facts)


def explain_signal(layout: Layout, job: Job, until_us: int, now_us: int) -> Explanation | None:
    """Explain that a step waits for a signal; None if it waits for none."""
    found = records.step_of(job)
    assert found is not None
    flow, step = found[0].hex(), found[1]
    name = layout.nodes[step].signal
    if not name:
        return None
    facts: Facts = {"signal": name}
    until = ""
    if until_us:
        facts = {**facts, "until_us": until_us}
        until = f" until {when(until_us, now_us)}"
    return Explanation(
        "signal",
        f"It waits for the signal {name}{until} (`dueline flows signal {flow} {name}`).",
        facts,
    )


def with_clock_ahead(job: Job, explanation: Explanation, now_us: int) -> Explanation:
    """Add that a clock that was ahead wrote the row, if its times show that."""
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
