"""Spark sinks that enqueue rows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from dueline.api.connect import existing_engine, open_existing, shared_url
from dueline.core.call_options import Mode
from dueline.core.clock import DAY_US, SECOND_US, SystemClock
from dueline.core.codec import decode, encode
from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.core.ids import Ids
from dueline.core.pagination import record_at
from dueline.core.store import Commit, Put, Store
from dueline.spark.runtime.garbage import collector_paused
from dueline.spark.runtime.options import Options
from dueline.spark.runtime.refusals import in_one_sentence
from dueline.spark.writing import staging
from dueline.spark.writing.conflicts import EXISTING, ON_CONFLICT, ON_OTHER_QUEUE, REJECT
from dueline.spark.writing.enqueue import CHUNK, Written, put_all
from dueline.spark.writing.rows_to_jobs import Form, check_columns, chunks_of
from dueline.spark.writing.staging import Staged

KEEP_DAYS: Final = 7
_MODES: Final[Mapping[str, Mode]] = {EXISTING: "existing", REJECT: "reject"}
"""For rows whose unique key another job holds: they are left out, or the write fails."""

WRITES_PARTITION: Final = "spark-writes"
"""Record partition with the counts of each write, by its name."""

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Task properties with the ids of the query and the batch."""


@dataclass(frozen=True)
class Message(WriterCommitMessage):
    """Counts of one task of a write."""

    write: str
    done: Written


class _Sink:
    """What the batch sink and the stream sink share."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:  # noqa: FBT001
        if overwrite:
            raise BadInput(
                "A queue cannot be overwritten.",
                hint='Use .mode("append"), or .outputMode("append") for a stream.',
            )
        self._url = shared_url(options.store())
        self._is_staged = options.one_of("writeMode", ("direct", "staged"), "direct") == "staged"
        with closing(open_existing(self._url)) as store:
            if self._is_staged and not store.transactional:
                raise BadInput(
                    "This store has no transactions, so a write cannot be atomic.",
                    hint="Use writeMode=direct: repeat a failed write to add the rest.",
                )
            self._form = Form(
                options.text("queue"),
                options.text("task"),
                tuple(options.names("idColumns")),
                _MODES[options.one_of("onUnique", tuple(_MODES), EXISTING)],
                round(options.seconds("uniqueWithin", "0s") * SECOND_US),
            )
        self._run = uuid4().hex
        self._chunk = options.number("chunkRows", CHUNK)
        self._on_conflict = options.one_of("onConflict", ON_CONFLICT, EXISTING)
        self._on_other_queue = options.one_of("onOtherQueue", ON_OTHER_QUEUE, REJECT)
        self._keep_us = options.number("keepDays", KEEP_DAYS) * DAY_US
        names = schema.fieldNames()
        check_columns(names, self._form)

    @contextmanager
    def _engine(self) -> Iterator[Engine]:
        """Open the store."""
        with existing_engine(self._url) as engine:
            yield engine

    def _write(self, batches: Iterator[pa.RecordBatch], write: str) -> WriterCommitMessage:
        if self._is_staged:
            with collector_paused():
                return staging.stage(batches, self._form, write, SystemClock().wall_us())
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        is_first = context is not None and context.attemptNumber() == 0
        with self._engine() as engine, collector_paused():
            chunks = chunks_of(batches, self._form, self._chunk, engine.time.earliest_us())
            done = put_all(
                engine,
                chunks,
                write,
                partition,
                keep_us=self._keep_us,
                on_conflict=self._on_conflict,
                on_other_queue=self._on_other_queue,
                run=self._run if is_first else "",
            )
        return Message(write, done)

    def _keep(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what was staged, and store the counts of the write."""
        staged = [message for message in messages if isinstance(message, Staged)]
        if staged:
            with self._engine() as engine, collector_paused():
                expires_us = engine.store.clock_us() + self._keep_us

                def counts_commit(done: Written) -> Commit:
                    put = _counts(staged[0].write, done, expires_us)
                    return Commit(WRITES_PARTITION, (put,))

                staging.publish(
                    engine,
                    staged,
                    counts_commit=counts_commit,
                    expires_us=expires_us,
                    on_conflict=self._on_conflict,
                    on_other_queue=self._on_other_queue,
                )
        counts = [message for message in messages if isinstance(message, Message)]
        if counts:
            done = Written()
            for message in counts:
                done = done.plus(message.done)
            with closing(open_existing(self._url)) as store:
                expires_us = store.clock_us() + self._keep_us
                store.commit(WRITES_PARTITION, [_counts(counts[0].write, done, expires_us)])

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Keep the jobs that were added, and delete staged files."""
        staging.clear([message for message in messages if isinstance(message, Staged)])


@in_one_sentence
class BatchSink(_Sink, DataSourceArrowWriter):
    """Enqueues the rows of a table; each task connects by itself."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:  # noqa: FBT001
        super().__init__(options, schema, overwrite)
        self._name = options.text("writeId") or uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Enqueue the rows of one task, except those that this write added before."""
        return self._write(iterator, self._name)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Store the counts."""
        self._keep(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Keep the jobs that were added: the same writeId does not add them again."""
        self._abort(messages)


@in_one_sentence
class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """Enqueues the rows of a stream; a replayed batch adds nothing again."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:  # noqa: FBT001
        super().__init__(options, schema, overwrite)
        self._name = options.text("sinkId")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Enqueue the rows of one task of a batch.

        Raises:
            BadInput: Spark does not report which batch this is.
        """
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context else None
        batch = context.getLocalProperty(_BATCH) if context else None
        name = self._name or query
        if not name or not batch:
            raise BadInput("Spark does not report the query and batch of this task.")
        return self._write(iterator, f"{name}/{batch}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Store the counts."""
        self._keep(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Keep the jobs that were added: the replay of the batch adds the rest."""
        self._abort(messages)


def written(store: Store, write: str) -> Written:
    """Return the counts of a write; zeros if they are unknown or expired."""
    record = record_at(store, WRITES_PARTITION, write)
    return Written() if record is None else Written(**decode(record.value, dict[str, int]))


def _counts(write: str, done: Written, expires_us: int) -> Put:
    return Put(write, Ids().token(), encode(done._asdict()), expires_us=expires_us)
