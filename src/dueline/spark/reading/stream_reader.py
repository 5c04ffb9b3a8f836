"""Reading a stream as it grows.

Offsets are positions, at or below the mark of their shard: what lies there stays as it is, so
Spark may read it again. Nothing is kept in the store for a query, but where a named one began:
Spark keeps the rest, and calls `commit` too late and too seldom to rest anything on it.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.core.pagination import record_at
from dueline.core.store import NO_VERSION, Put
from dueline.core.watermark import SEALED_US
from dueline.spark.reading import partitions as slices
from dueline.spark.reading import schemas, shards
from dueline.spark.reading.batch_reader import PAGE, PARTS, Part, Reading, batches, moment_us
from dueline.spark.reading.data_loss import Losses
from dueline.spark.reading.offsets import offset_of, positions_of, within
from dueline.spark.reading.partitions import START, Position, RowSlice, behind
from dueline.spark.reading.shards import Shard
from dueline.spark.runtime.options import FOLLOWED, TABLES, Options, existing_engine

CONSUMERS_PARTITION: Final = "spark-consumers"
"""The records' partition that holds where each named query began."""

POLL_MS: Final = 250
POLL_FILE_MS: Final = 50
"""Spark asks some 90 times a second what is new; so long the answer is the same. A file is asked
sooner: 13 % of a core where JSON files, listed again and again, take 18 % (November 2026)."""

_SET_BACK: Final = "Was the store restored from a backup? A new checkpoint starts anew."

Positions = dict[str, Position]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says what there is on the driver, and reads it where Spark says."""

    def __init__(self, options: Options, schema: StructType) -> None:
        """Take the options, and the columns that are asked for.

        Raises: BadInput: what is asked for cannot be followed.
        """
        self._url = options.store()
        self._options = options
        self._table = options.one_of("table", TABLES, "events")
        if self._table not in FOLLOWED:
            raise BadInput(
                f"The table {self._table} changes where it lies, and cannot be followed.",
                hint=f"Follow {', '.join(FOLLOWED)}, or read it once.",
            )
        if options.text("endingOffsets") or options.text("endingTimestamp"):
            raise BadInput("A stream has no end.", hint="Read it once, or use availableNow.")
        self._page = options.number("fetchSize", PAGE)
        self._parts = options.number("minPartitions", PARTS)
        self._most = options.number("maxRowsPerTrigger", 0, least=0)
        self._poll_ms: int | None = None
        if options.text("pollInterval"):
            self._poll_ms = options.number("pollInterval", POLL_MS, least=0)
        self._losses = Losses(fails=options.flag("failOnDataLoss", default=True))
        self._consumer = options.text("consumer")
        self._start = options.text("startingOffsets", "earliest")
        if self._start == "latest" and not self._consumer:
            raise BadInput(
                "A query that starts at the latest needs a name.",
                hint='Say .option("consumer", "billing"): Spark does not keep where its first batch'
                " began, and a crash in it would lose rows.",
            )
        schemas.wanted(self._table, schema)
        self._schema = schema
        self._frozen: Mapping[str, int] | None = None
        self._asked: tuple[float, Any] | None = None

    # On the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name, as those below)
        """Tell where a new query begins: the same at each call, since Spark does not keep it."""
        with existing_engine(self._url) as engine:
            store = engine.store
            if not self._consumer:
                return offset_of(self._first(engine))
            put = Put(self._consumer, engine.ids.token(), b"", expect=NO_VERSION)
            for _ in range(2):
                if record := record_at(store, CONSUMERS_PARTITION, self._consumer):
                    return dict(json.loads(record.value))
                first = json.dumps(offset_of(self._first(engine))).encode()
                if store.commit(CONSUMERS_PARTITION, [put._replace(value=first)]):
                    break
            return dict(json.loads(first))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Tell how far to read next; `start` itself where nothing is new."""
        if self._asked is not None:
            until_s, known = self._asked
            if known == start and time.monotonic() < until_s:
                return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        places = positions_of(start)
        with existing_engine(self._url) as engine:
            ends = self._ends(engine, places, most)
            usual_ms = POLL_FILE_MS if engine.store.transactional else POLL_MS
        end = offset_of(places | ends)
        poll_ms = usual_ms if self._poll_ms is None else self._poll_ms
        self._asked = (time.monotonic() + poll_ms / 1000, end) if end == start else None
        return end

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Tell how many rows a batch holds."""
        return ReadMaxRows(self._most) if self._most else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Let the query end at what there is now, though more is appended."""
        with existing_engine(self._url) as engine:
            marks = shards.close(engine.store, self._shelves(engine))
            self._frozen = {str(shard): mark_us for shard, mark_us in marks.items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan which task reads what of a batch."""
        befores, afters = positions_of(start), positions_of(end)
        with existing_engine(self._url) as engine:
            store = engine.store
            known = {str(shard): shard for shard in self._shelves(engine)}
            gone_of = shards.gone_of(store, known.values())
            wholes = []
            for name, until in afters.items():
                after = befores.get(name, START)
                if name not in known or until <= after:
                    self._expect_same(name, name in known, after, until)
                    continue
                shard = known[name]
                whole = RowSlice(shard.stream, shard.shard, after, until)
                wholes.append(self._losses.planned(store, whole, gone_of[shard.stream]))
            share = max(1, self._parts // max(1, len(wholes)))
            return [Part([one]) for whole in wholes for one in slices.cut_rows(store, whole, share)]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark says so for one batch when it plans the next."""

    def stop(self) -> None:
        """Do nothing: Spark seldom says so."""

    # On the executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the slices of one task."""
        if not isinstance(partition, Part):
            return
        schema = schemas.wanted(self._table, self._schema)
        how = Reading(self._url, self._table, self._page, self._losses)
        yield from batches(how, partition.slices, schema)

    # What there is

    def _shelves(self, engine: Engine) -> list[Shard]:
        return shards.chosen(self._options, self._table, engine)

    def _first(self, engine: Engine) -> Positions:
        some = self._shelves(engine)
        moment = self._options.text("startingTimestamp")
        if self._start == "latest":
            return {
                str(shard): behind(us) for shard, us in shards.close(engine.store, some).items()
            }
        if moment:
            at_us = moment_us("startingTimestamp", moment)
            if at_us > shards.now_us(engine.store):
                raise BadInput("startingTimestamp lies in the future.", hint='Use "latest".')
            for shard in some:  # what is there stays, and so does what is not
                engine.store.close_until(shard.stream, shard.shard, at_us=at_us - 1)
            return {str(shard): (at_us, b"") for shard in some}
        gone_of = shards.gone_of(engine.store, some)
        earliest = {str(shard): gone_of[shard.stream].get(shard.shard, START) for shard in some}
        if self._start == "earliest":
            return earliest
        try:
            given = positions_of(json.loads(self._start))
        except (json.JSONDecodeError, AttributeError) as error:
            raise BadInput(
                f"startingOffsets={self._start!r} is no place.",
                hint="Use earliest, latest, or an offset.",
            ) from error
        return earliest | {name: place for name, place in given.items() if name in earliest}

    def _ends(self, engine: Engine, places: Positions, most: int) -> Positions:
        """Tell up to where each shard is read next, of those in which something is new."""
        waiting: dict[Shard, int] = {}
        some = self._shelves(engine)
        read_out = {name for shard in some for name in shard.older} - set(map(str, some))
        gone_of = shards.gone_of(engine.store, some)
        for shard in some:
            after = places.get(str(shard), START)
            if self._losses.fails:  # told when the batch is planned otherwise
                whole = RowSlice(shard.stream, shard.shard, after, after)
                self._losses.planned(engine.store, whole, gone_of[shard.stream])
            mark_us = self._mark(engine, shard, after)
            tail = engine.store.tail(
                shard.stream, shard.shard, after=after, limit=1, until_us=mark_us
            )
            if not read_out.issuperset(shard.older):
                continue  # so that what was appended under one key is read in that order
            if tail.rows:
                waiting[shard] = mark_us
            elif mark_us >= SEALED_US:
                read_out.add(str(shard))
        if not most:
            return {str(shard): behind(mark_us) for shard, mark_us in waiting.items()}
        found: dict[str, list[tuple[int, Position]]] = {}
        for shard, mark_us in waiting.items():
            after = places.get(str(shard), START)
            whole = RowSlice(shard.stream, shard.shard, after, behind(mark_us))
            found[str(shard)] = list(slices.places_in(engine.store, whole, most))
        return within(found, most)

    def _mark(self, engine: Engine, shard: Shard, after: Position) -> int:
        """Read a shard's mark; raise it where something lies behind the place, and may be closed.

        Raises: StoreCorrupt: it is lower than where the query stands.
        """
        present = engine.store.close_until(shard.stream, shard.shard, at_us=-1)
        if after[0] > present + 1:
            self._losses.tell(
                f"The query stands at {after[0]} in {shard}, which is closed up to {present} only:"
                " the store was set back.",
                hint=_SET_BACK,
            )
            return -1
        if self._frozen is not None:
            return self._frozen.get(str(shard), -1)
        is_calm = not engine.store.tail(shard.stream, shard.shard, after=after, limit=1).rows
        if is_calm and not shard.is_old:
            return present
        return shards.close_one(engine.store, shard)

    def _expect_same(self, name: str, is_known: bool, after: Position, until: Position) -> None:  # noqa: FBT001
        if until == after:
            return
        if not is_known:
            self._losses.tell(f"The shard {name} of the query's offset is gone.", hint=_SET_BACK)
        elif until < after:
            self._losses.tell(
                f"The query's offset goes back in {name}, from {after[0]} to {until[0]}.",
                hint=_SET_BACK,
            )
