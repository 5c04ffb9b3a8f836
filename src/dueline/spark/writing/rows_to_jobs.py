"""Conversion of rows to jobs.

Job ids come from the data, never from randomness: a task that Spark repeats and a batch that it
replays must produce the same jobs.
Hot path: the benchmark `on_spark`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice, repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dueline.core.call_options import CARRIED, CallOptions, Mode, Rule, checked_key, read_options
from dueline.core.clock import SECOND_US
from dueline.core.codec import JSON, OWN_MAX, PAYLOAD_BYTES_MAX, encode
from dueline.core.errors import BadInput
from dueline.core.features import NEEDS
from dueline.core.ids import derived_each
from dueline.core.job import Job, JobId
from dueline.core.lane import NEEDS_MARK, Lane, bucket_of, tenant_with_needs
from dueline.core.option_table import OPTIONS, Shape
from dueline.core.queue_catalog import Catalog
from dueline.core.queue_settings import QueueSettings, shard_of
from dueline.core.tuples import made
from dueline.core.validation import DUE_AHEAD_US_MAX, check_call, check_due, check_options
from dueline.core.worker_needs import text_of
from dueline.jobs.moves import spread_us
from dueline.spark.writing.keys import GIVEN, UUID_DIGITS, key_in, uuid_of

INSTANT: Final = pa.timestamp("us", "UTC")

_SHAPES: Final = {
    "task": Shape.TEXT, "payload": Shape.TEXT, "codec": Shape.NUMBER, "job_id": Shape.TEXT,
    "dedupe_key": Shape.TEXT,
    **{option.column: option.shape for option in OPTIONS if option.column},
}  # fmt: skip
"""What each column holds."""

COLUMNS: Final = tuple(_SHAPES)

_HOLDS: Final = {
    Shape.NUMBER: "integers", Shape.DURATION: "seconds or intervals", Shape.INSTANT: "timestamps",
    Shape.END: "timestamps", Shape.WORDS: "arrays of strings", Shape.PAIRS: "maps of strings",
}  # fmt: skip
"""What a column must hold, if not strings."""

_ARROW: Final = {
    Shape.WORDS: pa.list_(pa.string()), Shape.PAIRS: pa.map_(pa.string(), pa.string()),
}  # fmt: skip

_UNCLAIMED: Final = tuple(Job._field_defaults.values())
"""Initial values of the fields that claims and outcomes change."""

_LISTS: Final = msgspec.json.Decoder(list[Any])


class _Named(msgspec.Struct, forbid_unknown_fields=True):
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


_NAMED: Final = msgspec.json.Decoder(_Named)
_CALLS: Final = msgspec.json.Decoder(list[Any] | _Named)


class Form(NamedTuple):
    """Defaults for missing columns, and what the write does with the columns.

    Attributes:
        id_columns: The columns that identify a job.
        mode: Of unique keys: "existing" or "reject".
        within_us: How long unique keys are held after the call; 0: until the job ends.
    """

    queue: str = ""
    task: str = ""
    id_columns: Sequence[str] = ()
    mode: Mode = "existing"
    within_us: int = 0


class NewJob(NamedTuple):
    """What decides about a row whose job exists already."""

    id: JobId
    queue: str
    due_us: int | None
    priority: int


NEW_JOBS: Final = pa.schema([
    ("id", pa.binary()), ("queue", pa.string()), ("task", pa.string()), ("codec", pa.int64()),
    ("body", pa.binary()), ("due_us", pa.int64()), ("priority", pa.int64()),
    ("tenant", pa.string()), ("opts", pa.binary()), ("window_us", pa.int64()),
])  # fmt: skip
"""Jobs before they are enqueued: all fields that do not depend on the time of the write."""

_MIXED: Final = ("queue", "priority", "tenant")


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


def new_jobs(batch: pa.RecordBatch, form: Form, *, now_us: int) -> pa.RecordBatch:
    """Convert a batch to new jobs, each validated.

    Raises:
        BadInput: A row cannot become a job.
    """
    names = batch.schema.names

    def column(name: str, kind: pa.DataType, default: object = None) -> pa.Array:
        if name not in names:
            return pa.repeat(pa.scalar(default, kind), batch.num_rows)
        values = _cast(batch, name, kind)
        return values if default is None else values.fill_null(default)

    queues = column("queue", pa.string(), form.queue)
    tasks = column("task", pa.string(), form.task)
    priorities = column("priority", pa.int64(), 0)
    tenants = column("tenant", pa.string(), "")
    dues = column("due", INSTANT).cast(pa.int64())
    kinds = pa.table([queues, priorities, tenants], names=_MIXED).group_by(_MIXED).aggregate([])
    for kind in kinds.to_pylist():
        check_call(kind["queue"], None, kind["priority"], kind["tenant"], now_us=now_us)
    for due_us in pc.min_max(dues).as_py().values():
        if due_us is not None:
            check_due(due_us, now_us=now_us)
    if not all(tasks.unique().to_pylist()):
        raise BadInput("A row has no task.", hint="Fill the column task.")
    codecs, bodies = column("codec", pa.int64(), JSON), column("payload", pa.binary())
    _check_bodies(codecs, bodies, tasks)
    windows = _windows(batch) if "jitter" in names else column("", pa.int64(), 0)
    opts = column("", pa.binary(), b"")
    if not {"unique_key", "expires", *CARRIED}.isdisjoint(names):
        keys, ends = column("unique_key", pa.string()), column("expires", INSTANT).cast(pa.int64())
        given = [name for name in CARRIED if name in names]
        carried = [column(name, _ARROW[_SHAPES[name]]) for name in given]
        cells = [each.to_pylist() for each in (keys, ends, dues, windows, *carried)]
        opts = pa.array([_opts(row, given, form) for row in zip(*cells, strict=True)])
        if "needs" in names:
            places = zip(tenants.to_pylist(), opts.to_pylist(), strict=True)
            tenants = pa.array([tenant_with_needs(name, _needs(opts)) for name, opts in places])
    ids = pa.array(_ids(batch, form, queues), pa.binary())
    cells = [ids, queues, tasks, codecs, bodies, dues, priorities, tenants, opts, windows]
    return pa.RecordBatch.from_arrays(cells, schema=NEW_JOBS)


def _cast(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    """Return a column in a type.

    Raises:
        BadInput: It holds something else.
    """
    given = batch.column(name)
    try:
        return given.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        words = str(error).partition(". ")[0].rstrip(".")
        holds = _HOLDS.get(_SHAPES.get(name, Shape.TEXT), "strings")
        raise BadInput(
            f"The column {name} must hold {holds} (got {given.type}: {words}).",
            hint="Convert it with Spark's functions before it is written.",
        ) from error


def in_order(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Sort new jobs in the order of the store's rows, which makes lookups and inserts faster."""
    return rows.take(pc.sort_indices(rows.column("id")))


def without_repeats(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[tuple[JobId, str]]]:
    """Return sorted new jobs, the last of each id, and the ids and queues of the other rows."""
    ids = rows.column("id")
    is_last = pc.not_equal(ids.slice(1), ids.slice(0, max(0, len(ids) - 1)))
    if pc.all(is_last, min_count=0).as_py():
        return rows, []
    kept = pa.concat_arrays([is_last, pa.array([True])])
    others = rows.filter(pc.invert(kept))
    left = zip(others.column("id").to_pylist(), others.column("queue").to_pylist(), strict=True)
    return rows.filter(kept), list(left)


def only(rows: pa.RecordBatch, ids: Sequence[JobId]) -> pa.RecordBatch:
    """Return the new jobs of some ids, in their order."""
    if len(ids) == rows.num_rows:
        return rows
    return rows.filter(pc.is_in(rows.column("id"), pa.array(ids, pa.binary())))


def by_id(rows: pa.RecordBatch, ids: Sequence[JobId]) -> dict[JobId, NewJob]:
    """Return the rows of some ids."""
    if not ids:
        return {}
    return {row["id"]: NewJob(**row) for row in only(rows, ids).select(NewJob._fields).to_pylist()}


WINDOW: Final = 5
"""Number of chunks whose rows are sorted together: each then fills its own part of the index."""

WINDOW_BYTES_MAX: Final = 64 * 1024 * 1024


def chunks_of(
    batches: Iterable[pa.RecordBatch], form: Form, most: int, now_us: int
) -> Iterator[pa.RecordBatch]:
    """Yield new jobs of all rows, up to `most` at a time, sorted by id as far as memory allows."""
    chunks: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for place in range(0, batch.num_rows, most):
            chunks.append(new_jobs(batch.slice(place, most), form, now_us=now_us))
            rows, size = rows + chunks[-1].num_rows, size + chunks[-1].nbytes
            if rows >= most * WINDOW or size >= WINDOW_BYTES_MAX:
                yield from _sorted(chunks, most)
                chunks, rows, size = [], 0, 0
    if chunks:
        yield from _sorted(chunks, most)


def _sorted(chunks: Sequence[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    window = in_order(pa.concat_batches(chunks))
    for place in range(0, window.num_rows, most):
        yield window.slice(place, most)


def jobs_of(
    rows: pa.RecordBatch,
    *,
    now_us: int,
    settings: Callable[[str], QueueSettings],
    dues: Sequence[int] = (),
) -> list[Job]:
    """Return jobs with the keys of a job that is enqueued at `now_us`.

    Args:
        rows: New jobs, sorted by id.
        now_us: The time.
        settings: Returns the settings of a queue.
        dues: Due times in place of those of the data; empty for none.

    Returns:
        Jobs in the order of lanes, and within a lane in the order of rows.
    """
    if not rows.num_rows:
        return []
    ids = rows.column("id").to_pylist()
    due_column = rows.column("due_us").fill_null(now_us) if not dues else pa.array(dues, pa.int64())
    start_column = pc.max_element_wise(due_column, now_us)
    starts = _each(start_column)
    if any(rows.column("window_us").unique().to_pylist()):
        windows = rows.column("window_us").to_pylist()
        starts = list(map(spread_us, ids, start_column.to_pylist(), windows))
    lanes = _lanes(rows, ids, starts, settings)
    tasks, codecs, opts = (_each(rows.column(name)) for name in ("task", "codec", "opts"))
    bodies = rows.column("body").to_pylist()
    cells = (
        lanes, starts, ids, repeat(0), _each(due_column), repeat(now_us), tasks, codecs, bodies,
        opts, starts, *map(repeat, _UNCLAIMED),
    )  # fmt: skip
    tuples = zip(*cells, strict=False)
    is_sorted = isinstance(lanes, repeat) and isinstance(starts, repeat)
    return made(Job, tuples if is_sorted else sorted(tuples, key=_place_of))


_place_of = itemgetter(0, 1, 2)


def _each(values: pa.Array) -> Iterable[Any]:
    """Return the values of a column; one object for all if they are equal."""
    different = values.unique()
    return repeat(different[0].as_py()) if len(different) == 1 else values.to_pylist()


def _lanes(
    rows: pa.RecordBatch,
    ids: Sequence[JobId],
    starts: Iterable[int],
    settings: Callable[[str], QueueSettings],
) -> Iterable[Lane]:
    """Return the lane of each job."""
    queues, priorities, tenants = (_each(rows.column(name)) for name in _MIXED)
    known = {name: settings(name) for name in rows.column("queue").unique().to_pylist()}
    counts = {name: queue.shards for name, queue in known.items()}
    widths = {name: queue.width_us for name, queue in known.items()}
    shards: Iterable[int] = repeat(0)
    if max(counts.values()) > 1:
        shards = map(shard_of, ids, map(counts.__getitem__, queues))
    buckets: Iterable[int] = map(bucket_of, starts, map(widths.__getitem__, queues))
    if isinstance(starts, repeat) and isinstance(queues, repeat):
        buckets = repeat(next(iter(buckets)))
    parts = (queues, shards, buckets, priorities, tenants)
    if all(isinstance(part, repeat) for part in parts):
        return repeat(Lane(*map(next, map(iter, parts))))
    keys = zip(*parts, strict=False)
    return list(map(_Lanes().__getitem__, islice(keys, len(ids))))


class _Lanes(dict[tuple[Any, ...], Lane]):
    """Lanes by their fields, one object each."""

    def __missing__(self, key: tuple[Any, ...]) -> Lane:
        lane = self[key] = Lane(*key)
        return lane


def _ids(batch: pa.RecordBatch, form: Form, queues: pa.Array) -> list[JobId]:
    """Return the ids of rows: hashes, or the UUID in `job_id`."""
    names = batch.schema.names
    texts = {name: _cast(batch, name, pa.string()) for name in _KEYS if name in names}
    given = texts.get("job_id")
    if given is not None and not given.null_count:
        hashed = pc.binary_join_element_wise(GIVEN, given.cast(pa.binary()), b"")
        ids = derived_each(hashed.to_pylist())
        if batch.num_rows and pc.max(pc.utf8_length(given)).as_py() >= UUID_DIGITS:
            for place, text in enumerate(given.to_pylist()):
                ids[place] = (len(text) >= UUID_DIGITS and uuid_of(text)) or ids[place]
        return ids
    of_each = [texts[name].to_pylist() if name in texts else repeat(None) for name in _KEYS]
    data = [batch.column(name).to_pylist() for name in form.id_columns]
    named = zip(*data, strict=True) if data else repeat(())
    ids = derived_each(map(_cause, queues.to_pylist(), *of_each, named))
    for place, text in enumerate(given.to_pylist() if given is not None else ()):
        if text is not None and len(text) >= UUID_DIGITS:
            ids[place] = uuid_of(text) or ids[place]
    return ids


_KEYS: Final = ("job_id", "dedupe_key")


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


def _windows(batch: pa.RecordBatch) -> pa.Array:
    """Return the column jitter, seconds or an interval, in microseconds."""
    given = batch.column("jitter")
    if not pa.types.is_duration(given.type):
        given = pc.round(pc.multiply(_cast(batch, "jitter", pa.float64()), SECOND_US))
    windows = given.cast(pa.int64()).fill_null(0)
    for window_us in pc.min_max(windows).as_py().values():
        if not 0 <= (window_us or 0) <= DUE_AHEAD_US_MAX:
            raise BadInput(
                "`jitter`, the window of starts, must be 0 seconds to ten years"
                f" (got {window_us / SECOND_US} s)."
            )
    return windows


def _opts(row: Sequence[Any], given: Sequence[str], form: Form) -> bytes:
    """Encode the options of a row: its key, expiry, due time, window, and what it carries.

    An expiry that has passed is no error: a repeated task finds it later than the first one.
    """
    key, expires_us, due_us, window_us, *cells = row
    unique = None if key is None else Rule(checked_key(key), form.mode, form.within_us)
    carried = {
        name: CARRIED[name].read(dict(cell) if _SHAPES[name] is Shape.PAIRS else cell)
        for name, cell in zip(given, cells, strict=True)
        if cell
    }
    options = CallOptions(expires_us, unique, **carried)
    check_options(options, (due_us or 0) + window_us, window_us)
    return options.to_bytes()


def _needs(opts: bytes) -> str:
    return text_of(read_options(opts).needs)


def adopt_needs(catalog: Catalog, rows: pa.RecordBatch) -> None:
    """Name the feature of needs in the store before the first job that has some."""
    if any(NEEDS_MARK in tenant for tenant in rows.column("tenant").unique().to_pylist()):
        catalog.adopt(NEEDS)


def _check_bodies(codecs: pa.Array, bodies: pa.Array, tasks: pa.Array) -> None:
    """Validate payloads: all at once first, then one by one to find the invalid one."""
    if codecs.unique().to_pylist() == [JSON] and not bodies.null_count:
        with suppress(msgspec.DecodeError, RecursionError):
            if pc.max(pc.binary_length(bodies)).as_py() <= PAYLOAD_BYTES_MAX:
                for _ in map(_CALLS.decode, bodies.to_pylist()):
                    pass
                return
    for cells in zip(codecs.to_pylist(), bodies.to_pylist(), tasks.to_pylist(), strict=True):
        _check_body(*cells)


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
