"""Limits that let no job start."""

import shlex
from collections.abc import Iterator

from dueline.core.lane import limits_of
from dueline.core.limit_names import semaphore_of
from dueline.jobs.conditions.subject import Subject
from dueline.jobs.explanation import Condition, Facts, listed, when
from dueline.limits import usage
from dueline.limits.usage import ExhaustedRate, LimitUsage, rate_text

_CAPACITY = 4
"""Capacity in the command that opens a semaphore."""


def busy_limits(subject: Subject) -> list[Condition]:
    """Return the limits that let no job start: those that someone must change, then by time."""
    names = limits_of(subject.job.lane)
    if not names:
        return []
    rates, semaphores = usage.look(subject.engine, names)
    found = [_rate(subject, rate) for rate in rates]
    for use in semaphores:
        found += _semaphore(subject, use)
    return sorted(found, key=_order)


def _order(condition: Condition) -> tuple[int, int]:
    return ("operator", "time", "work").index(condition.change), condition.at_us


def _rate(subject: Subject, rate: ExhaustedRate) -> Condition:
    return Condition(
        "limit",
        rate.name,
        f"its limit {rate.name} ({rate_text(rate.rate)}) lets the next job start "
        f"at {when(rate.next_us, subject.now_us)}",
        "time",
        at_us=rate.next_us,
        facts={"queue": subject.queue, "limit": rate.name, "at_us": rate.next_us},
    )


def _semaphore(subject: Subject, use: LimitUsage) -> Iterator[Condition]:
    facts: Facts = {"queue": subject.queue, "limit": use.name}
    if use.capacity == 0:
        yield _of_no_capacity(subject, use)
    if use.closed_us:
        yield Condition(
            "limit",
            use.name,
            f"its limit {use.name} is closed until {when(use.closed_us, subject.now_us)}, "
            "since a handler raised Throttled",
            "time",
            at_us=use.closed_us,
            facts={**facts, "closed_us": use.closed_us},
        )
    if 0 < use.capacity <= use.held:
        yield _full(subject, use)


def _facts(subject: Subject, use: LimitUsage) -> Facts:
    return {
        "queue": subject.queue,
        "limit": use.name,
        "semaphore": semaphore_of(use.name),
        "capacity": use.capacity,
        "held": use.held,
        "holders": ", ".join(f"{who}={hold.count}" for who, hold in use.holders.items()),
        "waiting": ", ".join(f"{who}={wait.count}" for who, wait in use.waiting.items()),
    }


def _set(use: LimitUsage, capacity: int) -> str:
    return shlex.join(["dueline", "limits", "set", semaphore_of(use.name), str(capacity)])


def _of_no_capacity(subject: Subject, use: LimitUsage) -> Condition:
    command = _set(use, _CAPACITY)
    return Condition(
        "limit", use.name,
        f"its limit {use.name} has a capacity of 0, so no job starts (`{command}`)",
        "operator", command=command, facts=_facts(subject, use),
    )  # fmt: skip


def _full(subject: Subject, use: LimitUsage) -> Condition:
    """Return that no permit is free; those of dead workers are released when they expire."""
    live = {worker.worker for worker in subject.live}
    holding = []
    for who, hold in use.holders.items():
        name = who if who in live else f"{who}, which is gone,"
        holding.append(f"{name} holds {hold.count} until {when(hold.until_us, subject.now_us)}")
    waiting = [f"{who} waits for {wait.count}" for who, wait in use.waiting.items()]
    held = "; ".join(listed(names) for names in (holding, waiting) if names)
    gone_us = [hold.until_us for who, hold in use.holders.items() if who not in live]
    spare = use.held - use.capacity + 1
    default = "" if use.is_set else ", as nobody has set it"
    clause = f"its limit {use.name} has no free permit (capacity {use.capacity}{default}): {held}"
    facts = {
        **_facts(subject, use),
        "until_us": min(holder.until_us for holder in use.holders.values()),
    }
    command = _set(use, use.capacity + spare)
    if gone_us and spare == 1:
        return Condition("limit", use.name, clause, "time", min(gone_us), command, facts=facts)
    unknown = f"when the jobs that hold permits of {use.name} end"
    return Condition("limit", use.name, clause, "work", 0, command, unknown, facts)
