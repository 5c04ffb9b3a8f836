"""Optional capabilities of stores, in addition to the store protocol."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from dueline.core.job import Job, Token
from dueline.core.lane import Lane
from dueline.core.store import Store, Want

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
    """A store that lets jobs be claimed before they are due.

    Where a claim costs a flush, an idle worker claims a moment early what is about to be due, and
    starts it at its time.
    """

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


class LanesHeld(NamedTuple):
    """Some lanes that hold rows, in an order of the store's own; `after` continues, None ends."""

    lanes: Sequence[Lane]
    after: str | None


@runtime_checkable
class Census(Protocol):
    """A store that can list the lanes that hold rows.

    No protocol needs this: the monitor uses it to find jobs in lanes that nothing lists, after an
    error of this library or a foreign write to the tables.
    """

    def lanes_held(self, *, after: str | None, limit: int) -> LanesHeld:
        """Go through the lanes that hold rows, past `after`; one may be told twice."""
        ...


@runtime_checkable
class FlushesLater(Protocol):
    """A store in which a loss of power may take back claims, and nothing else (rule P8).

    What was claimed last then waits again, as it did before; a claim stays once anything later
    was stored, or `flush` has returned. Other processes of the machine see it at once.
    """

    def flush(self) -> None:
        """Let no loss of power take back what was claimed."""
        ...


def flush_claims(store: Store) -> None:
    """See to it that claims last, before anything outside is told of them."""
    if isinstance(store, FlushesLater):
        store.flush()


@runtime_checkable
class ComparesIndexes(Protocol):
    """A store that can compare its indexes with its tables: a damaged index hides rows."""

    def compare_indexes(self, *, timeout_us: int) -> list[str] | None:
        """Compare all indexes with their tables; writers go on meanwhile.

        Args:
          timeout_us: after how many microseconds to give up.

        Returns:
          What does not agree, as texts, the first of it; None where there was too little time.
        """
        ...


@runtime_checkable
class CountsStrayAnswers(Protocol):
    """A store that counts the answers of its server that belonged to no request."""

    def stray_answers(self) -> int:
        """Return the number of answers that this process dropped."""
        ...


def stray_answers_of(store: Store) -> int:
    """Return the number of answers that this process dropped; 0 where a store counts none."""
    return store.stray_answers() if isinstance(store, CountsStrayAnswers) else 0
