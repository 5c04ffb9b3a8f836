"""Atomic writes.

Tasks write Arrow files on their machine. The store is a file on the same machine, so the driver
runs there too. The driver adds all jobs in one transaction, together with a record of the write.
A replayed batch or a repeated commit finds the record and adds nothing.
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
from dueline.core.wakeup import place_of
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
    NEW_JOBS,
    Form,
    NewJob,
    chunks_of,
    from_arrow,
    in_order,
    jobs_of,
    to_arrow,
)
from dueline.spark.writing.write_log import ROUNDS_MAX

STAGED_PARTITION: Final = "spark-staged"
"""Record partition with the names of the staged writes that were published."""


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The file that a task has staged for a write."""

    write: str
    path: str


def stage(batches: Iterator[pa.RecordBatch], form: Form, write: str, now_us: int) -> Staged:
    """Write a task's rows to a file as validated new jobs; a failed task leaves no file.

    Raises:
        BadInput: A row cannot become a job.
    """
    handle, path = tempfile.mkstemp(prefix="dueline-", suffix=".arrow")
    try:
        with os.fdopen(handle, "wb") as file, pa.ipc.new_file(file, NEW_JOBS) as writer:
            for some in chunks_of(batches, form, CHUNK, now_us):
                writer.write_batch(to_arrow(in_order(some)))  # `publish` sorts fewer runs
    except BaseException:
        Path(path).unlink()
        raise
    return Staged(write, path)


def publish(
    engine: Engine,
    some: Sequence[Staged],
    *,
    counts_commit: Callable[[Written], Commit],
    expires_us: int,
    on_conflict: str = EXISTING,
    on_other_queue: str = REJECT,
) -> None:
    """Add all staged jobs in one transaction, unless they were added before.

    Args:
        counts_commit: Makes the commit that stores the counts.
        expires_us: When the record of the write expires.
        on_conflict: See `ON_CONFLICT`.
        on_other_queue: See `ON_OTHER_QUEUE`.

    Raises:
        Conflict: Jobs are unfinished from another write or in another queue, and the options
            make that an error. Nothing was added; staged files are deleted.
        StoreUnavailable: Workers claimed the jobs to change again and again. Nothing was added.
    """
    write, store = some[0].write, engine.store
    rows: list[NewJob] = []
    for _ in range(ROUNDS_MAX):
        if record_at(store, STAGED_PARTITION, write) is not None:
            break
        rows = rows or [new_job for one in some for new_job in _staged_jobs(one.path)]
        by_id = {new_job.id: new_job for new_job in in_order(rows)}
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
            [new_job for new_job in by_id.values() if new_job.id not in alive],
            now_us=now_us,
            settings=engine.catalog.settings,
        )
        counts = Written(len(rows), len(jobs), rows_elsewhere(rows, by_id, found))
        put = Put(write, engine.ids.token(), encode(len(rows)), NO_VERSION, expires_us)
        commits = (Commit(STAGED_PARTITION, (put,)), counts_commit(counts))
        if engine.recording_store.together([Group(changes, commits, jobs)])[0]:
            engine.announce(jobs)
            engine.wake(map(place_of, changes))
            break
    else:
        raise StoreUnavailable(
            f"Workers keep claiming jobs that the write {write} changes.",
            hint="Let Spark run the write again.",
        )
    clear(some)


def clear(some: Sequence[Staged]) -> None:
    """Delete the staged files."""
    for one in some:
        with suppress(FileNotFoundError):
            Path(one.path).unlink()


def _staged_jobs(path: str) -> Iterator[NewJob]:
    with pa.ipc.open_file(path) as reader:
        for number in range(reader.num_record_batches):
            yield from from_arrow(reader.get_batch(number))
