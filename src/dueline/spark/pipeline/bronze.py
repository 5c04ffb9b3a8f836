"""Bronze: the copy of the history.

A run reads each shard from its position to the watermark, below which no row can appear any more.
A batch ends behind a whole timestamp in each shard, so the position is a timestamp. Files and
positions are committed together: an interrupted run goes on where the last commit ended, and two
runs at once cannot both commit.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import compute, fs, parquet

from dueline.core.clock import SECOND_US, to_datetime
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, Conflict, HistoryExpired
from dueline.core.store import Row, Store
from dueline.core.watermark import NOTHING_CLOSED
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.jobs.history_batch import unbundled
from dueline.spark.pipeline.delta import INSTANT_TYPE, File, Table, Writer
from dueline.spark.pipeline.queries import Files
from dueline.spark.pipeline.tables import BATCH, BRONZE, INSTANT
from dueline.spark.reading import history_columns, shards
from dueline.spark.reading.partitions import RowSlice, behind, rows_of

PORTION: Final = 100_000
"""Number of rows of a commit, when they are read in this process."""

PAGE: Final = 20_000
_NEAR_US: Final = (SECOND_US, 600 * SECOND_US)
_NEAR_ROWS: Final = 100
SINCE: Final = "dueline.since"
UNTIL: Final = "dueline.until"
BEGIN: Final = "begin/"
COLUMNS: Final = pa.schema([field for field in BRONZE.inside if field.name != BATCH])
"""The columns of rows before they have a batch."""


class Period(NamedTuple):
    """The period of history that tables hold; 0 for no bound."""

    since_us: int = 0
    until_us: int = 0

    def __str__(self) -> str:
        """Return it in words."""
        since = to_datetime(self.since_us).isoformat() if self.since_us else "its beginning"
        until = to_datetime(self.until_us).isoformat() if self.until_us else "now"
        return f"the history from {since} to {until}"


def period_of(table: Table) -> Period:
    """Return the period of the tables."""
    return Period(int(table.property(SINCE) or 0), int(table.property(UNTIL) or 0))


def begins_of(table: Table, names: Iterable[str]) -> dict[str, int]:
    """Return the start of each queue's history in the tables; 0 for the beginning."""
    return {name: table.position(BEGIN + name) or 0 for name in names}


def ends_of(table: Table, engine: Engine, names: Collection[str]) -> dict[str, int]:
    """Return the time up to which all shards of each queue were copied; -1 if one was not."""
    ends = {}
    for name in names:
        keys = [key_of(name, shard) for shard in shards.history_shards(engine, name)]
        copied = [table.position(key) for key in keys]
        ends[name] = min((-1 if position is None else position for position in copied), default=-1)
    return ends


def key_of(queue: str, shard: int) -> str:
    """Return the name of a shard's position."""
    return f"{queue}/{shard:05}"


def prepare(
    table: Table, engine: Engine, since_us: int | None, until_us: int | None
) -> Period:  # fmt: skip
    """Create bronze with a period, or check that it is the same.

    Raises:
        Conflict: The tables hold another period.
        BadInput: The period starts in the future.
    """
    before = period_of(table)
    asked = Period(before.since_us if since_us is None else since_us, until_us or before.until_us)
    if table.exists() and asked != before:
        raise Conflict(
            f"The tables in {table.place.root} hold {before}.",
            hint="Omit --since and --until to continue it, or use another folder.",
        )
    if asked.since_us > engine.time.latest_us():
        raise BadInput("--since is in the future.", hint="Start the tables at that time.")
    table.create({SINCE: str(asked.since_us), UNTIL: str(asked.until_us)})
    return asked


@dataclass
class Plan:
    """What a run has to copy, and how far it is.

    Attributes:
        batch: Number of the last batch of the table.
        slices: For each shard that has new rows to copy, from its position to its watermark.
        ends: Position of each shard after the run.
        news: Positions of shards and starts of queues that the table does not have yet.
        begins: Start of the history in the tables, by queue.
        instant_us: Time up to which the run copies all shards.
        held: For each shard that has rows after its watermark which may not be complete, because
            of a transaction that is still open, the time of the first of them.
    """

    batch: int
    slices: list[RowSlice] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)
    news: dict[str, int] = field(default_factory=dict)
    begins: dict[str, int] = field(default_factory=dict)
    instant_us: int = 0
    held: dict[str, int] = field(default_factory=dict)


def plan(table: Table, engine: Engine, names: Sequence[str], period: Period) -> Plan:
    """Raise the watermarks to the present, and return what is new below them.

    Raises:
        Conflict: The tables hold the history of another store, or of a later state of this one.
    """
    made = Plan(table.position(BATCH) or 0, instant_us=engine.store.clock_us())
    closable_us = shards.now_us(engine.store)
    shards_of = {
        name: [
            shards.Shard(name, name + HISTORY_SUFFIX, shard)
            for shard in shards.history_shards(engine, name)
        ]
        for name in names
    }
    _check_same_store(table, engine.store, shards_of)  # before any watermark is raised
    for name, of_queue in shards_of.items():
        stream = name + HISTORY_SUFFIX
        trimmed = shards.trimmed_of(engine.store, [stream])[stream]
        begin = table.position(BEGIN + name)
        if begin is None:
            begin = max(period.since_us, *(at_us + 1 for at_us, _ in trimmed.values()), 0)
            made.news[BEGIN + name] = begin
        made.begins[name] = begin
        for shard in of_queue:
            key = key_of(name, shard.shard)
            before = table.position(key)
            if before is None:
                start_us = max(trimmed.get(shard.shard, (0, b""))[0], period.since_us)
                before = made.news[key] = start_us - 1
            end_us = shards.close_one(engine.store, shard)
            made.instant_us = min(made.instant_us, end_us)
            if end_us < closable_us:
                after = behind(end_us)
                for row in engine.store.tail(stream, shard.shard, after=after, limit=1).rows:
                    made.held[key] = row.at_us
            if period.until_us:
                end_us = min(end_us, period.until_us - 1)
            made.ends[key] = max(before, end_us)
            if end_us > before:
                made.slices.append(RowSlice(stream, shard.shard, behind(before), behind(end_us)))
    return made


def _check_same_store(
    table: Table, store: Store, shards_of: Mapping[str, Sequence[shards.Shard]]
) -> None:  # fmt: skip
    """Check that rows of the store from just before each position are in the table.

    Positions are times, so rows of another store up to them would be left out without an error.
    Those of a store that was restored would be left out of silver: attempts are made again.

    Args:
        table: Bronze.
        store: The store.
        shards_of: Shards by queue; those without a position are not checked.

    Raises:
        Conflict: A row is missing, or the store is older than a position.
    """
    rows: dict[str, Row] = {}
    begins, begin_us = begins_of(table, shards_of), period_of(table).since_us
    copied = {
        key: (shard, at_us)
        for of_queue in shards_of.values()
        for shard in of_queue
        if (at_us := table.position(key := key_of(shard.name, shard.shard))) is not None
    }
    for key, (shard, at_us) in copied.items():
        since_us = max(begin_us, begins[shard.name])
        if (row := _row_before(store, shard, at_us, since_us)) is not None:
            rows[key] = row
    _expect_rows(table, rows)
    firsts = {shard.name: (shard, at_us) for shard, at_us in reversed(copied.values())}
    for shard, at_us in firsts.values():  # all shards were closed up to their positions
        if at_us >= begin_us and _is_older(table, store, shard, at_us):
            raise Conflict(
                f"The tables in {table.place.root} hold the history of {shard} up to"
                f" {_instant(at_us)}, but the store is older: it was restored from a backup, for"
                " instance.",
                hint="Use another folder for what happens from now on. These tables show what had"
                " happened since the backup.",
            )


def _expect_rows(table: Table, rows: Mapping[str, Row]) -> None:
    if not rows:
        return
    times = {row.at_us for row in rows.values()}
    ids = {key: [attempt.id.hex() for attempt in unbundled(row)] for key, row in rows.items()}
    files = [
        file for file in table.files() if any(file.may_hold("at", at_us, at_us) for at_us in times)
    ]
    stored = _ids_at(table.view(files), times)
    for key, row_ids in ids.items():
        if not stored.issuperset(row_ids):
            raise Conflict(
                f"The tables in {table.place.root} lack a row of {key} at"
                f" {_instant(rows[key].at_us)}, up to which they were copied: they hold the"
                " history of another store.",
                hint="Use another folder for each store, or check --store.",
            )


def _ids_at(files: Files, times_us: Collection[int]) -> set[str]:
    """Return the ids of the rows at these times.

    A dataset would do it in a line. But it imports pandas, as do `pa.array` and times of
    statistics, and that takes most of the time of a run that finds nothing new.
    """
    system = None if files.system is None else files.system.open()
    ids: set[str] = set()
    for path in files.paths:
        with _opened(path, system) as file:
            place = file.schema_arrow.get_field_index("at")
            ranges = [
                file.metadata.row_group(number).column(place).statistics
                for number in range(file.num_row_groups)
            ]
            groups = [
                number
                for number, known in enumerate(ranges)
                if known is None
                or any(known.min_raw <= at_us <= known.max_raw for at_us in times_us)
            ]
            rows = file.read_row_groups(groups, columns=["at", "id"])
            ats_us = rows["at"].cast(INSTANT_TYPE).cast(pa.int64()).to_pylist()
            pairs = zip(ats_us, rows["id"].to_pylist(), strict=True)
            ids.update(row_id for at_us, row_id in pairs if at_us in times_us)
    return ids


@contextmanager
def _opened(path: str, system: fs.FileSystem | None) -> Iterator[parquet.ParquetFile]:
    """Open a file; its errors name it, as those of datasets do."""
    try:
        with parquet.ParquetFile(path, filesystem=system) as file:
            yield file
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"{path}: {error}") from error


def _row_before(store: Store, shard: shards.Shard, until_us: int, since_us: int) -> Row | None:
    """Return a row from the last second up to a time, or from the last minutes; None: no row."""
    for span_us in _NEAR_US:
        after = (max(since_us, until_us - span_us), b"")
        rows = store.tail(
            shard.stream, shard.shard, after=after, limit=_NEAR_ROWS, until_us=until_us
        ).rows
        if rows:
            return rows[-1]
    return None


def _is_older(table: Table, store: Store, shard: shards.Shard, at_us: int) -> bool:
    """Return whether a shard was closed only up to an earlier time than that of its position.

    A shard without a watermark is older if it has rows, but not the last one of the table. Without
    rows it is that of a new store, to which jobs were moved: its history begins later.
    """
    mark_us = store.close_until(shard.stream, shard.shard, at_us=NOTHING_CLOSED)
    if mark_us != NOTHING_CLOSED:
        return mark_us < at_us
    if not store.tail(shard.stream, shard.shard, after=None, limit=1, until_us=at_us).rows:
        return False
    is_of = (compute.field("queue") == shard.name) & (compute.field("shard") == shard.shard)
    copied = table.view().dataset().to_table(["at"], filter=is_of)
    last_us = compute.max(copied["at"].cast(pa.int64())).as_py() or 0
    last = store.tail(shard.stream, shard.shard, after=(last_us, b""), limit=1, until_us=last_us)
    return not last.rows


def check_kept(store: Store, made: Plan, parts: Sequence[RowSlice]) -> None:
    """Check that no rows of slices expired before they were copied; called after reading them.

    Raises:
        HistoryExpired: Rows expired.
    """
    trimmed = shards.trimmed_of(store, [shard.stream for shard in parts])
    for part in parts:
        name = queue_of(part)
        last = trimmed[part.stream].get(part.shard)
        if last is not None and last > part.after and last[0] >= made.begins[name]:
            raise HistoryExpired(
                f"The history of {key_of(name, part.shard)} was copied up to"
                f" {_instant(part.after[0] - 1)}, but has expired up to {_instant(last[0])}.",
                hint="Make the tables again in another folder. Run more often, or keep history"
                " longer.",
            )


def copy(table: Table, store: Store, made: Plan, rows_max: int | None = None) -> Iterator[int]:
    """Copy new rows in this process; yield the number of rows of each commit.

    Args:
        table: Bronze.
        store: The store.
        made: What to copy; afterwards, what is left.
        rows_max: Stop after the commit in which there are this many rows; None for all.
    """
    pending: list[pa.RecordBatch] = []
    size = total = 0
    done: dict[str, int] = {}
    while made.slices:
        part = made.slices[0]
        key = key_of(queue_of(part), part.shard)
        others = len(pending)
        for page in rows_of(store, part, page=PAGE):
            pending.append(batch_of(page))
            size += pending[-1].num_rows
            if size < PORTION:
                continue
            last_us = page[-1].at_us
            rows, held = _split(pending[others:], last_us)
            rows = pending[:others] + rows
            if not rows:
                continue
            pending, others = held, 0
            check_kept(store, made, made.slices[:1])
            written = commit(table, made, write(table, made, rows), done | {key: last_us - 1})
            yield written
            made.slices[0] = part._replace(after=(last_us, b""))
            total, done = total + written, {}
            size = sum(batch.num_rows for batch in pending)
            if rows_max is not None and total >= rows_max:
                return
        check_kept(store, made, made.slices[:1])
        done[key] = made.ends[key]
        del made.slices[0]
    if size or total or made.news:
        yield commit(table, made, write(table, made, pending), made.ends, is_last=True)


def write(table: Table, made: Plan, batches: Sequence[pa.RecordBatch]) -> list[File]:
    """Write rows of the next batch to files."""
    return write_with(table.writer, made.batch + 1, batches)


def write_with(writer: Writer, batch: int, batches: Sequence[pa.RecordBatch]) -> list[File]:
    """Write rows to files of bronze, in any process."""
    if not batches:
        return []
    rows = pa.Table.from_batches(batches)
    numbers = pa.repeat(pa.scalar(batch, pa.int64()), rows.num_rows)
    return writer.write(rows.append_column(BATCH, numbers))


def commit(
    table: Table, made: Plan, files: Sequence[File], positions: Mapping[str, int], *,
    is_last: bool = False,
) -> int:  # fmt: skip
    """Commit files with positions; return their number of rows.

    Raises:
        Conflict: Another process has copied rows since the plan was made.
    """
    if (table.position(BATCH) or 0) != made.batch:
        raise Conflict(
            f"Another process writes to the tables in {table.place.root}.",
            hint="Run it again: it goes on where the other ended.",
        )
    named = made.news | dict(positions)
    if files:
        named[BATCH] = made.batch + 1
    if is_last:
        named[INSTANT] = made.instant_us
    table.commit(files, positions=named)
    made.batch += bool(files)
    made.news = {}
    return sum(file.rows for file in files)


def queue_of(part: RowSlice) -> str:
    """Return the queue whose history a slice is of."""
    return part.stream.removesuffix(HISTORY_SUFFIX)


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    """Return rows of a history with the columns of bronze, without the batch."""
    keys = {column.name: history_columns.key_of(column.name) for column in COLUMNS}
    arrays = history_columns.columns(rows, frozenset(keys.values()))
    columns = [
        history_columns.shown_column(column.name, arrays[keys[column.name]]).cast(column.type)
        for column in COLUMNS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=COLUMNS)


def _split(
    batches: Sequence[pa.RecordBatch], last_us: int
) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """Hold back the rows of the last timestamp of a shard, which may not be complete."""
    held: list[pa.RecordBatch] = []
    kept = list(batches)
    while kept:
        last = kept.pop()
        is_held = compute.equal(last.column("at").cast(pa.int64()), last_us)
        rows = last.filter(is_held)
        if rows.num_rows:
            held.insert(0, rows)
        if rows.num_rows < last.num_rows:
            kept.append(last.filter(compute.invert(is_held)))
            break
    return kept, held


def _instant(at_us: int) -> str:
    return to_datetime(at_us).isoformat(timespec="seconds")
