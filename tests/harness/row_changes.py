"""Conditional changes of rows in a store without transactions, made from rows that were read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.job import Job, State, Token
from dueline.core.store import Extend, Lease, Verdict
from dueline.stores.cursor_cache import Key, RowVersion, key_of
from dueline.stores.row_updates import claimed


def one_by_one(settle: Callable[[Verdict], bool], verdicts: Sequence[Verdict]) -> list[bool]:
    """Apply outcomes, each on its own, in their order.

    Raises:
      StoreUnavailable: None was applied.
      Unknown: Some were applied, or may have been.
    """
    held: list[bool] = []
    for verdict in verdicts:
        try:
            held.append(settle(verdict))
        except StoreUnavailable as error:
            if any(held):
                raise Unknown("Only some of several outcomes were applied.") from error
            raise
    return held


class Stub(NamedTuple):
    """The future row of a job that moves to another lane; listing: The bucket to list it under."""

    target: Job
    listing: int


class Found(NamedTuple):
    """A row as it is stored."""

    job: Job
    stub: Stub | None = None


class Change(NamedTuple):
    """One part of a conditional batch: the change of a row that has not changed since it was read.

    Attributes:
      key, token: The row, and the token that it must have.
      at_us, state: Values that the row must have; None for any.
      at_us_max: Maximum `at_us` of the row; None for any.
      cells: New values; None deletes the row.
      stub: The future row of a job that moves to another lane.
      insert: A row that is inserted by the same batch.
    """

    key: Key
    token: Token
    at_us: int | None = None
    state: int | None = None
    at_us_max: int | None = None
    cells: Mapping[str, Any] | None = None
    stub: Stub | None = None
    insert: Job | None = None


def extension(verdict: Extend) -> Change:
    """Return the change that extends a lease, unless it is longer already."""
    cells: dict[str, object] = {"at_us": verdict.at_us}
    if verdict.started:
        cells["state"] = State.STARTED
    job = verdict.job
    return Change(key_of(job), job.token, at_us_max=verdict.at_us, cells=cells)


def version_of(row: Found) -> RowVersion:
    """Return the cached part of a row."""
    return RowVersion(row.job.at_us, row.job.token)


def holds(row: Found | None, change: Change) -> bool:
    """Return whether a row has the values that a change expects (rules P2, P4)."""
    return (
        row is not None
        and row.job.token == change.token
        and change.at_us in (None, row.job.at_us)
        and change.state in (None, row.job.state)
        and (change.at_us_max is None or row.job.at_us <= change.at_us_max)
    )


_CLAIMED_CELLS = (
    "at_us", "fence", "token", "worker", "claimed_us", "crashes", "alone", "state",
)  # fmt: skip


def claim(row: Job, lease: Lease) -> Change:
    """Return the change that claims a row, if it has not changed (rule P1).

    Every change of a row changes its token or its `at_us`, or marks it as started.
    """
    taken = claimed(row, lease)
    cells = {name: getattr(taken, name) for name in _CLAIMED_CELLS}
    return Change(key_of(row), row.token, at_us=row.at_us, state=row.state, cells=cells)
