"""Writes of new jobs, and repeats of writes that may have happened."""

from collections.abc import Callable, Sequence

from dueline.core.job import Job
from dueline.core.store import Group, Store
from dueline.jobs import results

Send = Callable[[Sequence[Job]], Sequence[bool]]
"""Stores jobs; returns for each whether it is certainly stored."""


def send_again(store: Store, jobs: Sequence[Job]) -> Sequence[bool]:
    """Add rows with the keys they were given, except those that are known to have ended.

    A row whose insert got no answer may have been stored, run and ended since. If a store remembers
    deleted keys, a second insert changes nothing (rules E5, B1). If `together` is a transaction, an
    ended job leaves its outcome, unless its queue keeps none, or its row among the dead-letter
    jobs.

    Returns:
        As `Store.add`.
    """
    if not store.transactional:
        return store.add(jobs)
    rows = store.find([job.id for job in jobs])
    gone = [job for job, row in zip(jobs, rows, strict=True) if row is None]
    ended = results.read_many(store, [job.id for job in gone])  # after the rows: see rule E7
    missing = [job for job in gone if job.id not in ended]
    store.together([Group(commits=(results.absent(job.id),), jobs=(job,)) for job in missing])
    return [True] * len(jobs)
