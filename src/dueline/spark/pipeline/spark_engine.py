"""The pipeline on Spark: tasks write files into the tables, the driver commits them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial, reduce
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as all of Spark's users write)

from dueline.api.connect import open_existing
from dueline.core.clock import DAY_US
from dueline.core.errors import DuelineError
from dueline.core.store import Store
from dueline.foresight.replay import Task as SimulatedRun
from dueline.foresight.replay import outcomes
from dueline.foresight.scenario import Rules
from dueline.foresight.summary import Outcome
from dueline.spark.pipeline import bronze
from dueline.spark.pipeline.delta import ROWS_MAX, File, Table, Writer
from dueline.spark.pipeline.increments import NEEDED, RUN, Portion, overlapping
from dueline.spark.pipeline.queries import Spark, View, text_of
from dueline.spark.pipeline.recordings import records_in
from dueline.spark.pipeline.replay import KEEP_US, Order
from dueline.spark.pipeline.tables import BATCH, Sums
from dueline.spark.pipeline.what_if import Period, Used
from dueline.spark.pipeline.what_if import rows_of as rows_to_simulate
from dueline.spark.reading.partitions import RowSlice, behind, rows_of
from dueline.spark.reading.partitions import plan as plan_tasks
from dueline.spark.runtime.garbage import collector_paused
from dueline.spark.runtime.refusals import refusal_in
from dueline.spark.writing.enqueue import Written
from dueline.spark.writing.frame import enqueue

TASKS_A_CORE: Final = 2
"""Number of tasks for each core in one commit of bronze; a task reads up to 500,000 rows."""

_TOO_SLOW: Final = "Python worker failed to connect back"
"""Spark waits ten seconds for a Python process to start, which a busy machine may exceed."""


class SparkEngine:
    """Computes changes on Spark."""

    portion: int | None = None

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.queries = Spark(spark)
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")

    def copy(self, table: Table, url: str, store: Store, made: bronze.Plan) -> Iterator[int]:
        """Copy new rows to bronze; yield the number of rows of each commit."""
        size = TASKS_A_CORE * self._spark.sparkContext.defaultParallelism
        tasks = plan_tasks(store, made.slices, size)
        groups = [tasks[start : start + size] for start in range(0, len(tasks), size)]
        ends = dict(made.ends)
        for group, positions, is_last in whole_groups(groups, ends):
            work = partial(_copy, url, table.writer, made.batch + 1, group)
            files = self._tasks(work, len(group))
            bronze.check_kept(store, made, [shard for task in group for shard in task])
            count = bronze.commit(table, made, files, positions, is_last=is_last)
            if is_last:
                made.slices.clear()
            yield count

    def changes(self, table: Table, portion: Portion) -> "SparkChanges":
        """Compute what a portion changes."""
        new = self._rows(table, portion.files).where(
            (F.col(BATCH) > portion.low) & (F.col(BATCH) <= portion.high)
        )
        signed = [new.withColumn("sign", F.lit(1))]
        files = overlapping(table, portion) if portion.low else []
        if files:
            runs = new.select(*RUN).distinct()
            old = self._rows(table, files).where(F.col(BATCH) <= portion.low)
            old = old.join(runs, list(RUN), "left_semi").select(*NEEDED)
            signed += [old.withColumn("sign", F.lit(sign)) for sign in (1, -1)]
        rows = reduce(DataFrame.unionByName, signed)
        return SparkChanges(self, rows, has_old=bool(files))

    def write(self, frame: DataFrame, writer: Writer) -> list[File]:
        """Write the rows of a frame to files of a table."""
        return _collected(frame.mapInArrow(partial(_write, writer), "file binary"))

    def replay(self, calls: Any, url: str, order: Order) -> Written:  # noqa: ANN401  (its result)
        """Enqueue the jobs of a replay, each once under the order's name."""
        return enqueue(calls.frame, url, writeId=order.write, keepDays=KEEP_US // DAY_US)

    def simulator(
        self, rows: View, period: Period, used: Used, rules: Rules, *, with_hashes: bool
    ) -> "SparkSimulator":
        """Return what simulates the attempts of a period, a run in each task."""
        attempts = rows_to_simulate(self.queries, rows, period, used)
        return SparkSimulator(attempts.frame, len(set(used.pools.values())), rules,
                              with_hashes=with_hashes)  # fmt: skip

    def _rows(self, table: Table, files: Sequence[File]) -> DataFrame:
        return self.queries.frame(table.view(files)).select(*NEEDED)

    def _tasks(self, work: Any, count: int) -> list[File]:  # noqa: ANN401  (a function of batches)
        """Run a task for each number up to a count; return the files that they have written."""
        numbers = self._spark.range(0, count, numPartitions=count)
        return _collected(numbers.mapInArrow(work, "file binary"))


class SparkSimulator:
    """Runs simulations side by side: one task for each pool of queues and each run."""

    def __init__(self, rows: DataFrame, pools: int, rules: Rules, *, with_hashes: bool) -> None:
        self._rules = rules
        self._with_hashes = with_hashes
        order = ("pool", "first_us", "job_id", "nth")
        sorted_rows = rows.repartition(pools, "pool").sortWithinPartitions(*order)
        sorted_rows = sorted_rows.drop("first_us", *(() if with_hashes else ("job_id",)))
        self._rows = sorted_rows.persist(StorageLevel.DISK_ONLY)  # computed once for all runs

    def run(self, runs: Sequence[SimulatedRun]) -> list[Outcome]:
        """Return the outcome of each run, of all pools together."""
        self._rows.count()  # otherwise each run computes the rows
        work = [
            self._rows.mapInArrow(
                partial(_simulate, self._rules, simulated, number, self._with_hashes),
                "run int, outcome binary",
            ).repartition(
                1
            )  # a stage each: a union of single partitions is one partition, one task
            for number, simulated in enumerate(runs)
        ]
        outcomes: list[list[Outcome]] = [[] for _ in runs]
        for number, outcome in reduce(DataFrame.unionByName, work).collect():
            outcomes[number].append(msgspec.msgpack.decode(outcome, type=Outcome))
        return [Outcome.joined(parts) for parts in outcomes]


class SparkChanges:
    """What a portion changes, on Spark."""

    def __init__(self, engine: SparkEngine, rows: DataFrame, *, has_old: bool) -> None:
        self._engine = engine
        self._rows = rows
        self._has_old = has_old
        self._views: dict[str, DataFrame] = {}

    def silver(self, writer: Writer) -> tuple[list[File], pa.Table]:
        """Write the new rows of silver to files; return these, and the rows to remove."""
        changes = self._view("changes")
        gone = changes.where("sign < 0").toArrow() if self._has_old else pa.table({})
        return self._engine.write(changes.where("sign > 0").drop("sign"), writer), gone

    def sums(self, sums: Sums, values: Mapping[str, Any]) -> pa.Table:
        """Return what to add to a table of sums."""
        views = {sums.source: self._view(sums.source)}
        rows = self._engine.queries.run(text_of(sums.design.name), views, values)
        return rows.table(sums.design.inside)

    def close(self) -> None:
        """Release what is kept."""
        for frame in self._views.values():
            frame.unpersist()

    def _view(self, name: str) -> DataFrame:
        if name not in self._views:
            run = self._engine.queries.run
            if name == "runs":
                self._views[name] = run(text_of("runs"), {"rows": self._rows}).frame
            else:
                made = run(text_of("silver"), {"rows": self._rows}).frame
                if self._has_old:
                    made = run(text_of("changes"), {"state": made}).frame
                self._views[name] = made.persist(StorageLevel.MEMORY_AND_DISK)
        return self._views[name]


def whole_groups(
    groups: Sequence[Sequence[Sequence[RowSlice]]], ends: Mapping[str, int]
) -> Iterator[tuple[list[list[RowSlice]], dict[str, int], bool]]:
    """Yield the tasks of each commit, with the positions after it.

    A commit ends behind a whole timestamp in each shard: a cut inside one is moved behind it.
    """
    begins: dict[tuple[str, int], Any] = {}
    for place, group in enumerate(groups):
        is_last = place == len(groups) - 1
        later = {} if is_last else {_shard_of(part) for task in groups[place + 1] for part in task}
        last = {_shard_of(part): part for task in group for part in task}
        positions: dict[str, int] = {}
        tasks: list[list[RowSlice]] = []
        for task in group:
            slices = []
            for part in task:
                shard = _shard_of(part)
                cut = part._replace(after=max(part.after, begins.get(shard, part.after)))
                if part is last[shard] and shard in later:
                    cut = cut._replace(until=behind(part.until[0]))
                    begins[shard] = cut.until
                    positions[bronze.key_of(bronze.queue_of(part), part.shard)] = part.until[0]
                elif part is last[shard]:
                    key = bronze.key_of(bronze.queue_of(part), part.shard)
                    positions[key] = ends[key]
                if cut.after < cut.until:
                    slices.append(cut)
            if slices:
                tasks.append(slices)
        yield tasks, dict(ends) if is_last else positions, is_last


def _shard_of(part: RowSlice) -> tuple[str, int]:
    return part.stream, part.shard


def _copy(
    url: str, writer: Writer, batch: int, tasks: Sequence[Sequence[RowSlice]],
    numbers: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """Copy the rows of tasks to files of bronze."""
    for ids in numbers:
        for number in ids.column("id").to_pylist():
            with closing(open_existing(url)) as store, collector_paused():
                rows: list[pa.RecordBatch] = []
                size = 0
                for task in tasks[number]:
                    for page in rows_of(store, task, page=bronze.PAGE):
                        rows.append(bronze.batch_of(page))
                        size += rows[-1].num_rows
                        if size >= ROWS_MAX:
                            yield _said(bronze.write_with(writer, batch, rows))
                            rows, size = [], 0
                yield _said(bronze.write_with(writer, batch, rows))


def _simulate(
    rules: Rules, run: SimulatedRun, number: int, with_hashes: bool,  # noqa: FBT001  (of a task)
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """Simulate the pools of a partition."""
    parts = list(batches)
    if not parts:
        return
    with collector_paused():
        for record in records_in(pa.Table.from_batches(parts), with_hashes=with_hashes):
            (outcome,) = outcomes(record, rules, [run])
            body = pa.array([msgspec.msgpack.encode(outcome)], pa.binary())
            yield pa.record_batch([pa.array([number], pa.int32()), body], ["run", "outcome"])


def _write(writer: Writer, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows to files."""
    rows: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        rows.append(batch)
        size += batch.num_rows
        if size >= ROWS_MAX:
            yield _said(writer.write(pa.Table.from_batches(rows)))
            rows, size = [], 0
    if rows:
        yield _said(writer.write(pa.Table.from_batches(rows)))


def _said(files: Sequence[File]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(map(msgspec.json.encode, files), pa.binary())], ["file"])


def _collected(frame: DataFrame) -> list[File]:
    """Run a frame of files."""
    for is_last in (False, False, True):
        try:
            return [msgspec.json.decode(row[0], type=File) for row in frame.collect()]
        except PySparkException as error:
            if is_last or _TOO_SLOW not in str(error):
                raise error_of(error) from error
    raise AssertionError


def error_of(error: Exception) -> DuelineError:
    """Return the dueline error inside Spark's error, or a shorter error."""
    first = str(error).partition(chr(10))[0]
    return refusal_in(error) or DuelineError(f"Spark's query failed: {first}")
