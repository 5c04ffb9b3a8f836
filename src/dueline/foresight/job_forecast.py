"""Forecasts of jobs, from a store: what waits before a job, and what workers measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dueline.coordination import notes
from dueline.coordination.worker_registry import Presence, live_workers
from dueline.core.call_options import durable_place
from dueline.core.engine import Engine
from dueline.core.job import Job, JobId
from dueline.core.job_status import status_of
from dueline.core.lane import limits_of
from dueline.core.limit_costs import costs_of
from dueline.foresight.forecast import (
    CHECKED_MIN,
    Error,
    Estimate,
    Forecast,
    Line,
    error_of,
    estimate,
)
from dueline.foresight.forecast import forecast_of as forecast_of_estimate
from dueline.foresight.run_times import KNOWN_MIN, RunTimes, run_times
from dueline.jobs.claim_order import AHEAD_MAX, rows_before
from dueline.jobs.explanation import Explanation
from dueline.jobs.queue import Queues
from dueline.limits import rate, usage

REASONS: Final = frozenset({"waiting", "limit", "scheduled", "retrying", "put back"})
"""Reasons of waiting whose end can be foreseen."""

FUNCTION_UNKNOWN: Final = "how often the durable function runs before it ends"
_AWAITED: Final = ("signal", "calls")

KIND: Final = "forecasts"
_KINDS: Final = {"ready": "ready", "later": "scheduled", "limited": "limited"}


@dataclass(frozen=True, slots=True)
class Probe:
    """An estimate that is checked when the job has started."""

    job: str
    fence: int
    made_us: int
    base_us: int
    wait_us: int
    kind: str


@dataclass(frozen=True, slots=True)
class Checks:
    """The estimates of a queue: those to check, and the errors of those that were checked."""

    open: Sequence[Probe] = ()
    errors: Mapping[str, Sequence[Error]] = field(default_factory=dict)


def explain(queues: Queues, job_id: JobId) -> Explanation:
    """Explain why a job is not running, and forecast when it starts.

    Where that is unknown, the fact `no_forecast` says why.
    """
    from dueline.durable.explanation import explain as explain_now  # noqa: PLC0415  (used by few)

    explanation = explain_now(queues, job_id)
    engine = queues.engine
    row, now_us = engine.store.find([job_id])[0], engine.time.latest_us()
    if row is not None and durable_place(row) is not None and explanation.conditions:
        explanation = _of_function(explanation)
    needs_operator = any(condition.change == "operator" for condition in explanation.conditions)
    if explanation.reason not in REASONS or needs_operator or explanation.ends_as:
        return explanation
    forecast = "it has just started" if row is None else forecast_of(engine, row, now_us)
    if isinstance(forecast, str):
        said = explanation.sentence
        if explanation.reason == "waiting":
            said = f"{said} There is no forecast: {forecast}."
        facts = {**explanation.facts, "no_forecast": forecast}
        return replace(explanation, sentence=said, facts=facts)
    said = forecast.text(now_us)
    times = {
        "expected_us": forecast.expected_us,
        "earliest_us": forecast.earliest_us,
        "latest_us": forecast.latest_us,
    }
    return replace(
        explanation,
        sentence=f"{explanation.sentence} {said[0].upper()}{said[1:]}.",
        facts={**explanation.facts, **times},
    )


def _of_function(explanation: Explanation) -> Explanation:
    """Say what no forecast can know of a durable function."""
    first, *_ = explanation.conditions
    unknown, facts = FUNCTION_UNKNOWN, explanation.facts
    if first.kind in _AWAITED and first.unknown:
        unknown = f"{first.unknown}, and {FUNCTION_UNKNOWN}"
        facts = {**facts, "no_forecast": f"{first.unknown} is not known"}
    return replace(
        explanation,
        sentence=f"{explanation.sentence} It is not known {unknown}.",
        facts=facts,
        unknown=(*explanation.unknown, FUNCTION_UNKNOWN),
    )


def forecast_of(engine: Engine, job: Job, now_us: int) -> Forecast | str:
    """Return when a waiting job is expected to start, or why that is unknown."""
    workers, times = live_workers(engine), run_times(engine.store)
    estimate = estimate_of(engine, job, now_us, workers=workers, times=times)
    if isinstance(estimate, str):
        return estimate
    errors = errors_of(checks_of(engine, job.lane.queue), now_us)
    forecast = forecast_of_estimate(estimate, errors)
    if forecast is None:
        return (
            f"too few forecasts of {_KINDS[estimate.kind]} jobs of the queue {job.lane.queue} were "
            f"checked so far: {len(errors.get(estimate.kind, ()))} of {CHECKED_MIN}"
        )
    return forecast


def checks_of(engine: Engine, queue: str) -> Checks:
    """Return the estimates of a queue that were made before."""
    return notes.value(engine.store, KIND, queue, Checks) or Checks()


def errors_of(checks: Checks, now_us: int) -> dict[str, list[Error]]:
    """Return the errors of estimates that were checked, and of jobs that are late already.

    Without the latter, only jobs that started early would count at first.
    """
    errors = {kind: list(known) for kind, known in checks.errors.items()}
    for probe in checks.open:
        error = error_of(probe.wait_us, now_us - probe.base_us)
        if error > 1:
            errors.setdefault(probe.kind, []).append(Error(probe.wait_us, error))
    return errors


def estimate_of(
    engine: Engine,
    job: Job,
    now_us: int,
    *,
    workers: Sequence[Presence],
    times: RunTimes,
    most: int = AHEAD_MAX,
    more_permits: int = 0,
) -> Estimate | str:
    """Return when a waiting job would start if all jobs before it take their mean run times.

    Args:
      most: Maximum number of rows that are read.
      more_permits: How many permits are added to each semaphore of the job.

    Returns:
      The estimate, or why it cannot be made.
    """
    queue, at_us = job.lane.queue, max(now_us, job.at_us)
    knowing = [
        worker
        for worker in workers
        if queue in worker.queues and worker.is_claiming and worker.can_run(job)
    ]
    if not knowing:
        return f"no live worker runs the task {job.task} of the queue {queue}"
    mean_us = times.cost_us(queue, job.task)
    if mean_us is None:
        return f"fewer than {KNOWN_MIN} run times of the task {job.task} are known"
    before = min(
        (
            rows_before(engine, job, names, at_us, tasks, most=most)
            for names, tasks in {(worker.queues, worker.known) for worker in knowing}
        ),
        key=lambda ahead: len(ahead.rows),
    )
    if before.is_capped:
        return f"more than {most} rows come before it or were read"
    rows = [row for row in before.rows if row.id != job.id and status_of(row, now_us) != "running"]
    costs = {
        (row.lane.queue, row.task): times.cost_us(row.lane.queue, row.task) or mean_us
        for row in rows
    }
    slots = sum(worker.own[queue][0] if queue in worker.own else worker.slots for worker in knowing)
    held = sum(worker.own[queue][1] if queue in worker.own else worker.held for worker in knowing)
    lines = [
        Line(slots, held, mean_us, [(row.at_us, costs[row.lane.queue, row.task]) for row in rows]),
        *_limits(engine, job, rows, costs, mean_us, more_permits=more_permits),
    ]
    return estimate(lines, now_us=now_us, due_us=job.at_us)


def _limits(
    engine: Engine,
    job: Job,
    rows: Sequence[Job],
    costs: Mapping[tuple[str, str], float],
    mean_us: float,
    *,
    more_permits: int,
) -> list[Line]:
    """Return the lines of a job's limits."""
    names = limits_of(job.lane)
    if not names:
        return []
    rates = rate.rates(engine.store)
    slow, uses = usage.look(engine, names, costs_of(job))
    free_us = {exhausted_rate.name: exhausted_rate.next_us for exhausted_rate in slow}
    lines = [
        Line(
            use.capacity + more_permits,
            use.held,
            mean_us,
            [
                (row.at_us, costs[row.lane.queue, row.task])
                for row in rows
                if use.name in limits_of(row.lane)
            ],
            use.closed_us,
        )
        for use in uses
        if use.capacity
    ]
    for name in names:
        if (limit := rate.rate_of(rates, name)) is not None:
            gap_us = limit.per_us / limit.count
            before = [row for row in rows if name in limits_of(row.lane)]
            gaps = [(0, gap_us * costs_of(row).get(name, 1)) for row in before]
            lines.append(Line(1, 0, gap_us, gaps, free_us.get(name, 0)))
    return lines
