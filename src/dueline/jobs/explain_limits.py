"""Which limit keeps a job from running."""

from collections.abc import Sequence
from typing import Final

from dueline.core.engine import Engine
from dueline.core.job import Job
from dueline.core.lane import limits_of
from dueline.core.limit_names import semaphore_of
from dueline.jobs.explanation import Explanation, Facts, when
from dueline.limits.usage import LimitUsage, Metered, look, rate_text

_WORKERS_NAMED: Final = 5


def limited(engine: Engine, job: Job, now_us: int) -> Explanation | None:
    """Name the first limit that allows nothing; a closed one before one whose permits are taken."""
    slow, uses = look(engine, limits_of(job.lane))
    if slow:
        return _too_often(job, max(slow, key=lambda one: one.next_us), now_us)
    full = [use for use in uses if use.is_full]
    if not full:
        return None
    closed = max(full, key=lambda one: one.closed_us)
    if closed.closed_us:
        return _closed(job, closed, now_us)
    use = min(full, key=lambda one: one.capacity > 0)
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
            f"It is ready, but its limit {use.name} has a capacity of 0, which lets nothing run "
            f"(`dueline limits set {semaphore} 4`).",
            facts,
        )
    facts = {**facts, "until_us": min(one.until_us for one in use.holders.values())}
    default = "" if use.is_set else ", as nobody has set it"
    return Explanation(
        "limit",
        f"It is ready, but of its limit {use.name} no permit is left (capacity {use.capacity}"
        f"{default}): {_holders(use, now_us)}.",
        facts,
    )


def _too_often(job: Job, one: Metered, now_us: int) -> Explanation:
    """Say of a limit that is a rate when it lets the next job start."""
    facts: Facts = {"queue": job.lane.queue, "limit": one.name, "at_us": one.next_us}
    return Explanation(
        "limit",
        f"It is ready, but its limit {one.name} ({rate_text(one.rate)}) lets the next job start "
        f"at {when(one.next_us, now_us)}.",
        facts,
    )


def _closed(job: Job, use: LimitUsage, now_us: int) -> Explanation:
    """Say of a limit that a handler closed when it opens."""
    return Explanation(
        "limit",
        f"It is ready, but its limit {use.name} is closed until {when(use.closed_us, now_us)}, "
        "since a handler raised Throttled.",
        {"queue": job.lane.queue, "limit": use.name, "closed_us": use.closed_us},
    )


def _holders(use: LimitUsage, now_us: int) -> str:
    """Say who holds permits, and who waits for some."""
    holding = [
        f"{who} holds {one.count} until {when(one.until_us, now_us)}"
        for who, one in use.holders.items()
    ]
    waiting = [f"{who} waits for {one.count}" for who, one in use.waiting.items()]
    return "; ".join(_some(names) for names in (holding, waiting) if names)


def _some(texts: Sequence[str]) -> str:
    more = len(texts) - _WORKERS_NAMED
    return ", ".join([*texts[:_WORKERS_NAMED], *([f"and {more} more"] if more > 0 else [])])
