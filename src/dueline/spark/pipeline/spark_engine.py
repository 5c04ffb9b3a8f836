"""The pipeline on Spark."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as all of Spark's users write)
from pyspark.sql.pandas.types import from_arrow_schema

from dueline.core.clock import DAY_US
from dueline.core.errors import DuelineError
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.log import trimming
from dueline.log.checkpoint import Place
from dueline.spark.pipeline import dead_jobs, insights_spark, replay, tables_spark
from dueline.spark.pipeline.archive import Period, put
from dueline.spark.pipeline.audit_queries import audit
from dueline.spark.pipeline.audit_rules import RUN, Audited, Known, Promises
from dueline.spark.pipeline.dead_jobs import Death, Wanted
from dueline.spark.pipeline.engine import Say, Settings, Step
from dueline.spark.pipeline.queries import Files, Spark
from dueline.spark.pipeline.replay import KEEP_US, Chosen, Found, Order
from dueline.spark.pipeline.schemas import BRONZE_SHAPE, SILVER_SHAPE
from dueline.spark.pipeline.table_store import (
    BRONZE,
    GOLD,
    SILVER,
    Folder,
    Manifest,
    flush,
    name_of,
)
from dueline.spark.reading.offsets import offset_of
from dueline.spark.reading.partitions import START
from dueline.spark.reading.shards import history_shards
from dueline.spark.runtime.options import existing_engine
from dueline.spark.runtime.refusals import refusal_in
from dueline.spark.writing.enqueue import Written
from dueline.spark.writing.frame import enqueue

NAME: Final = "spark"
_ROWS_PER_TRIGGER: Final = 500_000
_TOO_SLOW: Final = "Python worker failed to connect back"
"""Spark waits ten seconds for a Python process to start, which a busy machine may exceed."""

_CHECKPOINT: Final = "_bronze.checkpoint"


class SparkEngine:
    """Makes the tables with Spark: bronze by a streaming query, the others by batch queries."""

    def __init__(self, spark: SparkSession, folder: Folder, settings: Settings) -> None:
        self._spark = spark
        self._folder = folder
        self._settings = settings
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")

    def bronze(self, say: Say) -> Step:
        """Copy new rows of the history; a batch that Spark replays replaces itself."""
        self._folder.own(NAME)
        written = [0, 0]

        def put(batch: DataFrame, number: int) -> None:
            written[0] += self._put(batch, number)
            written[1] += 1
            say(f"bronze: {written[0]:,} rows")

        for is_last in (False, False, True):
            try:
                self._follow(put)
                break
            except StreamingQueryException as error:
                if is_last or _TOO_SLOW not in str(error):
                    raise _error_of(error) from error
        return Step(BRONZE, *written)

    def _follow(self, put: Callable[[DataFrame, int], None]) -> None:
        """Follow the history up to the present."""
        stream = self._spark.readStream.format("dueline").options(
            store=self._settings.store,
            table="attempts",
            queue=",".join(self._settings.queues),
            maxRowsPerTrigger=_ROWS_PER_TRIGGER,
        )
        since_us = self._folder.manifest(BRONZE).since_us
        if since_us:
            stream = stream.option("startingOffsets", self._begin(since_us))
        query = (
            stream.load()
            .writeStream.foreachBatch(put)
            .option("checkpointLocation", str(self._folder.path(_CHECKPOINT)))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _begin(self, since_us: int) -> str:
        """Return the start offset of tables with a period, or of the oldest kept rows.

        Watermarks are raised to the start, since rows above them are not read yet.
        """
        places: dict[str, Place] = {}
        with existing_engine(self._settings.store) as engine:
            for queue in self._settings.queues or engine.catalog.names():
                stream = queue + HISTORY_SUFFIX
                lost = trimming.places(engine.store, stream)
                for shard in history_shards(engine, queue):
                    engine.store.close_until(stream, shard, at_us=since_us - 1)
                    begin = max(lost.get(shard, START), (since_us, b""))
                    places[f"{queue}/{shard:05}"] = begin
        return json.dumps(offset_of(places))

    def _put(self, batch: DataFrame, number: int) -> int:
        """Write a batch as a part of bronze, and publish it."""
        part = f"{number:06}"
        path = str(self._folder.path(BRONZE, part))
        bounds = self._folder.manifest(BRONZE)
        at_us = F.unix_micros("at")
        if bounds.since_us:
            batch = batch.where(at_us >= bounds.since_us)
        if bounds.until_us:
            batch = batch.where(at_us < bounds.until_us)
        batch.select(*BRONZE_SHAPE.names).write.mode("overwrite").parquet(path)
        for file in (*Path(path).glob("*.parquet"), Path(path), Path(path).parent):
            flush(file)  # the store may trim these rows from now on
        rows, first, last = self._folder.extent(BRONZE, part)
        before = self._folder.manifest(BRONZE)
        parts, facts = dict(before.parts), dict(before.facts)
        if rows:
            parts[part] = part
            facts[part] = {"rows": rows, "first_us": first, "last_us": last}
        done = max(before.done, number)
        after = replace(before, engine=NAME, done=done, parts=parts, facts=facts)
        self._folder.publish(BRONZE, after)
        return rows

    def silver(self, say: Say) -> Step:
        """Rebuild the days that new rows touch."""
        bronze, before = self._folder.manifest(BRONZE), self._folder.current(SILVER)
        new = [part for part in bronze.parts if int(part) > before.done]
        if not new:
            return Step(SILVER, 0, 0)
        fresh = self._attempts(new)
        if before.parts:
            first_us = min(bronze.facts[part]["first_us"] for part in new)
            enqueued_us = fresh.agg(F.min(F.unix_micros("enqueued"))).collect()[0][0]
            first_us = first_us if enqueued_us is None else min(first_us, enqueued_us)
            needed = [part for part, facts in bronze.facts.items() if facts["last_us"] >= first_us]
            touched = fresh.select(*RUN).distinct().cache()
            made = tables_spark.silver(self._attempts(needed).join(touched, list(RUN), "left_semi"))
            made = self._with_rest(_with_day(made), touched)
        else:
            made = _with_day(tables_spark.silver(fresh))
        say("silver: attempts of the days that are touched")
        version = name_of(bronze.done)
        facts = self._put_days(SILVER, version, made.select(*SILVER_SHAPE.names, "day"))
        parts = {**before.parts, **{day: f"{version}/day={day}" for day in facts}}
        self._folder.publish(
            SILVER,
            Manifest(engine=NAME, done=bronze.done, parts=parts, facts={**before.facts, **facts}),
        )
        return Step(SILVER, sum(one["rows"] for one in facts.values()), len(facts))

    def _with_rest(self, made: DataFrame, touched: DataFrame) -> DataFrame:
        """Add the unchanged rows of changed days."""
        old = _with_day(self._read(SILVER))
        days = made.select("day").union(old.join(touched, list(RUN), "left_semi").select("day"))
        names = [row[0] for row in days.distinct().collect()]
        rest = old.where(F.col("day").isin(*names)).join(touched, list(RUN), "left_anti")
        return made.unionByName(rest)

    def gold(self, say: Say) -> Step:
        """Rebuild the counts of changed days, and the tables for operators."""
        silver = self._folder.current(SILVER)
        rows = parts = 0
        makes: dict[str, Callable[[DataFrame], DataFrame]] = {
            "gold_minute": tables_spark.gold_minute,
            "gold_lateness": tables_spark.gold_lateness,
            "gold_run": tables_spark.gold_run,
        }
        for table in GOLD:
            before, stale = self._folder.current(table), self._folder.stale_days(table)
            if not stale:
                continue
            made = makes[table](self._read(SILVER, stale))
            day = F.date_format("minute", "yyyy-MM-dd").alias("day")
            version = name_of(silver.done)
            facts = self._put_days(table, version, made.select("*", day))
            named = {**before.parts, **{one: f"{version}/day={one}" for one in stale}}
            all_facts = {**before.facts, **{one: {"rows": 0} for one in stale}, **facts}
            self._folder.publish(
                table, Manifest(engine=NAME, done=silver.done, parts=named, facts=all_facts)
            )
            rows += sum(one["rows"] for one in facts.values())
            parts += len(stale)
        if silver.parts:
            say("gold: tables for operators")
            for table, frame in self._whole().items():
                part = self._folder.other(table)
                path = self._folder.path(table, part)
                frame.coalesce(1).write.mode("overwrite").parquet(str(path))
                count = self._folder.extent(table, part)[0]
                self._folder.publish_whole(table, silver, part, count)
                rows, parts = rows + count, parts + 1
        return Step("gold", rows, parts)

    def _whole(self) -> dict[str, DataFrame]:
        silver = self._read(SILVER).cache()
        now_us = silver.agg(F.max(F.unix_micros("ended"))).collect()[0][0] or 0
        return {
            "flow": insights_spark.flow(silver, self._read(BRONZE).where("worker = ''")),
            "slo": insights_spark.slo(
                silver,
                target_us=self._settings.target_us,
                objective=self._settings.objective,
                now_us=now_us,
            ),
            "fairness": insights_spark.fairness(self._read("gold_minute")),
            "suspicious": insights_spark.suspicious(silver),
            "poison": insights_spark.poison(silver),
        }

    def archive(self, place: Path, period: Period) -> None:
        """Write the rows of a period, one part of bronze in each Spark task.

        Tasks read, sort and write with Arrow, which is faster than Spark's rows and writer.
        """
        parts = self._folder.touched(period.since_us, period.until_us)
        if not parts:
            return
        files = [self._folder.files(BRONZE, [part]) for part in parts]

        def write(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    put(files[number], period, place, number)
                yield batch

        numbers = self._spark.range(0, len(parts), numPartitions=len(parts))
        numbers.mapInArrow(write, "id long").write.format("noop").mode("overwrite").save()

    def deaths(self, wanted: Wanted) -> list[Death]:
        """Return the dead jobs that match."""
        silver = Files([str(file) for file in self._folder.files(SILVER)], SILVER_SHAPE)
        return dead_jobs.deaths(Spark(self._spark), silver, wanted)

    def replayable(self, files: Sequence[Path], chosen: Chosen) -> Found:
        """Return the jobs that can be replayed."""
        return replay.found(Spark(self._spark), _bronze(files), chosen)

    def replay(self, files: Sequence[Path], chosen: Chosen, order: Order, say: Say) -> Written:
        """Enqueue the jobs, each once under the order's name."""
        rows: Any = replay.calls(Spark(self._spark), _bronze(files), chosen, order)
        say("replay: jobs are enqueued")
        return enqueue(
            rows.frame, self._settings.store, writeId=order.write, keepDays=KEEP_US // DAY_US
        )

    def audit(
        self,
        living: pa.Table | None,
        expected: pa.Table | None,
        promises: Promises,
        known: Known,
    ) -> Audited:
        """Audit the copied history."""
        files = self._folder.files(BRONZE)
        return audit(
            Spark(self._spark), _bronze(files), living=living, expected=expected, promises=promises,
            known=known,
        )  # fmt: skip

    def _attempts(self, parts: Sequence[str]) -> DataFrame:
        return self._read(BRONZE, parts).where("worker <> ''")

    def _read(self, table: str, parts: Sequence[str] | None = None) -> DataFrame:
        files = [str(file) for file in self._folder.files(table, parts)]
        reader = self._spark.read
        if table == BRONZE:  # older versions wrote fewer columns
            reader = reader.schema(from_arrow_schema(BRONZE_SHAPE))
        return reader.parquet(*files)

    def _put_days(self, table: str, version: str, frame: DataFrame) -> dict[str, dict[str, int]]:
        """Write a version of a table's days, and count their rows."""
        path = str(self._folder.path(table, version))
        frame.write.mode("overwrite").partitionBy("day").parquet(path)
        days = [one.name for one in self._folder.path(table, version).glob("day=*")]
        return {
            day.partition("=")[2]: {"rows": self._folder.extent(table, f"{version}/{day}")[0]}
            for day in days
        }


def _bronze(files: Sequence[Path]) -> Files:
    return Files([str(file) for file in files], BRONZE_SHAPE)  # older ones have fewer columns


def _error_of(error: Exception) -> DuelineError:
    """Return the dueline error inside Spark's error, or a shorter error."""
    first = str(error).partition(chr(10))[0]
    return refusal_in(error) or DuelineError(f"Spark's query failed: {first}")


def _with_day(silver: DataFrame) -> DataFrame:
    return silver.withColumn("day", F.date_format("ended", "yyyy-MM-dd"))
