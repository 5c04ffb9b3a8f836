"""Writes that show as a whole or not at all.

Tasks write files of Arrow on their machine, which is the driver's too, since the store is a file
there. The driver puts what they hold in one transaction, together with a record of the write: a
batch that is replayed, and a commit that is repeated, find it and put nothing.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.errors import Conflict, StoreUnavailable
from dueline.core.pagination import record_at
from dueline.core.store import NO_VERSION, Commit, Group, Put
from dueline.spark.writing.conflicts import (
    EXISTING,
    REJECT,
    elsewhere,
    moves,
    reject,
    reject_elsewhere,
)
from dueline.spark.writing.enqueue import CHUNK, Written, rows_elsewhere, split
from dueline.spark.writing.rows_to_jobs import (
    BIRTHS,
    Birth,
    Form,
    chunks_of,
    from_arrow,
    in_order,
    jobs_of,
    to_arrow,
)
from dueline.spark.writing.write_log import ROUNDS_MAX

STAGED_PARTITION: Final = "spark-staged"
"""The records' partition that holds which staged writes were published, by name."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task has laid ready, and for which write."""

    write: str
    path: str


def lay_ready(batches: Iterator[pa.RecordBatch], form: Form, write: str, now_us: int) -> Staged:
    """Write a task's rows to a file as births, each checked; a task that fails leaves none.

    Raises: BadInput: a row of which no job can be made.
    """
    handle, path = tempfile.mkstemp(prefix="dueline-", suffix=".arrow")
    try:
        with os.fdopen(handle, "wb") as file, pa.ipc.new_file(file, BIRTHS) as writer:
            for some in chunks_of(batches, form, CHUNK, now_us):
                writer.write_batch(to_arrow(in_order(some)))  # few runs for `publish` to merge
    except BaseException:
        Path(path).unlink()
        raise
    return Staged(write, path)


def publish(
    engine: Engine,
    some: Sequence[Staged],
    *,
    told: Callable[[Written], Commit],
    expires_us: int,
    on_conflict: str = EXISTING,
    on_other_queue: str = REJECT,
) -> None:
    """Put all that tasks have laid ready, in one transaction, unless it was put before.

    Args:
      told: makes the write that keeps the counts.
      on_conflict, on_other_queue: see `ON_CONFLICT` and `ON_OTHER_QUEUE`.

    Raises:
      Conflict: jobs are alive by another write, or in another queue, and that is to be an error;
        nothing is put, and what was laid ready goes.
      StoreUnavailable: jobs that were to be changed are claimed again and again; nothing is put.
    """
    write, store = some[0].write, engine.store
    rows: list[Birth] = []
    for _ in range(ROUNDS_MAX):
        if record_at(store, STAGED_PARTITION, write) is not None:
            break
        rows = rows or [birth for one in some for birth in _births(one.path)]
        by_id = {birth.id: birth for birth in in_order(rows)}
        now_us = engine.time.earliest_us()
        living = [job for job in store.find(list(by_id)) if job is not None]
        found = elsewhere(living, by_id)
        try:
            if on_other_queue == REJECT:
                reject_elsewhere(split(rows, by_id) | found)
            if on_conflict == REJECT:
                reject([job.id for job in living])
        except Conflict:
            clear(some)
            raise
        changes = moves(living, by_id, on_conflict, engine=engine, now_us=now_us)
        alive = {job.id for job in living}
        jobs = jobs_of(
            [birth for birth in by_id.values() if birth.id not in alive],
            now_us=now_us,
            settings=engine.catalog.settings,
        )
        counts = Written(len(rows), len(jobs), rows_elsewhere(rows, by_id, found))
        put = Put(write, engine.ids.token(), encode(len(rows)), NO_VERSION, expires_us)
        commits = (Commit(STAGED_PARTITION, (put,)), told(counts))
        if engine.recording_store.together([Group(changes, commits, jobs)])[0]:
            engine.announce(jobs)
            engine.wake((move.job.lane.queue, move.at_us) for move in changes)
            break
    else:
        raise StoreUnavailable(
            f"Jobs that the write {write} is to change are claimed again and again.",
            hint="Let Spark run the write again.",
        )
    clear(some)


def clear(some: Sequence[Staged]) -> None:
    """Remove the files of tasks."""
    for one in some:
        with suppress(FileNotFoundError):
            Path(one.path).unlink()


def _births(path: str) -> Iterator[Birth]:
    with pa.ipc.open_file(path) as reader:
        for number in range(reader.num_record_batches):
            yield from from_arrow(reader.get_batch(number))
