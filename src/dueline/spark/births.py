"""From rows of data to jobs.

An id comes from the data, never from chance: a task that Spark runs again, and a batch that it
replays, must come to the same jobs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
import pyarrow as pa

from dueline.codec import JSON, PAYLOAD_BYTES_MAX, encode
from dueline.errors import BadInput
from dueline.ids import derived
from dueline.job import Job, JobId
from dueline.lane import Lane, bucket_of
from dueline.limits import check_call
from dueline.payloads import OWN_MAX
from dueline.settings import QueueSettings, shard_of

COLUMNS: Final = (
    "queue", "task", "payload", "codec", "due", "priority", "tenant", "job_id", "dedupe_key",
)  # fmt: skip
INSTANT: Final = pa.timestamp("us", "UTC")

_LISTS: Final = msgspec.json.Decoder(list[Any])


class _Named(msgspec.Struct, forbid_unknown_fields=True):
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


_NAMED: Final = msgspec.json.Decoder(_Named)


class Form(NamedTuple):
    """What the columns leave open. id_columns: which of the data name a job."""

    queue: str = ""
    task: str = ""
    id_columns: Sequence[str] = ()


class Birth(NamedTuple):
    """A job that is not born yet: all that does not depend on when it is sent."""

    id: JobId
    queue: str
    task: str
    codec: int
    body: bytes
    due_us: int | None
    priority: int
    tenant: str


def check_columns(names: Sequence[str], form: Form) -> None:
    """Let columns pass of which jobs can be made, or say what is missing, or too much.

    Raises: BadInput.
    """
    for name in names:
        if name not in COLUMNS and name not in form.id_columns:
            near = get_close_matches(name, COLUMNS, n=1)
            raise BadInput(
                f"A job has no column {name!r}.",
                hint=f"Did you mean {near[0]}?" if near else f"There is {', '.join(COLUMNS)}.",
            )
    for name in form.id_columns:
        if name not in names:
            raise BadInput(f"idColumns names {name!r}, and the data has no such column.")
    given = {"queue": form.queue, "task": form.task}
    for name in ("queue", "task"):
        if name not in names and not given[name]:
            raise BadInput(f"The data has no column {name}.", hint=f'Say .option("{name}", ...).')
    if "payload" not in names:
        raise BadInput("The data has no column payload.", hint="A JSON list of the arguments.")
    if not form.id_columns and not {"job_id", "dedupe_key"} & set(names):
        raise BadInput(
            "Nothing in the data names a job, so a task that Spark runs again would double them.",
            hint="Give a column job_id or dedupe_key, or .option('idColumns', 'order,day').",
        )


def births(batch: pa.RecordBatch, form: Form, *, now_us: int) -> list[Birth]:
    """Make births of a batch, each checked.

    Raises: BadInput: a row of which no job can be made.
    """
    size = batch.num_rows
    names = batch.schema.names

    def column(name: str, kind: pa.DataType, default: object) -> Sequence[Any]:
        if name not in names:
            return [default] * size
        values = batch.column(name).cast(kind)
        if kind == INSTANT:
            values = values.cast(pa.int64())
        return [default if value is None else value for value in values.to_pylist()]

    queues = column("queue", pa.string(), form.queue)
    tasks = column("task", pa.string(), form.task)
    bodies = column("payload", pa.binary(), None)
    codecs = column("codec", pa.int64(), JSON)
    dues = column("due", INSTANT, None)
    priorities = column("priority", pa.int64(), 0)
    tenants = column("tenant", pa.string(), "")
    given = column("job_id", pa.string(), None)
    keys = column("dedupe_key", pa.string(), None)
    data = [batch.column(name).to_pylist() for name in form.id_columns]
    found = []
    for place in range(size):
        queue, task, body = queues[place], tasks[place], bodies[place]
        check_call(queue, dues[place], priorities[place], tenants[place], now_us=now_us)
        if not task:
            raise BadInput("A row names no task.", hint="Fill the column task.")
        _check_body(codecs[place], body, task)
        job_id = _id(queue, given[place], keys[place], [values[place] for values in data])
        rest = (dues[place], priorities[place], tenants[place])
        found.append(Birth(job_id, queue, task, codecs[place], body, *rest))
    return found


def chunks_of(
    batches: Iterable[pa.RecordBatch], form: Form, most: int, now_us: int
) -> Iterator[list[Birth]]:
    """Make births of all rows, about `most` at a time."""
    some: list[Birth] = []
    for batch in batches:
        for place in range(0, batch.num_rows, most):
            some += births(batch.slice(place, most), form, now_us=now_us)
            if len(some) >= most:
                yield some
                some = []
    if some:
        yield some


def jobs_of(
    some: Sequence[Birth], *, now_us: int, settings: Callable[[str], QueueSettings]
) -> list[Job]:
    """Give births the keys that they have when they are sent first at `now_us`."""
    known: dict[str, QueueSettings] = {}
    jobs = []
    for one in some:
        if one.queue not in known:
            known[one.queue] = settings(one.queue)
        queue = known[one.queue]
        due_us = now_us if one.due_us is None else one.due_us
        pos_us = max(due_us, now_us)
        shard = shard_of(one.id, queue.shards)
        lane = Lane(one.queue, shard, bucket_of(pos_us, queue.width_us), one.priority, one.tenant)
        jobs.append(
            Job(lane, pos_us, one.id, 0, due_us, now_us, one.task, one.codec, one.body, b"", pos_us)
        )
    return sorted(jobs, key=lambda job: job.lane)


def _id(queue: str, given: str | None, key: str | None, data: Sequence[Any]) -> JobId:
    if given is not None:
        try:
            return JobId(UUID(given).bytes)
        except ValueError:
            return _named("job_id", given)
    if key is not None:
        return _named("dedupe_key", queue, key)
    if data and any(value is not None for value in data):
        return _named("idColumns", queue, encode(data).decode())
    raise BadInput(
        "A row has nothing that names its job.",
        hint="Fill job_id, dedupe_key, or one of the idColumns in each row.",
    )


def _named(*parts: str) -> JobId:
    return JobId(derived(b"\0".join(part.encode() for part in ("spark", *parts)), 0))


def _check_body(codec: int, body: bytes | None, task: str) -> None:
    if body is None:
        raise BadInput(f"A row for {task} has no payload.", hint="Write [] for no arguments.")
    if len(body) > PAYLOAD_BYTES_MAX:
        raise BadInput(
            f"A payload for {task} has {len(body)} bytes; {PAYLOAD_BYTES_MAX} are allowed."
        )
    if not 0 <= codec <= OWN_MAX:
        raise BadInput(
            f"A payload for {task} is in the codec {codec}.",
            hint=f"Use 0 for JSON, or the number of the codec that wrote it, up to {OWN_MAX}.",
        )
    if codec != JSON:  # as its codec wrote it, which need not be known here
        return
    try:
        (_LISTS if body.lstrip()[:1] == b"[" else _NAMED).decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(
            f"A payload for {task} is no call: {error}.",
            hint='Write [1, "two"], or {"args": [1], "kwargs": {"to": "two"}}.',
        ) from error
