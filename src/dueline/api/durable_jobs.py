"""What handles show of durable functions, and signals to them."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from dueline.core.attempt import DurablePlace
from dueline.core.call_options import durable_place
from dueline.core.clock import to_datetime
from dueline.core.codec import JSON
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, NotFound
from dueline.core.job import Job, JobId
from dueline.core.pagination import record_at
from dueline.durable.log import entries_of, is_position, shown
from dueline.durable.names import STATE, check_name
from dueline.durable.signals import Sent, send
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


class Sending(NamedTuple):
    """A signal as a caller sends it."""

    name: str
    value: object
    id: str | None


def send_signal(queues: Queues, tasks: Mapping[str, Handler], job_id: JobId, sent: Sending) -> None:
    """Send a signal; see `Job.signal`."""
    row, signal_id = _signalled(queues, job_id, sent.name, sent.id)
    handler = tasks.get(row.task)
    if not isinstance(handler, ValueHandler):
        raise NotFound(
            f"This application has no durable function {row.task}.",
            hint="Import the module that declares it: its codec encodes the value.",
        )
    stored = handler.write_value(sent.value, f"the signal {sent.name}")
    send(queues.engine, row.id, Sent(sent.name, signal_id, stored.codec, stored.data))


def send_plain(
    queues: Queues, job_id: JobId, name: str, value: bytes, *, signal_id: str | None = None
) -> None:
    """Send a signal with a JSON value, without the code of the function.

    Args:
      signal_id: Id of the signal; None for a random one.

    Raises:
      NotFound: There is no such function.
      Conflict: It has ended, or has too many unread signals.
      BadInput: The function's values have a codec of its application.
    """
    row, signal_id = _signalled(queues, job_id, name, signal_id)
    if row.codec != JSON:
        raise BadInput(
            f"The values of {row.task} have a codec of its application, such as encryption.",
            hint=f"Send the signal by its code: app.job({job_id.hex()!r}).signal({name!r}, ...).",
        )
    send(queues.engine, job_id, Sent(name, signal_id, JSON, value))


def _signalled(queues: Queues, job_id: JobId, name: str, given: str | None) -> tuple[Job, str]:
    """Return the row of the function that is signalled, and the id of the signal."""
    check_name(name, "signal")
    signal_id = queues.engine.ids.token().hex() if given is None else check_name(given, "signal id")
    row = queues.find(job_id).row
    if row is None or durable_place(row) is None:
        raise NotFound(
            f"There is no durable function {job_id.hex()} that can be signalled.",
            hint="It may have ended, or be a job of another kind.",
        )
    return row, signal_id


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
    found = []
    for key, (head, _) in entries_of(records, job_id, place or DurablePlace()).items():
        if is_position(key):
            at = to_datetime(head.at_us)
            found.append(DurableStep(shown(key), head.kind, head.name, head.state, at))
    return found


def versions(engine: Engine) -> Mapping[str, Mapping[str, int]]:
    """Count the unfinished durable functions by task and version."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for queue in engine.catalog.names():
        for row in engine.jobs_of(queue):
            place = durable_place(row)
            if place is not None and not row.outcome:
                counts[row.task][place.version] += 1
    return counts
