"""The pipeline on one machine, with Python and Arrow, without Java and Spark.

Tests compare its rows with those of the Spark engine.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute, parquet

from dueline.core.attempt import EnqueuedEvent
from dueline.core.clock import SystemClock, to_datetime
from dueline.core.codec import decode
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt
from dueline.core.store import Row
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.jobs.history_batch import unbundled
from dueline.log import trimming
from dueline.log.checkpoint import Place
from dueline.log.reader import ShardReader
from dueline.spark.pipeline import archive, dead_jobs, insights_arrow, replay, tables_arrow
from dueline.spark.pipeline.archive import Period
from dueline.spark.pipeline.audit_queries import audit
from dueline.spark.pipeline.audit_rules import Audited, Known, Promises
from dueline.spark.pipeline.dead_jobs import Death, Wanted
from dueline.spark.pipeline.engine import Say, Settings, Step
from dueline.spark.pipeline.queries import Duck, Files
from dueline.spark.pipeline.replay import KEEP_US, Chosen, Found, Order
from dueline.spark.pipeline.schemas import BRONZE_SHAPE, SHAPES, SILVER_SHAPE
from dueline.spark.pipeline.table_store import (
    BRONZE,
    GOLD,
    SILVER,
    Folder,
    Manifest,
    flush,
    name_of,
)
from dueline.spark.reading.shards import history_shards
from dueline.spark.runtime.options import existing_engine
from dueline.spark.writing.enqueue import CHUNK, Written, put_all
from dueline.spark.writing.rows_to_jobs import INSTANT, Form, chunks_of

NAME: Final = "arrow"
_PAGE: Final = 2000
_PART_ROWS: Final = 200_000
_DAY_US: Final = 86_400_000_000

Line = Mapping[str, Any]


class ArrowEngine:
    """Makes the tables with Python and Arrow alone."""

    def __init__(self, folder: Folder, settings: Settings) -> None:
        self._folder = folder
        self._settings = settings

    def bronze(self, say: Say) -> Step:
        """Copy new rows of the history, about 200,000 rows a part."""
        self._folder.own(NAME)
        rows = parts = 0
        with existing_engine(self._settings.store) as engine:
            fresh: list[Line] = []
            offsets = dict(self._folder.manifest(BRONZE).offsets)
            for key, row in self._rows(engine, offsets):
                fresh += [line_of(key, one) for one in unbundled(row)]
                if len(fresh) >= _PART_ROWS:
                    self._put(fresh, offsets)
                    rows, parts = rows + len(fresh), parts + 1
                    say(f"bronze: {rows:,} rows")
                    fresh = []
            if fresh:
                self._put(fresh, offsets)
                rows, parts = rows + len(fresh), parts + 1
        return Step(BRONZE, rows, parts)

    def _rows(self, engine: Engine, offsets: dict[str, Sequence[Any]]) -> Iterator[tuple[str, Row]]:
        """Yield new rows of each shard, and keep the positions in `offsets`."""
        bounds = self._folder.manifest(BRONZE)
        for queue in self._settings.queues or engine.catalog.names():
            stream = queue + HISTORY_SUFFIX
            for shard in history_shards(engine, queue):
                key = f"{queue}/{shard:05}"
                if key in offsets:
                    begin = offsets[key][0], bytes.fromhex(offsets[key][1])
                else:  # rows that were trimmed before the first run are not missed
                    begin = trimming.places(engine.store, stream).get(shard, (0, b""))
                    begin = max(begin, (bounds.since_us, b""))
                    offsets[key] = [begin[0], begin[1].hex()]
                reader = ShardReader(
                    engine.store, stream, shard, after=begin, time=engine.time, clock=SystemClock()
                )
                while rows := _before(bounds.until_us, reader.read(_PAGE)):
                    for row in rows:
                        offsets[key] = [row.at_us, row.id.hex()]
                        yield queue, row
                _check_kept(engine, queue, shard, begin)

    def _put(self, lines: Sequence[Line], offsets: Mapping[str, Sequence[Any]]) -> None:
        before = self._folder.manifest(BRONZE)
        done = before.done + 1
        part = f"{done:06}"
        file = self._write(BRONZE, part, lines, BRONZE_SHAPE)
        for place in (file, file.parent, file.parent.parent):
            flush(place)  # the store may trim these rows from now on
        facts = {
            "rows": len(lines),
            "first_us": min(line["at"] for line in lines),
            "last_us": max(line["at"] for line in lines),
        }
        self._folder.publish(
            BRONZE,
            replace(
                before,
                engine=NAME,
                done=done,
                parts={**before.parts, part: part},
                facts={**before.facts, part: facts},
                offsets=dict(offsets),
            ),
        )

    def silver(self, say: Say) -> Step:
        """Rebuild the days that new rows touch."""
        bronze, before = self._folder.manifest(BRONZE), self._folder.current(SILVER)
        if bronze.done <= before.done:
            return Step(SILVER, 0, 0)
        new = [part for part in bronze.parts if int(part) > before.done]
        fresh = [line for line in self._bronze(new) if line["worker"]]
        touched = {(line["job_id"], line["enqueued"]) for line in fresh}
        if before.parts and fresh:
            first_us = min(line["enqueued"] for line in fresh)
            older = [
                part
                for part, facts in bronze.facts.items()
                if int(part) <= before.done and facts["last_us"] >= first_us
            ]
            fresh += [
                line
                for line in self._bronze(older)
                if line["worker"] and (line["job_id"], line["enqueued"]) in touched
            ]
        made = tables_arrow.silver(fresh)
        days: dict[str, list[Line]] = {}
        for line in made:
            days.setdefault(day_of(line["ended"]), []).append(line)
        for day in before.parts:
            kept = self._rest(day, touched, is_touched=day in days)
            if kept is not None:
                days.setdefault(day, []).extend(tables_arrow.lines_of(kept))
        say(f"silver: {len(days)} day(s)")
        version = name_of(bronze.done)
        parts, facts = dict(before.parts), dict(before.facts)
        for day, lines in days.items():
            parts[day] = f"{version}/day={day}"
            self._write(SILVER, parts[day], lines, SILVER_SHAPE)
            facts[day] = {"rows": len(lines)}
        self._folder.publish(
            SILVER, Manifest(engine=NAME, done=bronze.done, parts=parts, facts=facts)
        )
        return Step(SILVER, sum(map(len, days.values())), len(days))

    def _rest(
        self, day: str, touched: set[tuple[str, int]], *, is_touched: bool
    ) -> pa.Table | None:
        """Return the unchanged rows of a day; None if the whole day is unchanged."""
        table = self._folder.read(SILVER, [day])
        if table is None:
            return None
        enqueued = table.column("enqueued").cast(INSTANT).cast(pa.int64()).cast(pa.string())
        runs = compute.binary_join_element_wise(table.column("job_id"), enqueued, "@")
        names = [f"{job_id}@{enqueued_us}" for job_id, enqueued_us in touched]
        hit = compute.is_in(runs, pa.array(names, pa.string()))
        if not is_touched and not compute.any(hit).as_py():
            return None
        return table.filter(compute.invert(hit))

    def gold(self, say: Say) -> Step:
        """Rebuild the counts of changed days, and the tables for operators."""
        silver = self._folder.current(SILVER)
        rows = parts = 0
        for table in GOLD:
            stale = self._folder.stale_days(table)
            facts = dict(self._folder.current(table).facts)
            for day in stale:
                lines = list(getattr(tables_arrow, table)(self._silver([day])))
                self._write(table, silver.parts[day], lines, SHAPES[table])
                facts[day] = {"rows": len(lines)}
                rows, parts = rows + len(lines), parts + 1
            if stale:
                self._folder.publish(
                    table,
                    Manifest(engine=NAME, done=silver.done, parts=silver.parts, facts=facts),
                )
        if silver.parts:
            say("gold: tables for operators")
            for table, lines in self._whole().items():
                part = self._folder.other(table)
                self._write(table, part, lines, SHAPES[table])
                self._folder.publish_whole(table, silver, part, len(lines))
                rows, parts = rows + len(lines), parts + 1
        return Step("gold", rows, parts)

    def _whole(self) -> Mapping[str, list[Line]]:
        silver = list(self._silver())
        minutes = list(tables_arrow.lines_in(self._folder.batches(GOLD[0])))
        now_us = max((line["ended"] for line in silver), default=0)
        return {
            "flow": insights_arrow.flow(silver, self._events()),
            "slo": insights_arrow.slo(
                silver,
                target_us=self._settings.target_us,
                objective=self._settings.objective,
                now_us=now_us,
            ),
            "fairness": insights_arrow.fairness(minutes),
            "suspicious": insights_arrow.suspicious(silver),
            "poison": insights_arrow.poison(silver),
        }

    def archive(self, place: Path, period: Period) -> None:
        """Write the rows of a period, one file for each part of bronze that has some."""
        for number, part in enumerate(self._folder.touched(period.since_us, period.until_us)):
            archive.put(self._folder.files(BRONZE, [part]), period, place, number)

    def deaths(self, wanted: Wanted) -> list[Death]:
        """Return the dead jobs that match."""
        silver = Files([str(file) for file in self._folder.files(SILVER)], SILVER_SHAPE)
        return dead_jobs.deaths(Duck(), silver, wanted)

    def replayable(self, files: Sequence[Path], chosen: Chosen) -> Found:
        """Return the jobs that can be replayed."""
        return replay.found(Duck(), _bronze(files), chosen)

    def replay(self, files: Sequence[Path], chosen: Chosen, order: Order, say: Say) -> Written:
        """Enqueue the jobs, each once under the order's name."""
        batches = replay.calls(Duck(), _bronze(files), chosen, order).batches()
        with existing_engine(self._settings.store) as engine:
            now_us = engine.time.earliest_us()
            chunks = chunks_of(batches, Form(), CHUNK, now_us)
            say("replay: jobs are enqueued")
            return put_all(engine, chunks, order.write, 0, keep_us=KEEP_US)

    def audit(
        self,
        living: pa.Table | None,
        expected: pa.Table | None,
        promises: Promises,
        known: Known,
    ) -> Audited:
        """Audit the copied history."""
        return audit(
            Duck(),
            _bronze(self._folder.files(BRONZE)),
            living=living,
            expected=expected,
            promises=promises,
            known=known,
        )

    def _events(self) -> Iterator[Line]:
        return (line for line in self._bronze() if not line["worker"])

    def _bronze(self, parts: Collection[str] | None = None) -> Iterator[Line]:
        return tables_arrow.lines_in(self._folder.batches(BRONZE, parts))

    def _silver(self, parts: Collection[str] | None = None) -> Iterator[Line]:
        return tables_arrow.lines_in(self._folder.batches(SILVER, parts))

    def _write(self, table: str, part: str, lines: Sequence[Line], shape: pa.Schema) -> Path:
        path = self._folder.path(table, part)
        path.mkdir(parents=True, exist_ok=True)
        rows = [{name: line[name] for name in shape.names} for line in lines]
        parquet.write_table(pa.Table.from_pylist(rows, shape), path / "part-0.parquet")
        return path / "part-0.parquet"


def _bronze(files: Sequence[Path]) -> Files:
    return Files([str(file) for file in files], BRONZE_SHAPE)  # older ones have fewer columns


def _before(until_us: int, rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows before the end of the period, if it has one."""
    return [row for row in rows if row.at_us < until_us] if until_us else rows


def _check_kept(engine: Engine, queue: str, shard: int, begin: Place) -> None:
    """Check that no rows were trimmed past a position; called after reading on from it."""
    last = trimming.places(engine.store, queue + HISTORY_SUFFIX).get(shard, begin)
    if last > begin:
        raise StoreCorrupt(
            f"The history of {queue}/{shard:05} was copied up to {_instant(begin[0])}, but has"
            f" expired up to {_instant(last[0])}.",
            hint="Make the tables again in another folder. Run more often, or keep history longer.",
        )


def _instant(at_us: int) -> str:
    return to_datetime(at_us).isoformat(timespec="seconds")


def line_of(queue: str, row: Row) -> Line:
    """Decode a row of a history, with the columns of the table `attempts`."""
    event = decode(row.body, EnqueuedEvent)
    return {
        "queue": queue, "shard": row.shard, "at": row.at_us, "id": row.id.hex(),
        "job_id": event.job, "attempt": event.fence, "task": event.task, "tenant": event.tenant,
        "priority": event.priority, "enqueued": event.enqueued_us, "due": event.due_us,
        "claimed": event.claimed_us or None, "started": event.started_us or None,
        "ended": event.ended_us, "outcome": event.outcome, "error": event.error,
        "worker": event.worker, "codec": event.codec, "payload_bytes": event.size,
        "payload": event.payload, "digest": event.digest or None,
    }  # fmt: skip


def day_of(instant_us: int) -> str:
    """Return the day of a timestamp, in UTC."""
    table = compute.strftime(
        pa.scalar(instant_us // _DAY_US * _DAY_US, pa.timestamp("us", "UTC")), format="%Y-%m-%d"
    )
    return str(table.as_py())
