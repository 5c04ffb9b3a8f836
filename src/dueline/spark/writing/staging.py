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
from dueline.core.job import JobId
from dueline.core.pagination import record_at
from dueline.core.store import NO_VERSION, Commit, Group, Put
from dueline.core.wakeup import place_of
from dueline.jobs.decisions import joined
from dueline.spark.writing.conflicts import (
    EXISTING,
    REJECT,
    elsewhere,
    moves,
    reject,
    reject_elsewhere,
)
from dueline.spark.writing.enqueue import CHUNK, Written, rows_elsewhere, split, unique_jobs
from dueline.spark.writing.rows_to_jobs import (
    NEW_JOBS,
    Form,
    adopt_needs,
    by_id,
    chunks_of,
    in_order,
    jobs_of,
    only,
    without_repeats,
)
from dueline.spark.writing.write_log import ROUNDS_MAX, with_keys

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
            for chunk in chunks_of(batches, form, CHUNK, now_us):
                writer.write_batch(chunk)
    except BaseException:
        Path(path).unlink()
        raise
    return Staged(write, path)


def publish(
    engine: Engine,
    files: Sequence[Staged],
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
    write, store = files[0].write, engine.store
    unique = unique_jobs(engine)
    all_rows = rows = in_order(_staged_jobs(files))
    repeats: list[tuple[JobId, str]] = []
    for _ in range(ROUNDS_MAX):
        if record_at(store, STAGED_PARTITION, write) is not None:
            break
        rows, repeats = without_repeats(all_rows)
        ids = rows.column("id").to_pylist()
        now_us = engine.time.earliest_us()
        living = [job for job in store.find(ids) if job is not None]
        alive = {job.id for job in living}
        rows_alive = by_id(rows, list(alive))
        others = elsewhere(living, rows_alive)
        new = only(rows, [job_id for job_id in ids if job_id not in alive]) if alive else rows
        try:
            if on_other_queue == REJECT:
                reject_elsewhere(split(rows, repeats) | others)
            if on_conflict == REJECT:
                reject(alive)
            adopt_needs(engine.catalog, new)
            made = jobs_of(new, now_us=now_us, settings=engine.catalog.settings)
            group = with_keys(unique, made)
        except Conflict:
            clear(files)
            raise
        changes = moves(living, rows_alive, on_conflict, engine=engine, now_us=now_us)
        skipped = rows_elsewhere(rows, repeats, others)
        counts = Written(all_rows.num_rows, len(group.jobs), skipped, len(made) - len(group.jobs))
        put = Put(write, engine.ids.token(), encode(all_rows.num_rows), NO_VERSION, expires_us)
        own = Group(changes, (Commit(STAGED_PARTITION, (put,)), counts_commit(counts)))
        if engine.recording_store.together([joined([own, group])])[0]:
            engine.announce(group.jobs)
            engine.wake(map(place_of, changes))
            break
    else:
        raise StoreUnavailable(
            f"Workers keep claiming jobs that the write {write} changes.",
            hint="Let Spark run the write again.",
        )
    clear(files)


def clear(files: Sequence[Staged]) -> None:
    """Delete the staged files."""
    for staged in files:
        with suppress(FileNotFoundError):
            Path(staged.path).unlink()


def _staged_jobs(files: Sequence[Staged]) -> pa.RecordBatch:
    tables = []
    for staged in files:
        with pa.ipc.open_file(staged.path) as reader:
            tables.append(reader.read_all())
    (batch,) = pa.concat_tables(tables).combine_chunks().to_batches() or [
        pa.RecordBatch.from_pylist([], NEW_JOBS)
    ]
    return batch
