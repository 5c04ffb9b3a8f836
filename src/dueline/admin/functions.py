"""Durable functions as people read them."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import msgspec

from dueline.admin.job_views import JobDetails, details_of
from dueline.core.call_options import durable_place
from dueline.core.codec import OWN_MIN
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, NotFound, StoreCorrupt
from dueline.core.ids import created_us
from dueline.core.job import Job, JobId
from dueline.core.job_status import status_of
from dueline.core.pagination import at_once, parts_of, record_at
from dueline.durable.names import STATE
from dueline.durable.stopped import stop_of, stopped_in
from dueline.durable.values import StoredValue
from dueline.durable.views import RecordedCall, open_calls_of
from dueline.durable.windows import Window
from dueline.jobs import function_list, results
from dueline.jobs.dependencies import awaiting
from dueline.jobs.function_list import inbox_of
from dueline.jobs.parked_functions import has_ended, is_parked
from dueline.jobs.queue import Queues
from dueline.tasks.payload_codecs import as_json

SLEEPING: Final = "sleeping"
WAITING: Final = "waiting"
STOPPED: Final = "stopped"

STATES: Final = (
    "running", SLEEPING, WAITING, STOPPED, "ready", "scheduled", "retrying", "done", "dead",
    "cancelled", "expired", "lost",
)  # fmt: skip
"""States in which functions are listed."""

READ_MAX: Final = 10_000
"""Maximum number of functions that a list reads."""

PAGE_READ_MAX: Final = 1_000
"""Maximum number of functions that one page of a search reads."""

_PAGE: Final = 200
_CALLS_READ: Final = 20
"""Number of calls at the end of a log among which a list finds what a function waits for."""


@dataclass(frozen=True, slots=True)
class FunctionSummary:
    """A durable function in a list.

    Attributes:
      task: Name of its task.
      state: Of its job; "sleeping" or "waiting" while it does, "stopped" if no worker can continue
        it.
      records: Number of its records, as of its last wait; 0 after its end.
      awaited: What it waits for, in pages only; None if it does not wait, or that is not known.
    """

    id: JobId
    task: str
    state: str
    records: int = 0
    awaited: RecordedCall | None = None

    @property
    def started_us(self) -> int:
        """When it was enqueued."""
        return created_us(self.id)


@dataclass(frozen=True, slots=True)
class FunctionPage:
    """A page of functions; pass `next` as `after` to read on, None at the end."""

    functions: Sequence[FunctionSummary]
    next: int | None


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


def check_state(state: str | None, known: Sequence[str]) -> None:
    """Check that there is a state.

    Raises:
      BadInput: It is not among those that are known.
    """
    if state not in (None, *known):
        raise BadInput(f"{state!r:.80} is not a state.", hint=f"Use one of {', '.join(known)}.")


def function_page(
    engine: Engine, *, limit: int = 50, after: int = 0, state: str | None = None, name: str = ""
) -> FunctionPage:
    """Return durable functions that have begun, the newest first, with what they wait for.

    Args:
      engine: The engine.
      limit: Maximum number of functions.
      after: `next` of the page before.
      state: Only those in this state.
      name: Only those of tasks whose names have this part.

    Raises:
      BadInput: No function can be in this state.
    """
    check_state(state, STATES)
    if state == STOPPED:
        stopped = (each for each in _stopped(engine, None) if name in each.task)
        functions = list(islice(stopped, after, after + limit + 1))
        return FunctionPage(functions[:limit], after + limit if len(functions) > limit else None)
    listed = islice(function_list.listed(engine.store), after, None)
    shown: list[FunctionSummary] = []
    read = 0
    for part in parts_of(listed, limit):
        if len(shown) == limit or read >= PAGE_READ_MAX:
            return FunctionPage(_with_awaited(engine, shown), after + read)
        named = {job_id: task for job_id, task in part if name in task}
        summaries = {summary.id: summary for summary in _summaries(engine, named)}
        for job_id, _ in part:
            if len(shown) == limit:
                return FunctionPage(_with_awaited(engine, shown), after + read)
            read += 1
            summary = summaries.pop(job_id, None)  # a function may be listed twice
            if summary is not None and state in (None, summary.state):
                shown.append(summary)
    return FunctionPage(_with_awaited(engine, shown), None)


def _with_awaited(engine: Engine, functions: Sequence[FunctionSummary]) -> list[FunctionSummary]:
    """Return functions with what they wait for."""
    waiting = [function.id for function in functions if function.state in (SLEEPING, WAITING)]
    rows = [row for row in engine.store.find(waiting) if row is not None] if waiting else []

    def awaited(row: Job) -> RecordedCall | None:
        with suppress(StoreCorrupt):  # `explain` and `dueline doctor` report that
            return next(reversed(open_calls_of(engine.store, row, _CALLS_READ)), None)
        return None

    calls = dict(zip((row.id for row in rows), at_once(engine.store, awaited, rows), strict=True))
    return [replace(function, awaited=calls.get(function.id)) for function in functions]


def shown_state(details: JobDetails) -> str:
    """Return the state of a durable function, as lists show it."""
    job, view = details.summary, details.function
    awaited = () if view is None else view.open_calls
    if job.state != "scheduled" or job.step_state or not awaited:
        return job.shown_state
    state = awaited[-1].state
    return state if state in (SLEEPING, "retrying") else WAITING


def state_of(engine: Engine, job_id: JobId) -> StoredValue | None:
    """Return what a function set with `ctx.state`, as it is stored; None without that."""
    record = record_at(engine.store, inbox_of(job_id), STATE)
    return None if record is None else StoredValue(record.value[0], record.value[1:])


def readable_value(stored: StoredValue) -> tuple[Any, str]:
    """Return a recorded value as JSON, or why it is not shown.

    Returns: the value, and an empty string; or None, and the reason.
    """
    size = len(stored.data)
    if stored.codec >= OWN_MIN:
        return None, f"{size} bytes, encrypted or in another codec of the application"
    try:
        text = as_json(*stored)
    except BadInput as error:
        return None, f"{size} bytes, not shown: {error.message}"
    try:
        return msgspec.json.decode(text), ""
    except (msgspec.DecodeError, RecursionError):
        return None, f"{size} bytes that are not JSON"


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


def function_of(queues: Queues, job_id: JobId, calls: Window | None = None) -> JobDetails:
    """Return a durable function. calls: which of its calls are read; None for all.

    Raises:
      NotFound: No job has this id, or it is of another kind.
    """
    details = details_of(queues, job_id, calls)
    if details.function is None:
        raise NotFound(
            f"The job {job_id.hex()} is no workflow and no durable function.",
            hint=f"See `dueline jobs show {job_id.hex()}`.",
        )
    return details
