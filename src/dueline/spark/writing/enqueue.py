"""Adding jobs of data, each once."""

from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Final, NamedTuple

from dueline.core.engine import Engine
from dueline.core.job import Job, JobId
from dueline.core.store import Move
from dueline.core.wakeup import place_of
from dueline.spark.writing.conflicts import EXISTING, REJECT, elsewhere, moves, reject_elsewhere
from dueline.spark.writing.rows_to_jobs import NewJob, in_order, jobs_of
from dueline.spark.writing.write_log import Dues, Ledger

CHUNK: Final = 20_000
"""Default number of rows that are added in one transaction."""


class Written(NamedTuple):
    """Counts of a write.

    Attributes:
        rows: Rows of the data.
        added: Jobs that did not exist before.
        elsewhere: Rows that were skipped because a job with their id was in another queue.
    """

    rows: int = 0
    added: int = 0
    elsewhere: int = 0

    def plus(self, other: "Written") -> "Written":
        """Return the sum with the counts of another part."""
        return Written(*map(add, self, other))


def split(some: Iterable[NewJob], by_id: Mapping[JobId, NewJob]) -> dict[JobId, str]:
    """Return the ids that rows of one chunk give to jobs of several queues, each with one queue."""
    return {one.id: one.queue for one in some if one.queue != by_id[one.id].queue}


def rows_elsewhere(
    some: Iterable[NewJob], by_id: Mapping[JobId, NewJob], living: Mapping[JobId, str]
) -> int:
    """Count the rows of a chunk that are skipped because their job is in another queue.

    Args:
        by_id: The rows that become jobs.
        living: Jobs that are unfinished in another queue than these rows name, with that queue.
    """
    return sum(one.queue != living.get(one.id, by_id[one.id].queue) for one in some)


def put_all(
    engine: Engine,
    chunks: Iterable[Sequence[NewJob]],
    write: str,
    partition: int,
    *,
    keep_us: int,
    on_conflict: str = EXISTING,
    on_other_queue: str = REJECT,
) -> Written:
    """Add the chunks of one partition of a write; repeats of the write add nothing again.

    Args:
        keep_us: How long repeats are recognized.
        on_conflict: See `ON_CONFLICT`.
        on_other_queue: See `ON_OTHER_QUEUE`.

    Raises:
        Conflict: Jobs are unfinished from another write or in another queue, and the options
            make that an error. No job of the chunk was added.
    """
    expires_us = engine.time.earliest_us() + keep_us
    token = engine.ids.token
    ledger = Ledger(
        engine.recording_store,
        write,
        partition,
        token=token,
        expires_us=expires_us,
        rejects=on_conflict == REJECT,
    )
    done = Written()
    for some in chunks:
        by_id = {new_job.id: new_job for new_job in in_order(some)}
        if on_other_queue == REJECT:
            reject_elsewhere(split(some, by_id))
        found: dict[JobId, str] = {}
        made: list[Job] = []
        moved: list[Move] = []

        def make(ids: Sequence[JobId], enqueued_us: int, dues: Dues) -> Sequence[Job]:
            new_jobs = [by_id[one] for one in ids]  # noqa: B023  (called at once)
            if dues:
                new_jobs = [one._replace(due_us=dues[one.id]) for one in new_jobs]
            made[:] = jobs_of(new_jobs, now_us=enqueued_us, settings=engine.catalog.settings)  # noqa: B023
            return made  # noqa: B023

        def change(living: Sequence[Job], now_us: int) -> Sequence[Move]:
            moved[:] = moves(living, by_id, on_conflict, engine=engine, now_us=now_us)  # noqa: B023
            return moved  # noqa: B023

        def check(living: Sequence[Job]) -> None:
            found.update(elsewhere(living, by_id))  # noqa: B023
            if on_other_queue == REJECT:
                reject_elsewhere(found)  # noqa: B023

        added = ledger.put(list(by_id), make, change, check, now_us=engine.time.earliest_us())
        done = done.plus(Written(len(some), added, rows_elsewhere(some, by_id, found)))
        engine.announce(made)
        engine.wake(map(place_of, moved))
    ledger.close()
    return done
