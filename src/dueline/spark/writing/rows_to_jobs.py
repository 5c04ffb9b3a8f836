"""Conversion of rows to jobs.

Job ids come from the data, never from randomness: a task that Spark repeats and a batch that it
replays must produce the same jobs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import repeat
from typing import Any, Final, NamedTuple, cast

import msgspec
import pyarrow as pa

from dueline.core.codec import JSON, PAYLOAD_BYTES_MAX, encode
from dueline.core.errors import BadInput
from dueline.core.ids import derived_each
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane, bucket_of
from dueline.core.queue_settings import QueueSettings, shard_of
from dueline.core.tuples import field, made
from dueline.core.validation import check_call, check_due
from dueline.spark.writing.keys import GIVEN, UUID_DIGITS, key_in, uuid_of
from dueline.tasks.payload_codecs import OWN_MAX

COLUMNS: Final = (
    "queue", "task", "payload", "codec", "due", "priority", "tenant", "job_id", "dedupe_key",
)  # fmt: skip
INSTANT: Final = pa.timestamp("us", "UTC")

_UNCLAIMED: Final = tuple(Job._field_defaults.values())
"""Initial values of the fields that claims and outcomes change."""

_LISTS: Final = msgspec.json.Decoder(list[Any])


class _Named(msgspec.Struct, forbid_unknown_fields=True):
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


_NAMED: Final = msgspec.json.Decoder(_Named)
_CALLS: Final = msgspec.json.Decoder(list[Any] | _Named)


class Form(NamedTuple):
    """Defaults for missing columns; `id_columns` are the columns that identify a job."""

    queue: str = ""
    task: str = ""
    id_columns: Sequence[str] = ()


class NewJob(NamedTuple):
    """A job before it is enqueued: all fields that do not depend on the time of the write."""

    id: JobId
    queue: str
    task: str
    codec: int
    body: bytes
    due_us: int | None
    priority: int
    tenant: str


_id_of = field(NewJob, "id")

NEW_JOBS: Final = pa.schema([
    ("id", pa.binary()), ("queue", pa.string()), ("task", pa.string()), ("codec", pa.int64()),
    ("body", pa.binary()), ("due_us", pa.int64()), ("priority", pa.int64()),
    ("tenant", pa.string()),
])  # fmt: skip
"""The fields of a `NewJob`, in order."""


def check_columns(names: Sequence[str], form: Form) -> None:
    """Check that jobs can be made of the columns.

    Raises:
        BadInput: A column is missing or unknown.
    """
    for name in names:
        if name not in COLUMNS and name not in form.id_columns:
            near = get_close_matches(name, COLUMNS, n=1)
            raise BadInput(
                f"A job has no column {name!r}.",
                hint=f"Did you mean {near[0]}?" if near else f"Use {', '.join(COLUMNS)}.",
            )
    for name in form.id_columns:
        if name not in names:
            raise BadInput(f"idColumns names {name!r}, but the data has no such column.")
    given = {"queue": form.queue, "task": form.task}
    for name in ("queue", "task"):
        if name not in names and not given[name]:
            raise BadInput(f"The data has no column {name}.", hint=f'Set .option("{name}", ...).')
    if "payload" not in names:
        raise BadInput("The data has no column payload.", hint="Add a JSON list of the arguments.")
    if not form.id_columns and not {"job_id", "dedupe_key"} & set(names):
        raise BadInput(
            "No column identifies a job, so a task that Spark repeats would add its jobs twice.",
            hint="Add a column job_id or dedupe_key, or set .option('idColumns', 'order,day').",
        )


def new_jobs(batch: pa.RecordBatch, form: Form, *, now_us: int) -> list[NewJob]:
    """Convert a batch to new jobs, each validated.

    Raises:
        BadInput: A row cannot become a job.
    """

    def column(name: str, kind: pa.DataType, default: object) -> Sequence[Any]:
        if name not in batch.schema.names:
            return [default] * batch.num_rows
        values = batch.column(name).cast(kind)
        if kind == INSTANT:
            values = values.cast(pa.int64())
        if default is not None and values.null_count:
            values = values.fill_null(default)
        return cast("list[Any]", values.to_pylist())

    queues = column("queue", pa.string(), form.queue)
    tasks = column("task", pa.string(), form.task)
    bodies = column("payload", pa.binary(), None)
    codecs = column("codec", pa.int64(), JSON)
    dues = column("due", INSTANT, None)
    priorities = column("priority", pa.int64(), 0)
    tenants = column("tenant", pa.string(), "")
    _check_cells(set(zip(queues, priorities, tenants, strict=True)), set(dues), now_us=now_us)
    if not all(tasks):
        raise BadInput("A row has no task.", hint="Fill the column task.")
    _check_bodies(codecs, bodies, tasks)
    given = column("job_id", pa.string(), None)
    keys = column("dedupe_key", pa.string(), None)
    data = [batch.column(name).to_pylist() for name in form.id_columns]
    named = zip(*data, strict=True) if data else repeat((), batch.num_rows)
    ids = _ids(given, map(_cause, queues, given, keys, named))
    cells = zip(ids, queues, tasks, codecs, bodies, dues, priorities, tenants, strict=True)
    return made(NewJob, cells)


def in_order(some: Iterable[NewJob]) -> list[NewJob]:
    """Sort new jobs in the order of the store's rows, which makes lookups and inserts faster."""
    return sorted(some, key=_id_of)


def to_arrow(some: Sequence[NewJob]) -> pa.RecordBatch:
    """Convert new jobs to a batch with a column for each field."""
    columns = zip(*some, strict=True) if some else [()] * len(NEW_JOBS)
    arrays = [
        pa.array(list(cells), kind.type) for cells, kind in zip(columns, NEW_JOBS, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=NEW_JOBS)


def from_arrow(batch: pa.RecordBatch) -> list[NewJob]:
    """Convert a batch back to new jobs."""
    return made(NewJob, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _check_cells(
    kinds: Iterable[tuple[str, int, str]], dues: Iterable[int | None], *, now_us: int
) -> None:
    """Validate each distinct combination once: millions of rows often have only a few."""
    for queue, priority, tenant in kinds:
        check_call(queue, None, priority, tenant, now_us=now_us)
    for due_us in dues:
        if due_us is not None:
            check_due(due_us, now_us=now_us)


def chunks_of(
    batches: Iterable[pa.RecordBatch], form: Form, most: int, now_us: int
) -> Iterator[list[NewJob]]:
    """Yield new jobs of all rows, about `most` at a time."""
    some: list[NewJob] = []
    for batch in batches:
        for place in range(0, batch.num_rows, most):
            some += new_jobs(batch.slice(place, most), form, now_us=now_us)
            if len(some) >= most:
                yield some
                some = []
    if some:
        yield some


def jobs_of(
    some: Sequence[NewJob], *, now_us: int, settings: Callable[[str], QueueSettings]
) -> list[Job]:
    """Return jobs with the keys of a job that is enqueued at `now_us`.

    Returns:
        Jobs in the order of lanes, and within a lane in the order of rows.
    """
    if not some:
        return []
    ids, names, tasks, codecs, bodies, asked, priorities, tenants = zip(*some, strict=True)
    dues = [now_us if due_us is None else due_us for due_us in asked]
    starts = list(map(max, dues, repeat(now_us)))
    shards, buckets = _cut(names, ids, starts, settings)
    lanes = _Lanes()
    of_each = map(lanes.__getitem__, zip(names, shards, buckets, priorities, tenants, strict=True))
    cells = (
        of_each, starts, ids, repeat(0), dues, repeat(now_us), tasks, codecs, bodies, repeat(b""),
        starts, *map(repeat, _UNCLAIMED),
    )  # fmt: skip
    return made(Job, sorted(zip(*cells, strict=False)))


class _Lanes(dict[tuple[Any, ...], Lane]):
    """Lanes by their fields, one object each."""

    def __missing__(self, key: tuple[Any, ...]) -> Lane:
        lane = self[key] = Lane(*key)
        return lane


def _cut(
    names: Sequence[str],
    ids: Sequence[JobId],
    starts: Sequence[int],
    settings: Callable[[str], QueueSettings],
) -> tuple[Iterable[int], Iterable[int]]:
    """Return the shard and the bucket of each job."""
    known = {name: settings(name) for name in set(names)}
    counts = {name: queue.shards for name, queue in known.items()}
    widths = {name: queue.width_us for name, queue in known.items()}
    shards: Iterable[int] = [0] * len(ids)
    if max(counts.values()) > 1:
        shards = map(shard_of, ids, map(counts.__getitem__, names))
    return shards, map(bucket_of, starts, map(widths.__getitem__, names))


def _ids(given: Sequence[str | None], causes: Iterable[bytes]) -> list[JobId]:
    """Return the ids of rows: hashes, or the UUID in `job_id`."""
    ids = derived_each(causes)
    for place, text in enumerate(given):
        if text is not None and len(text) >= UUID_DIGITS:
            ids[place] = uuid_of(text) or ids[place]
    return ids


def _cause(queue: str, given: str | None, key: str | None, data: Sequence[Any]) -> bytes:
    if given is not None:
        return GIVEN + given.encode()
    if key is not None:
        return key_in(queue) + key.encode()
    if any(value is not None for value in data):
        return f"spark\0idColumns\0{queue}\0".encode() + encode(data)
    raise BadInput(
        "A row has no value that identifies its job.",
        hint="Fill job_id, dedupe_key, or one of the idColumns in each row.",
    )


def _check_bodies(
    codecs: Sequence[int], bodies: Sequence[bytes | None], tasks: Sequence[str]
) -> None:
    """Validate payloads: all at once first, then one by one to find the invalid one."""
    if set(codecs) == {JSON} and None not in bodies:
        read = cast("Sequence[bytes]", bodies)
        with suppress(msgspec.DecodeError, RecursionError):
            if max(map(len, read)) <= PAYLOAD_BYTES_MAX:
                for _ in map(_CALLS.decode, read):
                    pass
                return
    for codec, body, task in zip(codecs, bodies, tasks, strict=True):
        _check_body(codec, body, task)


def _check_body(codec: int, body: bytes | None, task: str) -> None:
    if body is None:
        raise BadInput(f"A row for {task} has no payload.", hint="Use [] for no arguments.")
    if len(body) > PAYLOAD_BYTES_MAX:
        raise BadInput(
            f"A payload for {task} has {len(body)} bytes; at most {PAYLOAD_BYTES_MAX} are allowed."
        )
    if not 0 <= codec <= OWN_MAX:
        raise BadInput(
            f"A payload for {task} has the unknown codec {codec}.",
            hint=f"Use 0 for JSON, or the number of the codec that wrote it, up to {OWN_MAX}.",
        )
    if codec != JSON:  # its codec may be unknown here
        return
    try:
        (_LISTS if body.lstrip()[:1] == b"[" else _NAMED).decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(
            f"A payload for {task} is not a call: {error}.",
            hint='Use [1, "two"] or {"args": [1], "kwargs": {"to": "two"}}.',
        ) from error
