"""Enqueueing a table."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from dueline.clock import DAY_US, SystemClock
from dueline.codec import decode, encode
from dueline.errors import BadInput
from dueline.ids import Ids
from dueline.job import Job, JobId
from dueline.paging import record_at
from dueline.spark import staging
from dueline.spark.births import Birth, Form, births, check_columns, jobs_of
from dueline.spark.ledger import Ledger
from dueline.spark.options import Options, existing_queues, open_existing
from dueline.spark.staging import Staged
from dueline.store import Commit, Put, Store

CHUNK: Final = 20_000
KEEP_DAYS: Final = 7
WRITES_PARTITION: Final = "spark-writes"
"""The records' partition that holds what each write came to, by its name."""

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""Where Spark tells a task of which query and batch it is."""


class Written(NamedTuple):
    """What a write came to. rows: of the data. added: jobs that were not there before."""

    rows: int = 0
    added: int = 0


@dataclass(frozen=True)
class Message(WriterCommitMessage):
    """What a task came to, of which write."""

    write: str
    rows: int
    added: int


class _Sink:
    """What batches and streams share."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:  # noqa: FBT001
        """Take the options, and the columns of the data.

        Raises: BadInput: no jobs can be made of them.
        """
        if overwrite:
            raise BadInput(
                "A queue cannot be overwritten.",
                hint='Say .mode("append"), or .outputMode("append") of a stream.',
            )
        self._url = options.store()
        self._is_staged = options.one_of("writeMode", ("direct", "staged"), "direct") == "staged"
        with closing(open_existing(self._url)) as store:
            if self._is_staged and not store.transactional:
                raise BadInput(
                    "This store has no transactions, so a write cannot show as a whole.",
                    hint="Use writeMode=direct: a write that is repeated puts the rest.",
                )
            self._form = Form(
                options.text("queue"), options.text("task"), tuple(options.names("idColumns"))
            )
        self._chunk = options.number("chunkRows", CHUNK)
        self._keep_us = options.number("keepDays", KEEP_DAYS) * DAY_US
        check_columns(schema.fieldNames(), self._form)

    def _write(self, batches: Iterator[pa.RecordBatch], write: str) -> WriterCommitMessage:
        if self._is_staged:
            return staging.lay_ready(batches, self._form, write, SystemClock().wall_us())
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        rows = added = 0
        with existing_queues(self._url) as queues:
            now_us = queues.time.earliest_us()
            expires_us = now_us + self._keep_us
            token = queues.ids.token
            ledger = Ledger(queues.store, write, partition, token=token, expires_us=expires_us)
            for some in _chunks(batches, self._form, self._chunk, now_us):
                by_id = {birth.id: birth for birth in some}
                made: list[Job] = []

                def make(ids: Sequence[JobId], born_us: int) -> Sequence[Job]:
                    chosen = [by_id[one] for one in ids]  # noqa: B023  (called at once)
                    made[:] = jobs_of(chosen, now_us=born_us, settings=queues.catalog.settings)  # noqa: B023
                    return made  # noqa: B023

                rows += len(some)
                added += ledger.put(list(by_id), make, now_us=queues.time.earliest_us())
                queues.landed(made)
            ledger.close()
        return Message(write, rows, added)

    def _keep(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what was staged; keep what the write came to, for whoever asks."""
        staged = [one for one in messages if isinstance(one, Staged)]
        if staged:
            with existing_queues(self._url) as queues:
                expires_us = queues.store.clock_us() + self._keep_us

                def told(rows: int, added: int) -> Commit:
                    put = _counts(staged[0].write, rows, added, expires_us)
                    return Commit(WRITES_PARTITION, (put,))

                staging.publish(queues, staged, self._form, told=told, expires_us=expires_us)
        some = [one for one in messages if isinstance(one, Message)]
        if some:
            rows, added = sum(one.rows for one in some), sum(one.added for one in some)
            with closing(open_existing(self._url)) as store:
                expires_us = store.clock_us() + self._keep_us
                store.commit(WRITES_PARTITION, [_counts(some[0].write, rows, added, expires_us)])

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave what was put, and let go of what was staged."""
        staging.clear([one for one in messages if isinstance(one, Staged)])


class BatchSink(_Sink, DataSourceArrowWriter):
    """Puts the rows of a table; each task connects by itself."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:  # noqa: FBT001
        """Take the options, and the columns of the data; name the write."""
        super().__init__(options, schema, overwrite)
        self._name = options.text("writeId") or uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Put the rows of one task; what it put before is not put again."""
        return self._write(iterator, self._name)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Keep the counts."""
        self._keep(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave what was put: it is not put again under the same writeId."""
        self._abort(messages)


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """Puts the rows of a stream; a batch that is replayed puts nothing again."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:  # noqa: FBT001
        """Take the options, and the columns of the data."""
        super().__init__(options, schema, overwrite)
        self._name = options.text("sinkId")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Put the rows of one task of a batch.

        Raises: BadInput: Spark does not say which batch this is.
        """
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context else None
        batch = context.getLocalProperty(_BATCH) if context else None
        name = self._name or query
        if not name or not batch:
            raise BadInput("Spark does not say of which query and batch this task is.")
        return self._write(iterator, f"{name}/{batch}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Keep the counts."""
        self._keep(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Leave what was put: the batch's replay puts the rest."""
        self._abort(messages)


def written(store: Store, write: str) -> Written:
    """Tell what a write came to; nothing where it is not known, or not any more."""
    record = record_at(store, WRITES_PARTITION, write)
    return Written() if record is None else Written(**decode(record.value, dict[str, int]))


def _counts(write: str, rows: int, added: int, expires_us: int) -> Put:
    told = {"rows": rows, "added": added}
    return Put(write, Ids().token(), encode(told), expires_us=expires_us)


def _chunks(
    batches: Iterator[pa.RecordBatch], form: Form, most: int, now_us: int
) -> Iterator[list[Birth]]:
    """Make births of all rows, about `most` at a time."""
    some: list[Birth] = []
    for batch in batches:
        for place in range(0, batch.num_rows, most):
            some += births(batch.slice(place, most), form, now_us=now_us)
            if len(some) >= most:
                yield some
                some = []
    if some:
        yield some
