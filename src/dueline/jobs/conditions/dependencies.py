"""Which other jobs and workflows a job waits for."""

from dueline.core.errors import StoreCorrupt
from dueline.core.job import JobId
from dueline.jobs import dependencies
from dueline.jobs.conditions.subject import Subject
from dueline.jobs.dependencies import Held, NeverRuns, Waits
from dueline.jobs.explanation import Condition, Explanation, Facts, line

_NAMED_MAX = 5


def wait_for_others(subject: Subject) -> Explanation | Condition | None:
    """Return how a job ends because of others, or that it waits for them; None if it does not."""
    awaits = dependencies.awaiting(subject.job)
    if awaits is None:
        return None
    try:
        word = dependencies.judge(subject.engine, [subject.job])[subject.job.id]
    except StoreCorrupt as error:
        clause = f"what it waits for cannot be read: {error.message} (`dueline doctor`)"
        return Condition("jobs", subject.job.id.hex(), clause, "operator", 0, "dueline doctor")
    if isinstance(word, NeverRuns):
        return Explanation(
            "never",
            f"It will never run: {line(word.why)}. The next worker that claims it records that it "
            f"is {word.state}.",
            ends_as=word.state,
        )
    if isinstance(word, Waits):
        return _waiting(word, len(awaits.jobs) + len(awaits.flows), set(awaits.flows))
    if isinstance(word, Held):
        awaited = word.by.awaited.hex()
        is_job = word.by.what == "job"
        command = f"dueline {'dead' if is_job else 'flows'} retry {awaited}"
        what = f"the {word.by.what} {awaited}, which is {word.by.state}"
        because = f" because of {line(word.by.error)}" if word.by.error else ""
        return Condition(
            "held",
            awaited,
            f"it is held by {what}{because}, until that is retried (`{command}`)",
            "operator",
            command=command,
            facts={"awaited": awaited, "error": word.by.error},
        )
    clause = (
        "all jobs that it waits for have ended; it continues when a worker releases it, or when it "
        "checks this itself"
    )
    return Condition("jobs", subject.job.id.hex(), clause, "time", subject.job.at_us)


def _waiting(word: Waits, count: int, flows: set[bytes]) -> Condition:
    first = word.for_[0]
    names = ", ".join(_name(awaited, flows) for awaited in word.for_[:_NAMED_MAX])
    more = ", ..." if len(word.for_) > _NAMED_MAX else ""
    share = f"{len(word.for_)} of {count}: " if count > 1 else ""
    shown = f"dueline {'flows show' if first in flows else 'jobs explain'} {first.hex()}"
    facts: Facts = {"awaited": ",".join(awaited.hex() for awaited in word.for_), "jobs": count}
    return Condition(
        "jobs",
        first.hex(),
        f"it waits for the end of {share}{names}{more} (`{shown}`)",
        "work",
        command=shown,
        unknown="when they end",
        facts=facts,
    )


def _name(awaited: JobId, flows: set[bytes]) -> str:
    return f"the {'workflow' if awaited in flows else 'job'} {awaited.hex()}"
