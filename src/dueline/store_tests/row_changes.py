"""Changes of rows in a store without transactions.

Pure: each function makes one change of a conditional batch from a row that was read.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreUnavailable, Unknown
from dueline.core.job import Job, State, Token
from dueline.core.store import Extend, Move, Verdict
from dueline.stores.cursor_cache import Key, RowVersion, key_of
from dueline.stores.memory.rows import Terms, claimed, rewritten

HOP_AHEAD_US = 5 * SECOND_US
"""A job that rests for longer goes to where it will be due; a shorter rest is not worth it."""


def one_by_one(settle: Callable[[Verdict], bool], verdicts: Sequence[Verdict]) -> list[bool]:
    """Apply verdicts, each on its own, in their order.

    Raises: StoreUnavailable: none was applied. Unknown: some were, or may have been.
    """
    held: list[bool] = []
    for verdict in verdicts:
        try:
            held.append(settle(verdict))
        except StoreUnavailable as error:
            if any(held):
                raise Unknown("Of several verdicts the first were applied.") from error
            raise
    return held


class Stub(NamedTuple):
    """What a row that is being carried will be elsewhere: its whole birth, fixed once.

    listing: the bucket to list its new lane under.
    """

    target: Job
    listing: int


class Found(NamedTuple):
    """A row as it is stored."""

    job: Job
    stub: Stub | None = None


class Change(NamedTuple):
    """One part of a conditional batch: what becomes of a row that is as it was read.

    key, token: the row, and what it must carry. at_us, state: what else must be, None for
    anything; at_us_max: same, at the most. cells: what is set; None: the row goes. stub: what
    it will be. birth: a row that is born beside it, in the same lane.
    """

    key: Key
    token: Token
    at_us: int | None = None
    state: int | None = None
    at_us_max: int | None = None
    cells: Mapping[str, Any] | None = None
    stub: Stub | None = None
    birth: Job | None = None


def extension(verdict: Extend) -> Change:
    """Make the change that extends a claim, unless it lasts longer already."""
    cells: dict[str, object] = {"at_us": verdict.at_us}
    if verdict.started:
        cells["state"] = State.STARTED
    job = verdict.job
    return Change(key_of(job), job.token, at_us_max=verdict.at_us, cells=cells)


def version_of(found: Found) -> RowVersion:
    """Tell what a claimer remembers of a row."""
    return RowVersion(found.job.at_us, found.job.token)


def holds(found: Found | None, change: Change) -> bool:
    """Tell whether a row is as a change wants it; only born values are compared (rules P2, P4)."""
    return (
        found is not None
        and found.job.token == change.token
        and change.at_us in (None, found.job.at_us)
        and change.state in (None, found.job.state)
        and (change.at_us_max is None or found.job.at_us <= change.at_us_max)
    )


_CLAIMED_CELLS = (
    "at_us", "fence", "token", "worker", "claimed_us", "crashes", "alone", "state",
)  # fmt: skip


def claim(row: Job, terms: Terms) -> Change:
    """Claim a row if it is as it was read (rule P1).

    Whatever happens to a row changes its token or its `at_us`, or marks it as started.
    """
    taken = claimed(row, terms)
    cells = {name: getattr(taken, name) for name in _CLAIMED_CELLS}
    return Change(key_of(row), row.token, at_us=row.at_us, state=row.state, cells=cells)


def moved(move: Move) -> Job:
    """Tell what a move makes of a row: in its place, elsewhere in its lane, or in another one.

    It goes where it will be due when that is before its position, or far past it; and it is born
    anew when cells of its birth change, which a repeat of that birth would write again. A row with
    an outcome stays: the effects of every repeat are told from its key.
    """
    job = move.job
    row = rewritten(job, move)
    if move.outcome:
        assert move.to is None
        assert move.at_us >= job.pos_us, "a row with an outcome stays where it is"
        return row
    is_far = move.at_us > max(job.pos_us, job.claimed_us) + HOP_AHEAD_US
    if move.to not in (None, job.lane) or is_far or move.at_us < job.pos_us or row.opts != job.opts:
        lane = move.to or job.lane
        return row._replace(lane=lane, pos_us=move.at_us, hop=job.hop + 1)
    return row
