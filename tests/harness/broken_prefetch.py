"""Stores whose claims ahead are broken on purpose."""

from collections.abc import Sequence
from typing import TypedDict, Unpack

from dueline.core.job import State, Token
from dueline.core.store import Want
from dueline.core.store_capabilities import Prefetched, PrefetchResult
from dueline.stores.memory.store import MemoryStore


class ConsumerOptions(TypedDict):
    """What a claim ahead is told beside its wants."""

    limit: int
    now_us: int
    until_us: int
    lease_us: int
    worker: str
    token: Token


def _but(
    terms: ConsumerOptions, *, now_us: int = 0, until_us: int = 0, limit: int = 0
) -> ConsumerOptions:
    """Add something to what was asked."""
    return {
        **terms,
        "now_us": terms["now_us"] + now_us,
        "until_us": terms["until_us"] + until_us,
        "limit": terms["limit"] + limit,
    }


class TakesTheDue(MemoryStore):
    """Claims what is due already, too."""

    def prefetch(self, wants: Sequence[Want], **terms: Unpack[ConsumerOptions]) -> PrefetchResult:
        return super().prefetch(wants, **_but(terms, now_us=-1))


class LooksFurther(MemoryStore):
    """Claims what is due somewhat later than was asked for."""

    def prefetch(self, wants: Sequence[Want], **terms: Unpack[ConsumerOptions]) -> PrefetchResult:
        return super().prefetch(wants, **_but(terms, until_us=1))


class TakesTheHeld(MemoryStore):
    """Claims rows that others hold, before their leases end."""

    def prefetch(self, wants: Sequence[Want], **terms: Unpack[ConsumerOptions]) -> PrefetchResult:
        for rows in self._rows.values():
            for row in list(rows.values()):
                self._put(row._replace(state=State.WAITING))
        return super().prefetch(wants, **terms)


class TakesTheDecided(MemoryStore):
    """Claims rows of which it is decided how they ended."""

    def prefetch(self, wants: Sequence[Want], **terms: Unpack[ConsumerOptions]) -> PrefetchResult:
        for rows in self._rows.values():
            for row in list(rows.values()):
                self._put(row._replace(outcome=b""))
        return super().prefetch(wants, **terms)


class LeasesFromNow(MemoryStore):
    """Counts leases from the claim."""

    def prefetch(self, wants: Sequence[Want], **terms: Unpack[ConsumerOptions]) -> PrefetchResult:
        claimed = super().prefetch(wants, **terms)
        jobs = []
        for job, start_us in claimed.jobs:
            self._put(job._replace(at_us=terms["now_us"] + terms["lease_us"]))
            jobs.append(Prefetched(self._find(job.id) or job, start_us))
        return claimed._replace(jobs=jobs)


class GreedyAhead(MemoryStore):
    """Takes one more than the limit says."""

    def prefetch(self, wants: Sequence[Want], **terms: Unpack[ConsumerOptions]) -> PrefetchResult:
        return super().prefetch(wants, **_but(terms, limit=1))
