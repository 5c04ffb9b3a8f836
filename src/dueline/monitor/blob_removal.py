"""Remove the blobs of jobs that are gone, and those that no row ever named."""

from collections.abc import Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from dueline.core.blobs import HOUR_US, Blobs, namespaces_of, owners_in
from dueline.core.clock import DAY_US
from dueline.core.engine import Engine
from dueline.core.job import JobId
from dueline.core.maintenance import StepResult
from dueline.jobs import results
from dueline.workflows import records

EVERY_US: Final = HOUR_US

GRACE_US: Final = DAY_US + 2 * HOUR_US
"""How old a blob is before it is removed. A row that names it may be inserted up to a day after the
call, by the process that finds what another one had decided to insert."""

BLOBS_A_STEP: Final = 500


class _Blob(NamedTuple):
    """A blob, and the ids of the job and of the workflow or function that may name it."""

    name: str
    owners: Sequence[JobId]


def remove_blobs(engine: Engine, after: str | None) -> StepResult:
    """Remove old blobs that nothing names; the next step continues where this one ends.

    A store that has moved removes none: its jobs are in the other store, with its namespace.
    """
    blobs = engine.blobs
    if blobs is None:
        return StepResult()
    engine.catalog.features.check()
    engine.catalog.features.expect_here()
    before = (engine.time.earliest_us() - GRACE_US) // HOUR_US
    old: list[_Blob] = []
    for blob in _old_blobs(engine, blobs, before, after or ""):
        old.append(blob)
        if len(old) == BLOBS_A_STEP:
            break
    needed = _needed(engine, {owner for blob in old for owner in blob.owners})
    gone = [blob for blob in old if needed.isdisjoint(blob.owners)]
    for blob in gone:
        blobs.place.remove(blob.name)
    for folder in {blob.name.rpartition("/")[0] for blob in gone}:
        if not blobs.place.names(folder):
            blobs.place.remove(folder)
    return StepResult(len(gone), old[-1].name if len(old) == BLOBS_A_STEP else None)


def _old_blobs(engine: Engine, blobs: Blobs, before: int, after: str) -> Iterator[_Blob]:
    """Yield the blobs of hours before one, after a place, with what processes have left there."""
    for namespace in namespaces_of(engine.store):
        for hour in blobs.place.names(namespace):
            folder = f"{namespace}/{hour}"
            if not hour.isdecimal() or int(hour) >= before or f"{folder}0" <= after:
                continue
            for last in blobs.place.names(folder):
                if f"{folder}/{last}" > after:
                    yield _Blob(f"{folder}/{last}", owners_in(last))


def _needed(engine: Engine, ids: Collection[JobId]) -> AbstractSet[JobId]:
    """Return the ids of jobs that have a row or a result, and of workflows that are known."""
    left, needed = list(ids), set[JobId]()
    for _ in range(2):  # a store may miss a row that moves, once
        rows = engine.store.find(left) if left else ()
        needed |= {row.id for row in rows if row is not None}
        left = [job_id for job_id in left if job_id not in needed]
    # Results are read after rows: rule E7.
    needed |= set(results.read_many(engine.store, left))
    return needed | {
        job_id
        for job_id in left
        if job_id not in needed and records.read(engine.store, job_id) is not None
    }
