"""Signals, as callers send them: by the code of the function, or as JSON without it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from dueline.core.blobs import BY_ADDRESS
from dueline.core.call_options import durable_place
from dueline.core.codec import JSON, OWN_MIN
from dueline.core.errors import BadInput, NotFound
from dueline.core.job import Job, JobId
from dueline.durable.names import check_name
from dueline.durable.signals import Sent, send
from dueline.durable.values import ValueHandler
from dueline.jobs.queue import Queues
from dueline.tasks.handler import Handler


class Sending(NamedTuple):
    """A signal as a caller sends it. id: of the signal; None for a random one."""

    name: str
    value: Any
    id: str | None = None


def send_signal(queues: Queues, tasks: Mapping[str, Handler], job_id: JobId, sent: Sending) -> None:
    """Send a signal; see `Job.signal`."""
    row, signal_id = _signalled(queues, job_id, sent)
    handler = tasks.get(row.task)
    if not isinstance(handler, ValueHandler):
        raise NotFound(
            f"This application has no durable function {row.task}.",
            hint="Import the module that declares it: its codec encodes the value.",
        )
    _send(queues, row, handler, sent._replace(id=signal_id))


def send_json(
    queues: Queues, job_id: JobId, sent: Sending, tasks: Mapping[str, Handler] | None = None
) -> None:
    """Send a signal with a JSON value.

    Args:
      queues: The queues.
      job_id: The function.
      sent: The signal; its value is JSON, as bytes.
      tasks: Tasks of which one may be the function; its code encodes the value then.

    Raises:
      NotFound: There is no such function.
      Conflict: It has ended, or has too many unread signals.
      BadInput: The function's values have a codec of its application, which has no such task.
    """
    row, signal_id = _signalled(queues, job_id, sent)
    sent = sent._replace(id=signal_id)
    handler = (tasks or {}).get(row.task)
    if isinstance(handler, ValueHandler):
        _send(queues, row, handler, sent._replace(value=msgspec.json.decode(sent.value)))
    elif row.codec < OWN_MIN and row.codec != BY_ADDRESS:  # a blob may be encrypted
        queues.note([row], f"sent the signal {sent.name}")
        send(queues.engine, job_id, Sent(sent.name, signal_id, JSON, sent.value))
    else:
        call = f"app.job({job_id.hex()!r}).signal({sent.name!r}, ...)"
        raise BadInput(
            f"The values of {row.task} have a codec of its application, such as encryption, or may "
            "have one.",
            hint=f"Send the signal by its code: {call}.",
        )


def _send(queues: Queues, row: Job, handler: ValueHandler, sent: Sending) -> None:
    """Encode the value of a signal as the function does, and send it."""
    stored = handler.write_value(sent.value, f"the signal {sent.name}")
    queues.note([row], f"sent the signal {sent.name}")
    send(queues.engine, row.id, Sent(sent.name, sent.id or "", stored.codec, stored.data))


def _signalled(queues: Queues, job_id: JobId, sent: Sending) -> tuple[Job, str]:
    """Return the row of the function that is signalled, and the id of the signal."""
    check_name(sent.name, "signal")
    if sent.id is None:
        signal_id = queues.engine.ids.token().hex()
    else:
        signal_id = check_name(sent.id, "signal id")
    row = queues.find(job_id).row
    if row is None or durable_place(row) is None:
        raise NotFound(
            f"There is no durable function {job_id.hex()} that can be signalled.",
            hint="It may have ended, or be a job of another kind.",
        )
    return row, signal_id
