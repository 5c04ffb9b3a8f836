"""Adding jobs of data, each once."""

from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Final, NamedTuple

import pyarrow as pa

from dueline.core.engine import Engine
from dueline.core.job import Job, JobId
from dueline.core.store import Move
from dueline.core.wakeup import place_of
from dueline.jobs.unique import UniqueJobs
from dueline.spark.writing.conflicts import (
    EARLIEST,
    EXISTING,
    REJECT,
    REPLACE,
    elsewhere,
    moves,
    reject_elsewhere,
)
from dueline.spark.writing.rows_to_jobs import adopt_needs, by_id, jobs_of, only, without_repeats
from dueline.spark.writing.write_log import Dues, Ledger

CHUNK: Final = 20_000
"""Default number of rows that are added in one transaction."""


class Written(NamedTuple):
    """Counts of a write.

    Attributes:
        rows: Rows of the data.
        added: Jobs that did not exist before.
        elsewhere: Rows that were skipped because a job with their id was in another queue.
        held: Rows that were skipped because another job holds their unique key.
    """

    rows: int = 0
    added: int = 0
    elsewhere: int = 0
    held: int = 0

    def plus(self, other: "Written") -> "Written":
        """Return the sum with the counts of another part."""
        return Written(*map(add, self, other))


def split(rows: pa.RecordBatch, repeats: Sequence[tuple[JobId, str]]) -> dict[JobId, str]:
    """Return the ids that rows give to jobs of several queues, each with one queue.

    Args:
        rows: The rows that become jobs.
        repeats: Ids and queues of rows with the same ids.
    """
    kept = by_id(rows, [job_id for job_id, _ in repeats])
    return {job_id: queue for job_id, queue in repeats if queue != kept[job_id].queue}


def rows_elsewhere(
    rows: pa.RecordBatch, repeats: Sequence[tuple[JobId, str]], living: Mapping[JobId, str]
) -> int:
    """Count the rows that are skipped because their job is in another queue.

    Args:
        rows: The rows that become jobs.
        repeats: Ids and queues of rows with the same ids.
        living: Jobs that are unfinished in another queue than these rows name, with that queue.
    """
    kept = by_id(rows, [job_id for job_id, _ in repeats])
    return len(living) + sum(
        queue != living.get(job_id, kept[job_id].queue) for job_id, queue in repeats
    )


def put_all(
    engine: Engine,
    chunks: Iterable[pa.RecordBatch],
    write: str,
    partition: int,
    *,
    keep_us: int,
    on_conflict: str = EXISTING,
    on_other_queue: str = REJECT,
    run: str = "",
) -> Written:
    """Add the chunks of one partition of a write; repeats of the write add nothing again.

    Args:
        engine: The engine.
        chunks: New jobs, each chunk sorted by id.
        write: Name of the write.
        partition: Number of the partition.
        keep_us: How long repeats are recognized.
        on_conflict: See `ON_CONFLICT`.
        on_other_queue: See `ON_OTHER_QUEUE`.
        run: Name of this run of the write; empty if this is a repeated attempt of a task.

    Raises:
        Conflict: Jobs are unfinished from another write or in another queue, and the options
            make that an error. No job of the chunk was added.
    """
    expires_us = engine.time.earliest_us() + keep_us
    unique = unique_jobs(engine)
    ledger = Ledger(
        engine.recording_store,
        write,
        partition,
        token=engine.ids.token,
        expires_us=expires_us,
        rejects=on_conflict == REJECT,
        run=run,
        unique=unique,
    )
    done = Written()
    for all_rows in chunks:
        chunk, repeats = without_repeats(all_rows)
        if on_other_queue == REJECT:
            reject_elsewhere(split(chunk, repeats))
        others: dict[JobId, str] = {}
        made: list[Job] = []
        moved: list[Move] = []

        def make(ids: Sequence[JobId], enqueued_us: int, dues: Dues) -> Sequence[Job]:
            rows = only(chunk, ids)  # noqa: B023  (called at once)
            asked = [dues[job_id] for job_id in rows.column("id").to_pylist()] if dues else ()
            settings = engine.catalog.settings
            adopt_needs(engine.catalog, rows)
            made[:] = jobs_of(rows, now_us=enqueued_us, settings=settings, dues=asked)  # noqa: B023
            return made  # noqa: B023

        def change(living: Sequence[Job], now_us: int) -> Sequence[Move]:
            if on_conflict in (EARLIEST, REPLACE):
                rows = by_id(chunk, [job.id for job in living])  # noqa: B023
                moved[:] = moves(living, rows, on_conflict, engine=engine, now_us=now_us)  # noqa: B023
            return moved  # noqa: B023

        def check(living: Sequence[Job]) -> None:
            if living:
                others.update(elsewhere(living, by_id(chunk, [job.id for job in living])))  # noqa: B023
            if on_other_queue == REJECT:
                reject_elsewhere(others)  # noqa: B023

        ids = chunk.column("id").to_pylist()
        added = ledger.put(ids, make, change, check, now_us=engine.time.earliest_us())
        skipped = rows_elsewhere(chunk, repeats, others)
        done = done.plus(Written(all_rows.num_rows, added.new, skipped, added.held))
        engine.announce(made)
        engine.wake(map(place_of, moved))
    ledger.close()
    return done


def unique_jobs(engine: Engine) -> UniqueJobs:
    """Return what gives unique keys to jobs."""
    return UniqueJobs(
        engine.recording_store, time=engine.time, ids=engine.ids, catalog=engine.catalog
    )
