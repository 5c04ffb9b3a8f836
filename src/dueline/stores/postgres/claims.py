"""The statements of claims in PostgreSQL's tables, which are in the folder `sql`.

A claim reads its lanes in the order of positions, from a cursor on, and locks what it takes; rows
that another transaction holds are skipped. No index has a column that it changes.
"""

from collections.abc import Sequence
from importlib import resources
from typing import Any, Final, NamedTuple

from dueline.core.job import Job, JobId, State
from dueline.core.lane import Lane
from dueline.core.store import Lease, Want
from dueline.core.store_capabilities import Prefetched, PrefetchResult
from dueline.stores.postgres.arrays import columns_of
from dueline.stores.postgres.database import LEAST, Database
from dueline.stores.postgres.job_rows import SELECT, SELECT_KEPT, claimed_jobs, jobs_of
from dueline.stores.postgres.lanes import head_in

MANY: Final = 32
"""Minimum number of jobs for which a claim tries the statement for rows that were only inserted."""

_OLD: Final = ("at_us", "state", "token", "worker", "claimed_us", "crashes", "alone")
"""Columns of a row before its claim, which follow the place of its lane."""

_AT, _STATE = 1, 2
POSITION: Final = len(_OLD) + 1
"""Where the columns of the claimed row begin: its position, and its id."""

_ID: Final = POSITION + 1


def _statement(name: str, **parts: str) -> str:
    """Return a statement of the folder `sql`, without its comments."""
    text = resources.files(__package__).joinpath("sql", f"{name}.sql").read_text("utf-8")
    lines = (line.partition("--")[0] for line in text.splitlines())
    return " ".join(" ".join(lines).split()).format(**parts)


_PARTS: Final = {
    "wanted": _statement("wanted", least=str(LEAST)),
    "old": ", ".join(_OLD),
    "taken": ", ".join(f"taken.{name}" for name in _OLD),
    "columns": SELECT,
    "kept": SELECT_KEPT,
    "head": head_in("wanted.lane", "wanted.most"),
}
_CLAIM_DUE, _CLAIM_INSERTED, _PREFETCH, HEADS = (
    _statement(name, **_PARTS) for name in ("claim_due", "claim_inserted", "prefetch", "heads")
)


class Cursor(NamedTuple):
    """Where the claims of this process are in a lane.

    Attributes:
      lane: The number of the lane.
      pos_us: First position of the last claim. Not its last one: a claim of another process that
        is not committed may be rolled back. A second ago if the claim left no due rows.
      until_us: The lowest time after the present of the rows before it, as far as this process
        knows.
      due_us: The position of a row before it that waits and is due: committed meanwhile, or held
        by another claim.
      again_us: Monotonic time of the next read from the lane's start.
      took_us: Duration of the last one.
    """

    lane: int
    pos_us: int
    until_us: int
    due_us: int | None
    again_us: int
    took_us: int


def values_of(
    wants: Sequence[Want], cursors: Sequence[Cursor | None], mosts: Sequence[int] | None = None
) -> list[list[object]]:
    """Return the values of `wanted.sql`. mosts: in place of those of the wants."""
    return [
        *columns_of(want.lane for want in wants),
        list(mosts if mosts is not None else [want.most for want in wants]),
        [cursor.lane if cursor else -1 for cursor in cursors],
        [cursor.pos_us if cursor else LEAST for cursor in cursors],
    ]


def claim_due(
    database: Database,
    wants: Sequence[Want],
    cursors: Sequence[Cursor | None],
    lease: Lease,
    *,
    until_us: int | None = None,
) -> list[list[tuple[Any, ...]]]:
    """Claim from lanes by one statement; return the rows of each, in any order.

    until_us: The last position that is read; None: the present.
    """
    now_us, lease_us, worker, token = lease
    if until_us is None:
        until_us = now_us
    rows: list[list[tuple[Any, ...]]] = [[] for _ in wants]
    values = values_of(wants, cursors)
    for row in database.fetch(
        _CLAIM_DUE, [*values, until_us, until_us, now_us + lease_us, token, worker, now_us]
    ):
        rows[row[0] - 1].append(row)
    return rows


def claim_inserted(
    database: Database, want: Want, cursor: Cursor | None, lease: Lease
) -> list[Job]:
    """Claim rows that were only inserted; none if there is another one before the last of them."""
    now_us, lease_us, worker, token = lease
    rows = database.fetch(
        _CLAIM_INSERTED,
        [
            *values_of([want], [cursor]),
            now_us,
            now_us,
            now_us + lease_us,
            token,
            worker,
            now_us,
        ],
    )
    rows.sort()
    return claimed_jobs(want.lane, rows, lease)


def due_order(row: tuple[Any, ...]) -> tuple[int, bytes]:
    """Return what claimed rows are sorted by: their due times before the claim, and their ids."""
    return row[_AT], row[_ID]


def jobs_in(lane: Lane, rows: Sequence[tuple[Any, ...]]) -> list[Job]:
    """Return the claimed jobs of a lane."""
    return jobs_of(lane, [row[POSITION:] for row in rows])


def died_in(lane: Lane, rows: Sequence[tuple[Any, ...]]) -> dict[JobId, Job]:
    """Return the rows before the claim of those whose last claim had no outcome."""
    died = {}
    for row in rows:
        if row[_STATE] in (State.CLAIMED, State.STARTED):
            job = Job(lane, *row[POSITION:])
            old = dict(zip(_OLD, row[1:POSITION], strict=True))
            died[job.id] = job._replace(fence=job.fence - 1, **old)
    return died


def whole_heads(database: Database, wants: Sequence[Want]) -> dict[Lane, int | None]:
    """Return the lowest `at_us` in each lane, read from its start."""
    heads: dict[Lane, int | None] = dict.fromkeys(want.lane for want in wants)
    if wants:
        values = values_of(wants, [None] * len(wants), [LEAST] * len(wants))
        for place, *_, head_us in database.fetch(HEADS, [*values, 0, 0, 0, 1, 1]):
            heads[wants[place - 1].lane] = head_us
    return heads


def prefetch(
    database: Database, wants: Sequence[Want], *, limit: int, until_us: int, lease: Lease
) -> PrefetchResult:
    """Claim the first rows that become due soon, want by want."""
    now_us, lease_us, worker, token = lease
    jobs: list[Prefetched] = []
    visited: list[Want] = []
    for lane, most in wants:
        if len(jobs) >= limit:
            break
        want = Want(lane, min(most, limit - len(jobs)))
        visited.append(want)
        rows = database.fetch(
            _PREFETCH,
            [*values_of([want], [None]), now_us, until_us, lease_us, token, worker, now_us],
        )
        rows.sort(key=due_order)
        jobs += map(Prefetched, jobs_in(lane, rows), [row[_AT] for row in rows])
    return PrefetchResult(jobs, whole_heads(database, visited))
