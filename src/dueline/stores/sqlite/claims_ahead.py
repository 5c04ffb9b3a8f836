"""Claims before their time, in SQLite's tables."""

from collections.abc import Sequence

from dueline.core.job import State, Token
from dueline.core.lane import Lane
from dueline.core.store import Want
from dueline.core.store_capabilities import ClaimedAhead, Prefetched
from dueline.stores.sqlite.connection import Database, blobs, fetch, first
from dueline.stores.sqlite.jobs import CELLS, number_of, to_job


def claim_ahead(
    database: Database,
    wants: Sequence[Want],
    *,
    limit: int,
    now_us: int,
    until_us: int,
    lease_us: int,
    worker: str,
    token: Token,
) -> ClaimedAhead:
    """Claim the first rows that wait for a time to come, want by want, with one update for all."""
    found: list[Prefetched] = []
    numbers: dict[Lane, int | None] = {}
    for lane, most in wants:
        if len(found) >= limit:
            break
        numbers[lane] = number = number_of(database, lane)
        rows = fetch(
            database,
            f"SELECT {CELLS} FROM jobs WHERE lane = ? AND at_us > ? AND at_us <= ?"  # noqa: S608
            " AND state = ? AND outcome = x'' ORDER BY at_us, jobs.id LIMIT ?",
            (number, now_us, until_us, State.WAITING, min(most, limit - len(found))),
        )
        for row in (to_job(lane, row) for row in rows):
            job = row._replace(at_us=row.at_us + lease_us, fence=row.fence + 1, token=token,
                               worker=worker, claimed_us=now_us, state=State.CLAIMED)  # fmt: skip
            found.append(Prefetched(job, row.at_us))
    if found:
        database.execute(
            "UPDATE jobs SET at_us = at_us + ?, fence = fence + 1, token = ?, worker = ?,"
            " claimed_us = ?, state = ? WHERE id IN (SELECT value FROM carray(?))",
            (lease_us, token, worker, now_us, State.CLAIMED, blobs([one.job.id for one in found])),
        )
    head = "SELECT at_us FROM jobs WHERE lane = ? ORDER BY at_us LIMIT 1"
    return ClaimedAhead(
        found, {lane: first(database, head, (number,)) for lane, number in numbers.items()}
    )
