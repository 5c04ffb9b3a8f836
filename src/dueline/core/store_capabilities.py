"""Claims before their time.

Beside the waist, optional: a store where a claim costs a flush lets a worker that has nothing
else to do claim, some moments early, what is about to be due. The worker starts it at its time.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from dueline.core.job import Job, Token
from dueline.core.lane import Lane
from dueline.core.store import Want

AHEAD_US = 500_000
"""No job is claimed longer than this before its time."""

LEAD_US = 250_000
"""The next job is claimed this long before its time: a flush on a busy disk took 150 ms."""


class Prefetched(NamedTuple):
    """A job that was claimed before its time. start_us: that time, until when it is not run."""

    job: Job
    start_us: int


class ClaimedAhead(NamedTuple):
    """What a claim ahead brought: jobs in the order of the wants, then of their times.

    next_at_us: for each lane that was visited, as a claim answers it.
    """

    jobs: Sequence[Prefetched]
    next_at_us: Mapping[Lane, int | None]


@runtime_checkable
class ClaimsAhead(Protocol):
    """A store that lets jobs be claimed before they are due."""

    def claim_ahead(
        self,
        wants: Sequence[Want],
        *,
        limit: int,
        now_us: int,
        until_us: int,
        lease_us: int,
        worker: str,
        token: Token,
    ) -> ClaimedAhead:
        """Claim the first rows that wait for a time after `now_us`, up to `until_us`.

        Want by want, atomic per lane. Only rows that wait are taken: one that is claimed, or
        whose end is decided, is somebody's until its time has come; one that is due is left to
        `claim`. A row is claimed as by `claim`, but its lease counts from its time: `at_us` is
        that time and `lease_us` more.
        """
        ...
