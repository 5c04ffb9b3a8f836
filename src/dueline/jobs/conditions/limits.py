"""Limits that let no job start."""

import shlex
from collections.abc import Iterator

from dueline.core.lane import limits_of
from dueline.core.limit_costs import costs_of
from dueline.core.limit_names import semaphore_of
from dueline.jobs.conditions.subject import Subject
from dueline.jobs.explanation import Condition, Facts, listed, when
from dueline.limits import usage
from dueline.limits.rate import rate_text
from dueline.limits.usage import ExhaustedRate, LimitUsage

_CAPACITY = 4
"""Capacity in the command that opens a semaphore."""


def busy_limits(subject: Subject) -> list[Condition]:
    """Return the limits that let no job start: those that someone must change, then by time."""
    names = limits_of(subject.job.lane)
    if not names:
        return []
    costs = costs_of(subject.job)
    rates, semaphores = usage.look(subject.engine, names, costs)
    conditions = [_rate(subject, rate) for rate in rates]
    for use in semaphores:
        conditions += _semaphore(subject, use, costs.get(use.name, 1))
    return sorted(conditions, key=_order)


def _order(condition: Condition) -> tuple[int, int]:
    return ("operator", "time", "work").index(condition.change), condition.at_us


def _rate(subject: Subject, rate: ExhaustedRate) -> Condition:
    at, most = when(rate.next_us, subject.now_us), rate.rate.most
    clause = f"its limit {rate.name} ({rate_text(rate.rate)}) lets the next job start at {at}"
    if rate.need > most:
        clause = (
            f"its cost {rate.need} is above the limit {rate.name} ({rate_text(rate.rate)}), so it "
            f"runs alone: all {most} are there at {at}"
        )
    elif rate.need > 1:
        clause = (
            f"its limit {rate.name} ({rate_text(rate.rate)}) has {rate.left} left and it takes "
            f"{rate.need}, which are there at {at}"
        )
    return Condition(
        "limit",
        rate.name,
        clause,
        "time",
        at_us=rate.next_us,
        facts={"queue": subject.queue, "limit": rate.name, "at_us": rate.next_us},
    )


def _semaphore(subject: Subject, use: LimitUsage, need: int) -> Iterator[Condition]:
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
    if use.capacity and use.capacity - use.held < min(need, use.capacity):
        yield _full(subject, use, need)


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
    """Return the command that sets a capacity; that of an adaptive limit keeps its least one."""
    command = ["dueline", "limits", "set", semaphore_of(use.name), str(capacity)]
    if use.setting.most:
        command += ["--adaptive", f"{use.setting.least}:{max(capacity, use.setting.most)}"]
    return shlex.join(command)


def _of_no_capacity(subject: Subject, use: LimitUsage) -> Condition:
    command = _set(use, _CAPACITY)
    return Condition(
        "limit", use.name,
        f"its limit {use.name} has a capacity of 0, so no job starts (`{command}`)",
        "operator", command=command, facts=_facts(subject, use),
    )  # fmt: skip


def _full(subject: Subject, use: LimitUsage, need: int) -> Condition:
    """Return that no permit is free; those of dead workers are released when they expire."""
    live = {worker.worker for worker in subject.live}
    holding = []
    for who, hold in use.holders.items():
        name = who if who in live else f"{who}, which is gone,"
        holding.append(f"{name} holds {hold.count} until {when(hold.until_us, subject.now_us)}")
    waiting = [f"{who} waits for {wait.count}" for who, wait in use.waiting.items()]
    held = "; ".join(listed(names) for names in (holding, waiting) if names)
    gone_us = [hold.until_us for who, hold in use.holders.items() if who not in live]
    spare = use.held - use.capacity + need
    default = "" if use.is_set else ", as nobody has set it"
    clause = f"its limit {use.name} has no free permit (capacity {use.capacity}{default}): {held}"
    if need > use.capacity:
        clause = (
            f"its cost {need} is above the capacity {use.capacity} of {use.name}, so it runs alone "
            f"once all permits are free: {held}"
        )
    elif need > 1:
        clause = (
            f"its limit {use.name} has {max(0, use.capacity - use.held)} free permits (capacity "
            f"{use.capacity}) and it takes {need}: {held}"
        )
    facts = {
        **_facts(subject, use),
        "until_us": min(holder.until_us for holder in use.holders.values()),
    }
    command = _set(use, use.capacity + spare)
    if gone_us and spare == 1:
        return Condition("limit", use.name, clause, "time", min(gone_us), command, facts=facts)
    unknown = f"when the jobs that hold permits of {use.name} end"
    return Condition("limit", use.name, clause, "work", 0, command, unknown, facts)
