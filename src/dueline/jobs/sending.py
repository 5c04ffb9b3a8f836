"""Births that may have been sent before.

A birth whose answer was lost may have been stored, run and ended by the time it is sent again.
Where keys stay dead that changes nothing (rules E5, B1). Where `together` is a transaction an
ended job leaves no row; what it leaves is its outcome, while that is kept (a queue with `keep=0`
keeps none), or its row among the dead.
"""

from collections.abc import Callable, Sequence

from dueline.core.job import Job
from dueline.core.store import Group, Store
from dueline.jobs import results

Send = Callable[[Store, Sequence[Job]], Sequence[bool]]


def send(store: Store, jobs: Sequence[Job]) -> Sequence[bool]:
    """Add rows that nobody has sent before."""
    return store.add(jobs)


def send_again(store: Store, jobs: Sequence[Job]) -> Sequence[bool]:
    """Add rows with the keys they were given, but for those that are known to have ended.

    Returns: as `add`.
    """
    if not store.transactional:
        return store.add(jobs)
    store.together([Group(commits=(results.absent(job.id),), jobs=(job,)) for job in jobs])
    return [True] * len(jobs)
