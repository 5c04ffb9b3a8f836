"""Check forecasts: estimate when some waiting jobs start, and compare when they have started.

The maintenance leader does this for each queue that workers serve, so that the intervals of
forecasts rest on what estimates of this queue were worth.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice, product
from typing import Final, NamedTuple

from dueline.coordination import notes
from dueline.coordination.worker_registry import Presence, live_workers
from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.errors import NotFound, StoreCorrupt
from dueline.core.job import Job, JobId, State
from dueline.core.lane import Lane
from dueline.core.maintenance import MaintenanceTask, StepResult
from dueline.core.store import Put
from dueline.foresight.forecast import CHECKED_MAX, Error, error_of
from dueline.foresight.job_forecast import KIND, Checks, Probe, checks_of, estimate_of
from dueline.foresight.run_times import RunTimes, run_times
from dueline.jobs.history import LATE_US, attempts
from dueline.jobs.queue import Queues

EVERY_US: Final = 15 * SECOND_US
QUEUES_A_STEP: Final = 20

CHOICES: Final = tuple(product((False, True), repeat=2)) * 2
"""New estimates of a queue in a round: of ready and scheduled jobs, anywhere or near the head."""

OPEN_MAX: Final = 60
"""Maximum number of estimates of a queue that wait for their check."""

ROWS_MAX: Final = 2_000
"""Maximum number of rows that are read for an estimate."""

FEW: Final = 20
"""Number of rows of a lane that are read at once."""

AHEAD_US: Final = 60 * SECOND_US
"""How far ahead jobs are due whose start is estimated."""

KEEP_US: Final = 7 * 24 * 3600 * SECOND_US
_LAST_ID: Final = JobId(b"\xff" * 16)
_LANES_MAX: Final = 200
_HISTORY_MAX: Final = 2_000
_SETTLED_US: Final = 2 * SECOND_US
"""A job that was claimed longer ago is taken to have started when it was claimed."""


class _View(NamedTuple):
    """What all estimates of a round are made from. chance: returns a number in [0, 1)."""

    queues: Queues
    workers: Sequence[Presence]
    times: RunTimes
    chance: Callable[[], float]


def check_forecasts(queues: Queues, after: str | None, chance: Callable[[], float]) -> StepResult:
    """Check the estimates of some queues, and make new ones."""
    engine = queues.engine
    workers = live_workers(engine)
    served = {name for worker in workers for name in worker.queues}
    names = engine.catalog.names_after(after, QUEUES_A_STEP)
    is_last = len(names) < QUEUES_A_STEP
    puts: list[Put] = []
    view = None
    for name in sorted(served.intersection(names)):
        with suppress(StoreCorrupt):  # `dueline doctor` names it
            if engine.catalog.settings(name).is_paused:
                continue
            view = view or _View(queues, workers, run_times(engine.store), chance)
            before = checks_of(engine, name)
            checks = _checked(view, name, before)
            if checks != before:
                expires_us = engine.time.latest_us() + KEEP_US
                value, version = encode(checks), engine.ids.token()
                puts.append(notes.put(KIND, name, value, version, expires_us=expires_us))
    return StepResult(len(puts), None if is_last else names[-1], puts)


def task_of(queues: Queues, chance: Callable[[], float]) -> MaintenanceTask:
    """Return the maintenance task that checks forecasts.

    Args:
      chance: Returns a number in [0, 1), which chooses the jobs.
    """
    return MaintenanceTask(
        "foresee", EVERY_US, lambda _, after: check_forecasts(queues, after, chance)
    )


def _checked(view: _View, name: str, before: Checks) -> Checks:
    errors: dict[str, list[Error]] = {kind: list(known) for kind, known in before.errors.items()}
    still: list[Probe] = []
    for probe in before.open:
        start_us = _start_us(view.queues, name, probe)
        if start_us is None:
            still.append(probe)
        elif start_us:
            error = Error(probe.wait_us, error_of(probe.wait_us, start_us - probe.base_us))
            errors[probe.kind] = [*errors.get(probe.kind, ()), error][-CHECKED_MAX:]
    return Checks([*still, *_new_probes(view, name)][-OPEN_MAX:], errors)


def _start_us(queues: Queues, name: str, probe: Probe) -> int | None:
    """Return when the job of an estimate started; None: not yet; 0: nobody knows."""
    engine, job_id = queues.engine, JobId(bytes.fromhex(probe.job))
    try:
        job = queues.find(job_id)
    except NotFound:
        return _in_history(engine, name, probe, probe.made_us, engine.time.latest_us())
    row = job.row
    if row is None:
        assert job.outcome is not None
        ended_us = job.outcome.ended_us
        return _in_history(engine, name, probe, ended_us, ended_us + LATE_US)
    if row.state == State.DEAD or row.fence > probe.fence + 1:
        return 0
    if row.fence == probe.fence:
        return 0 if row.at_us > probe.base_us else None
    if not row.is_claimed():
        return 0
    now_us = engine.time.latest_us()
    start_us = max(row.claimed_us, row.due_us if row.fence == 1 else 0)
    return start_us if start_us < now_us - _SETTLED_US else None


def _in_history(engine: Engine, name: str, probe: Probe, since_us: int, until_us: int) -> int:
    shards = engine.catalog.settings(name).shards_read
    past = attempts(engine.store, name, shards, since_us=since_us - 1, until_us=until_us)
    for attempt in islice(past, _HISTORY_MAX):
        if attempt.job == probe.job:
            return attempt.started_us if attempt.fence == probe.fence + 1 else 0
    return 0


def _new_probes(view: _View, name: str) -> list[Probe]:
    """Estimate when some ready and scheduled jobs start, at places that are chosen at random."""
    engine, chance = view.queues.engine, view.chance
    lanes = _lanes_soon_due(engine, name)
    probes: dict[JobId, Probe] = {}
    for is_later, is_near_head in CHOICES if lanes else ():
        lane = lanes[int(chance() * len(lanes))]
        now_us = engine.time.latest_us()
        job = _chosen(engine, lane, now_us, chance, is_later=is_later, is_near_head=is_near_head)
        if job is None or job.id in probes or job.outcome or job.is_claimed():
            continue
        estimate = estimate_of(
            engine, job, now_us, workers=view.workers, times=view.times, most=ROWS_MAX
        )
        if not isinstance(estimate, str):
            probes[job.id] = Probe(
                job.id.hex(), job.fence, now_us, estimate.base_us, estimate.wait_us, estimate.kind
            )
    return list(probes.values())


def _lanes_soon_due(engine: Engine, name: str) -> Sequence[Lane]:
    """Return lanes that may hold jobs whose start is estimated.

    Beside functions that sleep for long, a round costs what it costs beside an empty queue.
    """
    now_us = engine.time.latest_us()
    until_us = now_us + AHEAD_US
    pages = engine.begins_of(name, now_us=now_us, until_us=until_us)
    lanes = (lane for begins in pages for lane, begin_us in begins.items() if begin_us <= until_us)
    return list(islice(dict.fromkeys(lanes), _LANES_MAX))


def _chosen(
    engine: Engine,
    lane: Lane,
    now_us: int,
    chance: Callable[[], float],
    *,
    is_later: bool,
    is_near_head: bool,
) -> Job | None:
    """Choose a ready or a scheduled job of a lane; None if it has none.

    Each is as likely as any other, or those near the head are likelier: otherwise short waits would
    hardly be known in a long lane.
    """

    def read(skip: int, limit: int) -> Sequence[Job]:
        return engine.store.scan(
            lane,
            after=(now_us, _LAST_ID) if is_later else None,
            until_us=now_us + AHEAD_US if is_later else now_us,
            limit=limit,
            skip=skip,
        ).jobs

    first = read(0, FEW)
    if len(first) < FEW:
        return first[int(chance() * len(first))] if first else None
    skip = round(ROWS_MAX ** chance()) - 1 if is_near_head else int(chance() * ROWS_MAX)
    while skip >= FEW:  # a place past the end is chosen again, below it
        jobs = read(skip, 1)
        if jobs:
            return jobs[0]
        skip = int(chance() * skip)
    return first[skip]
