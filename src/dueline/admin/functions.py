"""Durable functions as people read them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from dueline.admin.job_views import JobDetails, details_of
from dueline.core.call_options import durable_place
from dueline.core.engine import Engine
from dueline.core.errors import NotFound
from dueline.core.ids import created_us
from dueline.core.job import Job, JobId
from dueline.core.job_status import status_of
from dueline.core.pagination import parts_of
from dueline.durable.stopped import stop_of, stopped_in
from dueline.jobs import function_list, results
from dueline.jobs.dependencies import awaiting
from dueline.jobs.parked_functions import has_ended, is_parked
from dueline.jobs.queue import Queues

SLEEPING: Final = "sleeping"
WAITING: Final = "waiting"
STOPPED: Final = "stopped"

READ_MAX: Final = 10_000
"""Maximum number of functions that a list reads."""

_PAGE: Final = 200


@dataclass(frozen=True, slots=True)
class FunctionSummary:
    """A durable function in a list.

    Attributes:
      task: Name of its task.
      state: Of its job; "sleeping" or "waiting" while it does, "stopped" if no worker can continue
        it.
      records: Number of its records, as of its last wait; 0 after its end.
    """

    id: JobId
    task: str
    state: str
    records: int = 0

    @property
    def started_us(self) -> int:
        """When it was enqueued."""
        return created_us(self.id)


def list_functions(
    engine: Engine, *, state: str | None = None, name: str | None = None
) -> Iterator[FunctionSummary]:
    """Yield the durable functions that have begun, the newest first; of 10,000 at most.

    Those that have ended are yielded while their results are kept.

    Args:
      state: Only those in this state.
      name: Only those of this task.
    """
    if state == STOPPED:
        yield from _stopped(engine, name)
        return
    for tasks in _listed(engine, name):
        for summary in _summaries(engine, tasks):
            if state in (None, summary.state):
                yield summary


def living_functions(engine: Engine) -> Iterator[FunctionSummary]:
    """Yield the durable functions that have begun and not ended, of the newest 10,000."""
    now_us = engine.time.latest_us()
    for tasks in _listed(engine, None):
        for row in engine.store.find(list(tasks)):
            if row is not None and not has_ended(row):
                yield _of_row(row, now_us)


def _listed(engine: Engine, name: str | None) -> Iterator[dict[JobId, str]]:
    """Yield pages of functions that have begun, with their tasks, each function once."""
    listed = (each for each in function_list.listed(engine.store) if name in (None, each[1]))
    seen: set[JobId] = set()
    for page in parts_of(islice(listed, READ_MAX), _PAGE):
        new = {job_id: task for job_id, task in page if job_id not in seen}
        seen.update(new)
        yield new


def _stopped(engine: Engine, name: str | None) -> Iterator[FunctionSummary]:
    rows = [row for queue in engine.catalog.names() for row, _ in stopped_in(engine, queue)]
    for row in sorted(rows, key=lambda row: row.id, reverse=True):
        if name in (None, row.task):
            yield _of_row(row, 0)


def _summaries(engine: Engine, tasks: dict[JobId, str]) -> Iterator[FunctionSummary]:
    """Yield functions by the ids of their jobs; without those of which nothing is kept."""
    now_us = engine.time.latest_us()
    rows = dict(zip(tasks, engine.store.find(list(tasks)), strict=True))
    ended = [job_id for job_id, row in rows.items() if row is None]
    outcomes = results.read_many(engine.store, ended) if ended else {}
    for job_id, row in rows.items():
        if row is not None:
            yield _of_row(row, now_us)
        elif job_id in outcomes:
            yield FunctionSummary(job_id, tasks[job_id], outcomes[job_id].state)


def _of_row(row: Job, now_us: int) -> FunctionSummary:
    place = durable_place(row)
    state = status_of(row, now_us)
    if stop_of(row) is not None:
        state = STOPPED
    elif state == "scheduled" and is_parked(row) and place is not None and place.sleeps:
        state = SLEEPING
    elif state == "scheduled" and (is_parked(row) or awaiting(row) is not None):
        state = WAITING
    return FunctionSummary(row.id, row.task, state, 0 if place is None else place.length)


def function_of(queues: Queues, job_id: JobId) -> JobDetails:
    """Return a durable function.

    Raises:
      NotFound: No job has this id, or it is of another kind.
    """
    details = details_of(queues, job_id)
    if details.function is None:
        raise NotFound(
            f"The job {job_id.hex()} is no workflow and no durable function.",
            hint=f"See `dueline jobs show {job_id.hex()}`.",
        )
    return details
