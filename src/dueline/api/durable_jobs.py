"""What handles show of durable functions."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dueline.core.attempt import DurablePlace
from dueline.core.call_options import durable_place
from dueline.core.clock import to_datetime
from dueline.core.engine import Engine
from dueline.core.job import JobId
from dueline.core.pagination import record_at
from dueline.durable.log import entries_of, is_position, shown
from dueline.durable.names import STATE
from dueline.durable.values import ValueHandler
from dueline.durable.views import place_of_ended
from dueline.jobs.function_list import inbox_of
from dueline.jobs.queue import Queues
from dueline.tasks.handler import Handler


@dataclass(frozen=True, slots=True)
class DurableStep:
    """A recorded call of a durable function.

    Attributes:
        position: Such as "3".
        kind: "step", "sleep", "signal" or "cancel"; "call" and "gather" of jobs, and "result" and
            "gathered" of their ends.
        name: Name of the step, signal or task.
        state: "done", "failed", "lost" or "timed_out".
        at: When it was recorded, in UTC.
    """

    position: str
    kind: str
    name: str
    state: str
    at: datetime


def state(queues: Queues, tasks: Mapping[str, Handler], job_id: JobId) -> Any:  # noqa: ANN401
    """Return what a function set as its state; None without that.

    Raises: AttributeError: the job is no durable function, as far as is known.
    """
    row = queues.find(job_id).row
    if row is not None and durable_place(row) is None:
        raise AttributeError("state")  # a method of another queue
    record = record_at(queues.engine.store, inbox_of(job_id), STATE)
    if record is None:
        return None
    stored = record.value[0], record.value[1:]
    if row is not None:
        handler = tasks.get(row.task)
        return handler.read_value(*stored) if isinstance(handler, ValueHandler) else None
    # Nothing names the task of a function that has ended, and its codec may need the name.
    for handler in tasks.values():
        if isinstance(handler, ValueHandler):
            with suppress(Exception):  # of any codec
                return handler.read_value(*stored)
    return None


def steps(queues: Queues, job_id: JobId) -> Sequence[DurableStep]:
    """Return the recorded calls of a function."""
    row = queues.find(job_id).row
    records = queues.engine.store
    place = place_of_ended(records, job_id) if row is None else durable_place(row)
    calls = []
    for key, (head, _) in entries_of(records, job_id, place or DurablePlace()).items():
        if is_position(key):
            at = to_datetime(head.at_us)
            calls.append(DurableStep(shown(key), head.kind, head.name, head.state, at))
    return calls


def versions(engine: Engine) -> Mapping[str, Mapping[str, int]]:
    """Count the unfinished durable functions by task and version."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for queue in engine.catalog.names():
        for row in engine.jobs_of(queue):
            place = durable_place(row)
            if place is not None and not row.outcome:
                counts[row.task][place.version] += 1
    return counts
