"""What would start a job by a given time."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dueline.coordination.worker_registry import live_workers
from dueline.core.engine import Engine
from dueline.core.job import Job, JobId
from dueline.core.lane import limits_of
from dueline.core.limit_names import semaphore_of
from dueline.foresight.job_forecast import estimate_of, explain
from dueline.foresight.run_times import run_times
from dueline.jobs.explanation import Condition, Explanation, Until, when
from dueline.jobs.queue import Queues
from dueline.limits import semaphore
from dueline.limits.rate import rates

FACTORS: Final = (1, 2, 4, 8, 16, 32)
"""Numbers of workers or permits that are tried."""

_STARTED: Final = frozenset({"running"})


def explain_until(queues: Queues, job_id: JobId, within_us: int | None) -> Explanation:
    """Explain why a job is not running, and whether it starts within a duration; None: only why."""
    explanation = explain(queues, job_id)
    if within_us is None:
        return explanation
    return with_until(
        queues.engine, job_id, explanation, queues.engine.time.latest_us() + within_us
    )


def with_until(
    engine: Engine, job_id: JobId, explanation: Explanation, until_us: int
) -> Explanation:
    """Add to an explanation whether the job starts by a time, and what would start it by then."""
    now_us = engine.time.latest_us()
    until = _until(engine, job_id, explanation, until_us, now_us)
    return replace(explanation, sentence=f"{explanation.sentence} {until.sentence}", until=until)


def _until(
    engine: Engine, job_id: JobId, explanation: Explanation, until_us: int, now_us: int
) -> Until:
    by = when(until_us, now_us)
    if explanation.reason in _STARTED:
        return Until(until_us, "yes", "It has started.")
    row = engine.store.find([job_id])[0]
    if row is None or not (explanation.conditions or explanation.reason == "waiting"):
        return Until(until_us, "no", "No change starts it.")
    needed = [condition for condition in explanation.conditions if not _passes(condition, until_us)]
    fixed = [condition for condition in needed if condition.change != "work"]
    if fixed:
        return _after_changes(until_us, by, fixed)
    if any(condition.kind in _CLAIMED for condition in explanation.conditions):
        return Until(until_us, "unknown", f"Whether it starts by {by} is not known.")
    return _by_itself(engine, row, until_us, now_us, by)


_CLAIMED: Final = (
    "claimed",
    "steps",
    "suspect",
    "moved",
    "frozen",
    "worker gone",
    "worker silent",
    "batch",
)


def _passes(condition: Condition, until_us: int) -> bool:
    """Return whether a condition changes by itself by a time, as far as is known."""
    return condition.change == "time" and condition.at_us <= until_us


def _after_changes(until_us: int, by: str, fixed: Sequence[Condition]) -> Until:
    commands = tuple(condition.command for condition in fixed if condition.command)
    firm = [condition for condition in fixed if not condition.command]
    if firm:
        said = f"It cannot start by {by}: no command changes that {firm[0].clause}."
        return Until(until_us, "no", said, commands)
    each = "; ".join(f"({number}) `{command}`" for number, command in enumerate(commands, start=1))
    said = f"`{commands[0]}`" if len(commands) == 1 else each
    return Until(
        until_us, "no",
        f"It does not start by {by} by itself. To start it by then: {said}.", commands,
    )  # fmt: skip


def _by_itself(engine: Engine, job: Job, until_us: int, now_us: int, by: str) -> Until:
    """Return whether a job starts by the work of those that are there, or with more of them."""
    workers, times = live_workers(engine), run_times(engine.store)

    def start(more_workers: int = 0, more_permits: int = 0) -> int | str:
        able = [worker for worker in workers if worker.is_claiming and worker.can_run(job)]
        serving = [worker for worker in able if job.lane.queue in worker.queues][:1]
        more = [
            replace(
                worker,
                worker=f"+{number}",
                held=0,
                own={name: (slots, 0) for name, (slots, _) in worker.own.items()},
            )
            for number in range(more_workers)
            for worker in serving
        ]
        estimate = estimate_of(
            engine, job, now_us, workers=[*workers, *more], times=times, more_permits=more_permits
        )
        return estimate if isinstance(estimate, str) else estimate.base_us + estimate.wait_us

    first = start()
    if isinstance(first, str):
        return Until(until_us, "unknown", f"Whether it starts by {by} is not known: {first}.")
    expected = f"expected start {when(first, now_us)}"
    if first <= until_us:
        return Until(until_us, "yes", f"It starts by itself before {by}: {expected}.")
    late = f"It does not start by {by} by itself: {expected}."
    for number in FACTORS:
        if _is_by(start(more_workers=number), until_us):
            command = shlex.join(["dueline", "worker", "-q", job.lane.queue])
            what = f"{number} more worker{'s' if number > 1 else ''} would start it: `{command}`"
            return Until(until_us, "no", f"{late} {what}.", (command,))
    for number in FACTORS if limits_of(job.lane) else ():
        if _is_by(start(more_permits=number), until_us):
            names = sorted({semaphore_of(name) for name in limits_of(job.lane)})
            known, rated = semaphore.settings(engine.store), rates(engine.store)
            commands = tuple(
                shlex.join(
                    [
                        "dueline",
                        "limits",
                        "set",
                        name,
                        str(semaphore.setting_of(known, name).capacity + number),
                    ]
                )
                for name in names
                if name not in rated
            )
            said = "; ".join(f"`{command}`" for command in commands)
            return Until(until_us, "no", f"{late} More permits would start it: {said}.", commands)
    return Until(until_us, "no", f"{late} Neither more workers nor more permits start it by then.")


def _is_by(start_us: int | str, until_us: int) -> bool:
    return isinstance(start_us, int) and start_us <= until_us
