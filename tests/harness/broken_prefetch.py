"""Stores whose claims ahead are broken on purpose."""

from collections.abc import Sequence

from dueline.core.job import State
from dueline.core.store import Lease, Want
from dueline.core.store_capabilities import Prefetched, PrefetchResult
from dueline.stores.memory.store import MemoryStore


class TakesTheDue(MemoryStore):
    """Claims what is due already, too."""

    def prefetch(
        self, wants: Sequence[Want], *, limit: int, until_us: int, lease: Lease
    ) -> PrefetchResult:
        return super().prefetch(
            wants, limit=limit, until_us=until_us, lease=lease._replace(now_us=lease.now_us - 1)
        )


class LooksFurther(MemoryStore):
    """Claims what is due somewhat later than was asked for."""

    def prefetch(
        self, wants: Sequence[Want], *, limit: int, until_us: int, lease: Lease
    ) -> PrefetchResult:
        return super().prefetch(wants, limit=limit, until_us=until_us + 1, lease=lease)


class TakesTheHeld(MemoryStore):
    """Claims rows that others hold, before their leases end."""

    def prefetch(
        self, wants: Sequence[Want], *, limit: int, until_us: int, lease: Lease
    ) -> PrefetchResult:
        for rows in self._rows.values():
            for row in list(rows.values()):
                self._put(row._replace(state=State.WAITING))
        return super().prefetch(wants, limit=limit, until_us=until_us, lease=lease)


class TakesTheDecided(MemoryStore):
    """Claims rows of which it is decided how they ended."""

    def prefetch(
        self, wants: Sequence[Want], *, limit: int, until_us: int, lease: Lease
    ) -> PrefetchResult:
        for rows in self._rows.values():
            for row in list(rows.values()):
                self._put(row._replace(outcome=b""))
        return super().prefetch(wants, limit=limit, until_us=until_us, lease=lease)


class LeasesFromNow(MemoryStore):
    """Counts leases from the claim."""

    def prefetch(
        self, wants: Sequence[Want], *, limit: int, until_us: int, lease: Lease
    ) -> PrefetchResult:
        claimed = super().prefetch(wants, limit=limit, until_us=until_us, lease=lease)
        jobs = []
        for job, start_us in claimed.jobs:
            self._put(job._replace(at_us=lease.now_us + lease.duration_us))
            jobs.append(Prefetched(self._find(job.id) or job, start_us))
        return claimed._replace(jobs=jobs)


class GreedyAhead(MemoryStore):
    """Takes one more than the limit says."""

    def prefetch(
        self, wants: Sequence[Want], *, limit: int, until_us: int, lease: Lease
    ) -> PrefetchResult:
        return super().prefetch(wants, limit=limit + 1, until_us=until_us, lease=lease)
