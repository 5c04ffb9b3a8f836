"""Stretches in SQLite's tables; each function runs inside the caller's transaction.

A stretch names its rows by a range of (at_us, id) in one lane (rule G7). Its record is a row of the
table `stretches`. Rows in the range with the first token and fence 0 belong to it.
"""
# ruff: noqa: S608  (statements are put together from constants; values are bound)

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from dueline.core.job import UNCLAIMED_TOKEN, Job, JobId, State, Token
from dueline.core.lane import Lane
from dueline.core.tuples import field
from dueline.stores.sqlite.connection import Database, blobs, fetch, first
from dueline.stores.sqlite.jobs import INLINE_BYTES_MAX, LEAST, number_of

SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS stretches (lane INTEGER NOT NULL, token BLOB NOT NULL,"
    " first_us INTEGER NOT NULL, first_id BLOB NOT NULL, last_us INTEGER NOT NULL,"
    " last_id BLOB NOT NULL, worker TEXT NOT NULL, claimed_us INTEGER NOT NULL,"
    " until_us INTEGER NOT NULL, PRIMARY KEY (lane, token)) STRICT, WITHOUT ROWID"
)

_IN_RANGE = "lane = ? AND (at_us, id) >= (?, ?) AND (at_us, id) <= (?, ?)"
_NEW = f"token = x'{UNCLAIMED_TOKEN.hex()}' AND fence = 0"
_ALL = "SELECT * FROM stretches"

_place_of, _id_in = field(Job, "pos_us", "id"), itemgetter(1)
_body_of = field(Job, "body")

Position = tuple[int, bytes]
"""The `at_us` and id of a row."""

START: Final[Position] = (LEAST, b"")


class Stretch(NamedTuple):
    """A row of the table."""

    lane: int
    token: Token
    first_us: int
    first_id: JobId
    last_us: int
    last_id: JobId
    worker: str
    claimed_us: int
    until_us: int

    @property
    def range(self) -> tuple[int, int, bytes, int, bytes]:
        """The lane, the first and the last position."""
        return (self.lane, self.first_us, self.first_id, self.last_us, self.last_id)

    @property
    def last(self) -> Position:
        """The position of the last row."""
        return self.last_us, self.last_id


def all_of(database: Database) -> list[Stretch]:
    """Return all stretches; there are a few for each worker."""
    return [Stretch._make(row) for row in database.execute(_ALL)]


def insert(database: Database, stretch: Stretch) -> None:
    """Store a claim (rule G2)."""
    database.execute("INSERT INTO stretches VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", stretch)


def write_out(database: Database, stretches: Iterable[Stretch]) -> None:
    """Write claims into their rows, and remove their records (rules G1 and G4)."""
    for one in stretches:
        database.execute(
            "UPDATE jobs SET at_us = ?, fence = fence + 1, token = ?, worker = ?, claimed_us = ?,"
            f" state = ? WHERE {_IN_RANGE} AND {_NEW}",
            (one.until_us, one.token, one.worker, one.claimed_us, State.CLAIMED, *one.range),
        )
        database.execute("DELETE FROM stretches WHERE lane = ? AND token = ?", one[:2])


def make_way(database: Database, rows: Iterable[tuple[Lane, Position]]) -> None:
    """Write out the stretches that do not end before rows that come into their lanes (rule G7)."""
    live = all_of(database)
    if not live:
        return
    least: dict[Lane, Position] = {}
    for lane, position in rows:
        least[lane] = min(position, least.get(lane, position))
    numbers = {number_of(database, lane): position for lane, position in least.items()}
    write_out(
        database, [one for one in live if one.lane in numbers and one.last >= numbers[one.lane]]
    )


def seen(row: Job, number: int, live: Sequence[Stretch]) -> Job:
    """Return a row as readers see it: with the claim of its stretch (rule G1)."""
    if row.token != UNCLAIMED_TOKEN or row.fence:
        return row
    place = (row.at_us, row.id)
    for one in live:
        if one.lane == number and (one.first_us, one.first_id) <= place <= one.last:
            return row._replace(
                at_us=one.until_us,
                fence=1,
                token=one.token,
                worker=one.worker,
                claimed_us=one.claimed_us,
                state=State.CLAIMED,
            )
    return row


def head_of(database: Database, number: int, live: Sequence[Stretch]) -> int | None:
    """Return the lowest `at_us` of a lane, as readers see it; None for an empty lane."""
    mine = [one for one in live if one.lane == number]
    after = max((one.last for one in mine), default=START)
    head: int | None = first(
        database,
        "SELECT at_us FROM jobs WHERE lane = ? AND (at_us, id) > (?, ?) ORDER BY at_us, id LIMIT 1",
        (number, *after),
    )
    ends = [one.until_us for one in mine]
    return min(ends if head is None else [head, *ends], default=None)


def drop(database: Database, stretch: Stretch, jobs: Sequence[Job]) -> list[bool]:
    """Delete jobs of a stretch, and its record after the last one (rules G3 and G5)."""
    held = _drop_range(database, stretch, jobs)
    if held is None:
        held = _drop_each(database, stretch, jobs)
    if max(map(len, map(_body_of, jobs))) > INLINE_BYTES_MAX:
        gone = [job.id for job, sure in zip(jobs, held, strict=True) if sure]
        if gone:
            statement = "DELETE FROM bodies WHERE id IN (SELECT value FROM carray(?))"
            database.execute(statement, (blobs(gone),))
    if first(database, f"SELECT 1 FROM jobs WHERE {_IN_RANGE} LIMIT 1", stretch.range) is None:
        database.execute("DELETE FROM stretches WHERE lane = ? AND token = ?", stretch[:2])
    return held


def _drop_range(database: Database, stretch: Stretch, jobs: Sequence[Job]) -> list[bool] | None:
    """Delete jobs by one range, if it has exactly these rows; None if it does not."""
    places = sorted(map(_place_of, jobs))
    ids = list(map(_id_in, places))
    start, end = places[0], places[-1]
    if not (stretch.first_us, stretch.first_id) <= start <= end <= stretch.last:
        return None
    place = (stretch.lane, *start, *end)
    there = first(
        database,
        "SELECT CAST(group_concat(id, '') AS BLOB) FROM"
        f" (SELECT id FROM jobs WHERE {_IN_RANGE} ORDER BY at_us, id)",
        place,
    )
    if there != b"".join(ids):
        return None
    database.execute(f"DELETE FROM jobs WHERE {_IN_RANGE}", place)
    return [True] * len(jobs)


def _drop_each(database: Database, stretch: Stretch, jobs: Sequence[Job]) -> list[bool]:
    ids = blobs([job.id for job in jobs])
    of_these = f"{_IN_RANGE} AND {_NEW} AND id IN (SELECT value FROM carray(?))"
    bound = (*stretch.range, ids)
    there = {row[0] for row in fetch(database, f"SELECT id FROM jobs WHERE {of_these}", bound)}
    database.execute(f"DELETE FROM jobs WHERE {of_these}", bound)
    held = []
    for job in jobs:
        held.append(job.id in there)
        there.discard(job.id)
    return held


is_new: Final = itemgetter(-1)
"""Return whether a row that `SELECT_NEW` read may be in a stretch."""

SELECT_NEW: Final = (
    f", ({_NEW} AND at_us = pos_us AND NOT (state OR errors OR crashes OR alone"
    " OR outcome <> x'' OR error <> ''))"
)
"""A last column of a claim's query: whether nothing has happened to the row yet."""
