"""Stream reader for Spark's structured streaming.

Offsets are positions at or below the watermark of their shard. Rows below a watermark never
change, so Spark can read them again. The store keeps only the start of named queries; Spark keeps
the rest. Spark calls `commit` late and seldom, so nothing depends on it.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from dueline.api.connect import existing_engine, shared_url
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, DuelineError
from dueline.core.pagination import record_at
from dueline.core.store import NO_VERSION, Put, Store
from dueline.core.watermark import SEALED_US
from dueline.jobs.history_batch import size_of
from dueline.spark.reading import partitions as slices
from dueline.spark.reading import schemas, shards
from dueline.spark.reading.arrow_batches import PAGE
from dueline.spark.reading.batch_reader import Part, Reading, batches, moment_us
from dueline.spark.reading.data_loss import Losses
from dueline.spark.reading.lag import lag_of
from dueline.spark.reading.offsets import offset_of, positions_of, within
from dueline.spark.reading.partitions import START, Position, RowSlice, behind
from dueline.spark.reading.shards import Shard
from dueline.spark.runtime.options import FOLLOWED, TABLES, Options, usual_parts
from dueline.spark.runtime.refusals import in_one_sentence

CONSUMERS_PARTITION: Final = "spark-consumers"
"""Record partition with the start offset of each named query."""

POLL_MS: Final = 250
POLL_FILE_MS: Final = 50
"""Poll intervals for a server and for a file, in milliseconds. Spark asks for the latest offset
about 90 times a second; within the interval it gets the previous answer."""

DELAY: Final = "15m"
"""How long a batch of fewer than `minRowsPerTrigger` rows waits by default, as in Spark's Kafka
source."""

_SET_BACK: Final = "If the store was restored from a backup, start with a new checkpoint."

Positions = dict[str, Position]


@in_one_sentence
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches on the driver; tasks read them."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._url = shared_url(options.store())
        self._options = options
        self._table = options.one_of("table", TABLES, "events")
        if self._table not in FOLLOWED:
            raise BadInput(
                f"The table {self._table} is updated in place and cannot be followed.",
                hint=f"Follow {', '.join(FOLLOWED)}, or read it once.",
            )
        if options.text("endingOffsets") or options.text("endingTimestamp"):
            raise BadInput("A stream has no end.", hint="Read it once, or use availableNow.")
        self._page = options.number("fetchSize", PAGE)
        self._parts = options.number("minPartitions", usual_parts())
        self._most = options.number("maxRowsPerTrigger", 0, least=0)
        self._least = options.number("minRowsPerTrigger", 0, least=0)
        if self._most and self._least > self._most:
            raise BadInput("minRowsPerTrigger must be at most maxRowsPerTrigger.")
        self._delay_s = options.seconds("maxTriggerDelay", DELAY)
        self._poll_ms: int | None = None
        if options.text("pollInterval"):
            self._poll_ms = options.number("pollInterval", POLL_MS, least=0)
        self._losses = Losses(fails=options.flag("failOnDataLoss", default=True))
        self._consumer = options.text("consumer")
        self._start = options.text("startingOffsets", "earliest")
        if self._start == "latest" and not self._consumer:
            raise BadInput(
                'A query that starts at "latest" needs a name.',
                hint='Set .option("consumer", "billing"): Spark does not store where the first'
                " batch started, so a crash in it would lose rows.",
            )
        schemas.wanted(self._table, schema)
        self._schema = schema
        self._frozen: Mapping[str, int] | None = None
        self._asked: tuple[float, Any] | None = None
        self._due_s = 0.0  # when the next batch is planned however few rows it has
        self._latest: dict[str, Any] | None = None

    # On the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name, as those below)
        """Return the start of a new query, the same at each call: Spark does not store it."""
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
        """Return the end of the next batch; `start` if there are no new rows."""
        if self._asked is not None:
            until_s, known = self._asked
            if known == start and time.monotonic() < until_s:
                return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        places = positions_of(start)
        with existing_engine(self._url) as engine:
            waiting, held = self._waiting(engine, places)
            store, now_us = engine.store, engine.time.earliest_us()
            usual_ms = POLL_FILE_MS if store.transactional else POLL_MS
            ends: Positions = {}
            if isinstance(limit, ReadAllAvailable) or self._is_enough(store, waiting.values()):
                ends = self._ends(store, waiting, most)
            left = [
                whole._replace(after=ends.get(name, whole.after))
                for name, whole in (waiting | held).items()
            ]
            lag = lag_of(store, left, now_us=now_us)
        end = offset_of(places | ends)
        latest = places | {name: whole.until for name, whole in (waiting | held).items()}
        self._latest = offset_of(latest) | lag.shown()
        poll_ms = usual_ms if self._poll_ms is None else self._poll_ms
        self._asked = (time.monotonic() + poll_ms / 1000, end) if end == start else None
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the newest position and how far behind it the planned batch ends."""
        return self._latest

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the maximum number of rows of a batch, else the minimum."""
        if self._most:
            return ReadMaxRows(self._most)
        return ReadMinRows(self._least) if self._least else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Make the query end at the rows that exist now."""
        with existing_engine(self._url) as engine:
            marks = shards.close(engine.store, self._shards(engine))
            self._frozen = {str(ref): mark_us for ref, mark_us in marks.items()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide the rows of a batch among tasks."""
        befores, afters = positions_of(start), positions_of(end)
        with existing_engine(self._url) as engine:
            store = engine.store
            known = {str(ref): ref for ref in self._shards(engine)}
            trimmed_of = shards.trimmed_of(store, [ref.stream for ref in known.values()])
            wholes = []
            for name, until in afters.items():
                after = befores.get(name, START)
                if name not in known or until <= after:
                    self._expect_same(name, name in known, after, until)
                    continue
                ref = known[name]
                whole = RowSlice(ref.stream, ref.shard, after, until)
                wholes.append(self._losses.planned(store, whole, trimmed_of[ref.stream]))
            return [Part(group) for group in slices.plan(store, wholes, self._parts)]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark reports one batch when it plans the next."""

    def stop(self) -> None:
        """Do nothing: Spark seldom calls it."""

    # On the executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the slices of one task."""
        if not isinstance(partition, Part):
            return
        schema = schemas.wanted(self._table, self._schema)
        how = Reading(self._url, self._table, self._page, self._losses)
        yield from batches(how, partition.slices, schema)

    # What there is

    def _shards(self, engine: Engine) -> list[Shard]:
        return shards.chosen(self._options, self._table, engine)

    def _first(self, engine: Engine) -> Positions:
        refs = self._shards(engine)
        moment = self._options.text("startingTimestamp")
        if self._start == "latest":
            return {str(ref): behind(us) for ref, us in shards.close(engine.store, refs).items()}
        if moment:
            at_us = moment_us("startingTimestamp", moment)
            if at_us > shards.now_us(engine.store):
                raise BadInput("startingTimestamp is in the future.", hint='Use "latest".')
            for ref in refs:  # fixes which rows are before the start
                engine.store.close_until(ref.stream, ref.shard, at_us=at_us - 1)
            return {str(ref): (at_us, b"") for ref in refs}
        trimmed_of = shards.trimmed_of(engine.store, [ref.stream for ref in refs])
        earliest = {str(ref): trimmed_of[ref.stream].get(ref.shard, START) for ref in refs}
        if self._start == "earliest":
            return earliest
        try:
            given = positions_of(json.loads(self._start))
        except (json.JSONDecodeError, AttributeError) as error:
            raise BadInput(
                f"startingOffsets={self._start!r} is not a position.",
                hint="Use earliest, latest, or an offset.",
            ) from error
        return earliest | {name: place for name, place in given.items() if name in earliest}

    def _waiting(
        self, engine: Engine, places: Positions
    ) -> tuple[dict[str, RowSlice], dict[str, RowSlice]]:
        """Return the unread rows of shards to read now, and of those that others precede."""
        waiting: dict[str, RowSlice] = {}
        held: dict[str, RowSlice] = {}
        refs = self._shards(engine)
        read_out = {name for ref in refs for name in ref.older} - set(map(str, refs))
        trimmed_of = shards.trimmed_of(engine.store, [ref.stream for ref in refs])
        for ref in refs:
            after = places.get(str(ref), START)
            whole = RowSlice(ref.stream, ref.shard, after, after)
            if self._losses.fails:  # a warning is logged when the batch is planned
                self._losses.planned(engine.store, whole, trimmed_of[ref.stream])
            mark_us = self._mark(engine, ref, after)
            tail = engine.store.tail(ref.stream, ref.shard, after=after, limit=1, until_us=mark_us)
            is_next = read_out.issuperset(ref.older)  # keeps the order of rows of one key
            if tail.rows:
                (waiting if is_next else held)[str(ref)] = whole._replace(until=behind(mark_us))
            elif is_next and mark_us >= SEALED_US:
                read_out.add(str(ref))
        return waiting, held

    def _ends(self, store: Store, waiting: Mapping[str, RowSlice], most: int) -> Positions:
        """Return the positions up to which to read."""
        if not most:
            return {name: whole.until for name, whole in waiting.items()}
        places = {name: list(slices.places_in(store, part, most)) for name, part in waiting.items()}
        return within(places, most)

    def _is_enough(self, store: Store, waiting: Iterable[RowSlice]) -> bool:
        """Return whether there are as many rows as a batch has at least, or they waited enough."""
        if not self._least or self._frozen is not None:
            return True
        if time.monotonic() < self._due_s:
            left = self._least
            for part in waiting:
                left -= sum(map(size_of, slices.first_rows(store, part, left))) if left > 0 else 0
            if left > 0:
                return False
        self._due_s = time.monotonic() + self._delay_s
        return True

    def _mark(self, engine: Engine, ref: Shard, after: Position) -> int:
        """Return a shard's watermark, raised first if there are rows after the position."""
        stream, shard = ref.stream, ref.shard
        present = engine.store.close_until(stream, shard, at_us=-1)
        if after[0] > present + 1:
            self._losses.tell(
                f"The query is at {after[0]} in {ref}, which is closed only up to {present}:"
                " the store went back in time.",
                hint=_SET_BACK,
            )
            return -1
        if self._frozen is not None:
            return self._frozen.get(str(ref), -1)
        is_calm = not engine.store.tail(stream, shard, after=after, limit=1).rows
        if is_calm and not ref.is_old:
            return present
        return shards.close_one(engine.store, ref)

    def _expect_same(self, name: str, is_known: bool, after: Position, until: Position) -> None:  # noqa: FBT001
        if until == after:
            return
        if not is_known:
            self._losses.tell(f"The shard {name} of the offset does not exist.", hint=_SET_BACK)
        elif until < after:
            self._losses.tell(
                f"The query's offset goes back in {name}, from {after[0]} to {until[0]}.",
                hint=_SET_BACK,
            )


@in_one_sentence
class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the error of a stream that cannot be followed, at the first call.

    Spark 4.3 replaces an error that `streamReader` raises by one of its own.
    """

    def __init__(self, error: DuelineError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Raise the error."""
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """Raise the error."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Raise the error."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002
        """Raise the error."""
        raise self._error
