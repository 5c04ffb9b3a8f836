"""Batch reader for Spark."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, In, InputPartition
from pyspark.sql.types import StructType

from dueline.api.connect import existing_engine, open_existing, shared_url
from dueline.core.clock import to_us
from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.core.lane import Lane, dead_queue, tenant_of
from dueline.core.watermark import SEALED_US
from dueline.spark.reading import partitions as slices
from dueline.spark.reading import schemas, status_tables
from dueline.spark.reading import shards as stream_shards
from dueline.spark.reading.arrow_batches import PAGE, read
from dueline.spark.reading.data_loss import Losses
from dueline.spark.reading.offsets import positions_of
from dueline.spark.reading.status_tables import StatusTable
from dueline.spark.runtime.garbage import collector_paused
from dueline.spark.runtime.options import (
    TABLES,
    Options,
    chosen_queues,
    usual_parts,
)
from dueline.spark.runtime.refusals import in_one_sentence

_PRUNED: Final = ("queue", "shard", "priority", "tenant", "bucket")

Slice = slices.RowSlice | slices.LaneSlice | StatusTable


class Part(InputPartition):
    """The slices that one Spark task reads."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        super().__init__(None)
        self.slices = slices


@in_one_sentence
class BatchReader(DataSourceReader):
    """Plans slices on the driver; tasks read them, each over a connection of its own.

    It writes nothing to the store: it reads rows up to the present, and raises no watermark.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._url = shared_url(options.store())
        self._options = options
        self._table = options.one_of("table", TABLES, "events")
        self._page = options.number("fetchSize", PAGE)
        self._parts = options.number("minPartitions", usual_parts())
        self._losses = Losses(fails=options.flag("failOnDataLoss", default=True))
        self._names = schemas.wanted(self._table, schema).names
        self._schema = schema
        self._only: dict[str, frozenset[Any]] = {}

    def check(self) -> None:
        """Check the options against the store.

        Raises:
            BadInput: An option is wrong.
            ConfigError: There is no such store.
            NotFound: There is no such queue or stream.
        """
        self._bounds()
        with existing_engine(self._url) as engine:
            chosen_queues(self._options, engine.catalog)
            if self._table == "stream":
                stream_shards.chosen(self._options, self._table, engine)

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the rows among tasks."""
        with existing_engine(self._url) as engine:
            if self._table in ("shards", "workers"):
                return [Part([StatusTable(self._table)])]
            if self._table == "jobs":
                groups: Iterable[Sequence[Any]] = self._lanes(engine)
            else:
                groups = self._rows(engine)
            return [Part(group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the slices of one task, one batch per page."""
        if not isinstance(partition, Part):  # Spark's own, if there are no rows
            return
        schema = schemas.wanted(self._table, self._schema)
        if isinstance(partition.slices[0], StatusTable):
            with existing_engine(self._url) as engine:
                rows = list(status_tables.rows_of(self._table, engine, self._options))
            yield schemas.batch_of_values(rows, schema, table=self._table)
            return
        how = Reading(self._url, self._table, self._page, self._losses)
        yield from batches(how, partition.slices, schema)

    def _lanes(self, engine: Engine) -> Sequence[Sequence[slices.LaneSlice]]:
        names = chosen_queues(self._options, engine.catalog)
        shards = self._options.shards()
        lanes = [
            lane
            for name in names
            if self._may_hold("queue", name)
            for place in (name, dead_queue(name))
            for lane in engine.lanes_of(place)
            if (shards is None or lane.shard in shards)
            and all(self._may_hold(key, value) for key, value in _cells(lane))
        ]
        return slices.cut_lanes(engine.store, lanes, self._parts)

    def _rows(self, engine: Engine) -> Sequence[Sequence[slices.RowSlice]]:
        refs = [
            ref
            for ref in stream_shards.chosen(self._options, self._table, engine)
            if self._may_hold("queue", ref.name) and self._may_hold("shard", ref.shard)
        ]
        start, end = self._bounds()
        present_us = engine.store.clock_us()
        known = stream_shards.trimmed_of(engine.store, [ref.stream for ref in refs])
        wholes: list[slices.RowSlice] = []
        for ref in refs:
            last_us = SEALED_US if ref.is_old else present_us
            until = min(slices.behind(last_us), end.get(str(ref), end[""]))
            after = start.get(str(ref), start[""])
            whole = slices.RowSlice(
                ref.stream, ref.shard, after, until, is_asked=after != slices.START
            )
            wholes.append(self._losses.planned(engine.store, whole, known[ref.stream]))
        return slices.plan(engine.store, wholes, self._parts)

    def _bounds(self) -> tuple[dict[str, slices.Position], dict[str, slices.Position]]:
        """Return start and end positions by shard, with the default under ""."""
        starts, ends = self._options.text("startingOffsets"), self._options.text("endingOffsets")
        start = {"": slices.START} | _positions("startingOffsets", starts, "earliest")
        end = {"": (2**62, b"")} | _positions("endingOffsets", ends, "latest")
        for name, bounds in (("startingTimestamp", start), ("endingTimestamp", end)):
            if self._options.text(name):
                bounds[""] = (moment_us(name, self._options.text(name)), b"")
        return start, end

    def _may_hold(self, key: str, value: object) -> bool:
        return key not in self._only or value in self._only[key]


@in_one_sentence
class PruningReader(BatchReader):
    """A reader that skips lanes and shards that the query's conditions exclude.

    It is a separate class: Spark rejects readers with `pushFilters` in sessions without the setting
    `spark.sql.python.filterPushdown.enabled`.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
        """Collect conditions on keys; Spark still applies all of them to each row."""
        for condition in filters:
            values = None
            if isinstance(condition, EqualTo):
                values = frozenset([condition.value])
            elif isinstance(condition, In):
                values = frozenset(condition.value)
            if (
                values is not None
                and len(condition.attribute) == 1
                and condition.attribute[0] in _PRUNED
            ):
                key = condition.attribute[0]
                self._only[key] = self._only.get(key, values) & values
        return filters


def _cells(lane: Lane) -> Iterator[tuple[str, object]]:
    """Return the values that all rows of a lane share, by column, without its queue."""
    shown = lane._replace(tenant=tenant_of(lane))
    return ((key, getattr(shown, key)) for key in _PRUNED[1:])


class Reading(NamedTuple):
    """How a task reads: store URL, table, page size, and how losses are reported."""

    url: str
    table: str
    page: int
    losses: Losses


def batches(how: Reading, planned: Sequence[Slice], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read slices as Arrow batches, one per page.

    Raises:
        StoreCorrupt: Rows expired before they were read.
    """
    with closing(open_existing(how.url)) as store, collector_paused():
        parts = [part for part in planned if not isinstance(part, StatusTable)]
        yield from read(store, how.table, parts, schema, losses=how.losses, page=how.page)


def moment_us(name: str, text: str) -> int:
    """Parse a timestamp in ISO 8601; UTC if it has no time zone.

    Raises:
        BadInput: It is malformed.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(
            f"{name}={text!r} is not a timestamp.", hint="Use 2026-11-22T10:00:00Z."
        ) from error
    return to_us(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _positions(name: str, text: str, word: str) -> dict[str, slices.Position]:
    if text in ("", word):
        return {}
    try:
        return positions_of(json.loads(text))
    except (json.JSONDecodeError, AttributeError) as error:
        raise BadInput(f"{name} must be {word} or an offset.") from error
