"""Claims of one process in PostgreSQL, and its cursors in lanes."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from dueline.core.clock import SECOND_US, Clock
from dueline.core.errors import DuelineError
from dueline.core.job import Job, JobId
from dueline.core.lane import Lane
from dueline.core.store import Claimed, Lease, Want
from dueline.stores.postgres.claims import (
    HEADS,
    MANY,
    POSITION,
    Cursor,
    claim_due,
    claim_inserted,
    died_in,
    due_order,
    jobs_in,
    values_of,
    whole_heads,
)
from dueline.stores.postgres.database import GREATEST, LEAST, Database, Executor
from dueline.stores.postgres.late_rows import COMMIT_US, EVERYWHERE, LateRows, Places


class Rereads(NamedTuple):
    """How often a lane is read from its start.

    Rows that another process releases, or commits late without a notification, behind a cursor wait
    until then.

    Attributes:
      us_min: Minimum time between two such reads, in microseconds.
      cost: They may take one in this number of parts of the time.
    """

    us_min: int
    cost: int

    def next_us(self, began_us: int, took_us: int) -> int:
        """Return the monotonic time of the next such read, after one that took so long."""
        return began_us + max(self.us_min, self.cost * took_us)


NOTIFIED: Final = Rereads(SECOND_US, 50)
POLLED: Final = Rereads(SECOND_US // 10, 8)
"""Behind a pooler, which passes no notification of a late commit: at each poll."""

CHEAP_US: Final = 5_000
"""A lane that is empty behind its cursor too is read from its start at once, if that was so quick,
and otherwise when it is time to."""

CURSORS_MAX: Final = 1000


class _Visit(NamedTuple):
    """What a claim did in a lane.

    Attributes:
      want: What it claimed from the cursor on, at most.
      cursor: The cursor before it.
      late: Where late rows were known when it began.
      positions: Those of the rows that it claimed from the cursor on.
      began_us, took_us: By the monotonic clock.
      lapse_us: When its claims on late rows end.
    """

    want: Want
    cursor: Cursor | None
    late: Places
    positions: Sequence[int]
    began_us: int
    took_us: int
    lapse_us: int


class _Taken(NamedTuple):
    """What a claim has taken, and from where."""

    jobs: list[Job]
    died: dict[JobId, Job]
    visits: list[_Visit]


class Claims:
    """Claims of one process, and its cursors.

    With a cursor, a claim does not read the rows that earlier ones have left in the lane: those
    claimed, and those that were deleted and that an old snapshot or transaction keeps.

    A row that is noted while a claim runs may be committed after that claim read its lane, and
    before its cursor. So rows are noted wherever they are, and those that were noted before a
    claim began are removed when it is committed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._cursors: dict[Lane, Cursor] = {}
        self._late = LateRows()
        self._has_claimed = False

    def numbers(self) -> list[int]:
        """Return the lanes with a cursor."""
        return [cursor.lane for cursor in list(self._cursors.values())]

    def step_back(self, places: Iterable[tuple[Lane, int]]) -> None:
        """Look for rows that were put before the cursors of their lanes.

        Another thread may call it.
        """
        if self._has_claimed:
            self._late.note(places)

    def claim(
        self, connection: Executor, wants: Sequence[Want], *, limit: int, lease: Lease
    ) -> Claimed:
        """Claim the first due rows, want by want.

        The heads are read after the commit, in its trip. Without an answer all lanes count as due
        in a moment.
        """
        self._has_claimed = True
        if not wants or limit <= 0:
            return Claimed([], {}, {})
        taken, rows = connection.write_then_fetch(
            lambda database: self._taken(database, wants, limit=limit, lease=lease)
        )
        now_us, visits = lease.now_us, taken.visits
        heads: dict[Lane, int | None] = {visit.want.lane: now_us + 1 for visit in visits}
        cursors: dict[Lane, Cursor] = {}
        unsure: list[Want] = []
        if rows is not None:
            rereads = POLLED if connection.is_pooled else NOTIFIED
            sure, cursors, unsure = _heads(visits, rows, now_us, rereads)
            heads |= sure
        if unsure:
            with suppress(DuelineError):
                heads |= connection.read(lambda database: whole_heads(database, unsure))
        heads = {visit.want.lane: self._head_of(visit, heads[visit.want.lane]) for visit in visits}
        self._keep(visits, cursors)
        return Claimed(taken.jobs, taken.died, heads)

    def _taken(
        self, database: Database, wants: Sequence[Want], *, limit: int, lease: Lease
    ) -> tuple[_Taken, tuple[str, list[object]]]:
        """Claim in a transaction; return also the query of the heads."""
        taken = _Taken([], {}, [])
        place = 0
        while place < len(wants) and len(taken.jobs) < limit:
            fitting: list[Want] = []
            room = limit - len(taken.jobs)
            # As many lanes as fit: what they leave of the limit, the next one may take.
            while place < len(wants) and (not fitting or wants[place].most <= room):
                lane, most = wants[place]
                fitting.append(Want(lane, min(most, room)))
                room -= fitting[-1].most
                place += 1
            self._visit(database, fitting, lease, taken)
        return taken, _heads_query(taken.visits, lease.now_us)

    def _visit(
        self, database: Database, wants: Sequence[Want], lease: Lease, taken: _Taken
    ) -> None:
        """Claim from lanes by one statement, or two, beside those for late rows."""
        began_us = self._clock.monotonic_us()
        read = [self._late.of(want.lane) for want in wants]
        known = [
            None if EVERYWHERE in places else self._valid(want.lane, lease.now_us, began_us)
            for want, places in zip(wants, read, strict=True)
        ]
        late = [
            _claim_late(database, want, cursor, places, lease)
            for want, cursor, places in zip(wants, known, read, strict=True)
        ]
        rest = [
            Want(lane, most - len(rows)) for (lane, most), rows in zip(wants, late, strict=True)
        ]
        new: list[Job] = []
        if len(rest) == 1 and rest[0].most >= MANY and not late[0]:
            new = claim_inserted(database, rest[0], known[0], lease)
        rows = [[]] if new else claim_due(database, rest, known, lease)
        took_us = self._clock.monotonic_us() - began_us
        for want, cursor, places, due, more in zip(rest, known, read, rows, late, strict=True):
            positions = [row[POSITION] for row in due] or [job.pos_us for job in new]
            lapse_us = lease.now_us + lease.duration_us if more else GREATEST
            taken.visits.append(
                _Visit(want, cursor, places, positions, began_us, took_us, lapse_us)
            )
            due += more  # noqa: PLW2901  (in place)
            due.sort(key=due_order)
            taken.jobs.extend(jobs_in(want.lane, due))
            taken.died.update(died_in(want.lane, due))
        taken.jobs.extend(new)

    def _head_of(self, visit: _Visit, head_us: int | None) -> int | None:
        places, read = self._late.of(visit.want.lane), visit.late
        late = [pos_us for part, pos_us in places.items() if read.get(part) != pos_us]
        return min(*late, GREATEST if head_us is None else head_us) if late else head_us

    def _keep(self, visits: Sequence[_Visit], cursors: dict[Lane, Cursor]) -> None:
        """Keep the cursors of a claim that is committed, and where it has read late rows."""
        for visit in visits:
            lane = visit.want.lane
            self._late.remove(lane, visit.late)
            cursor = cursors.get(lane)
            if cursor is None:
                self._cursors.pop(lane, None)
            else:
                self._cursors[lane] = cursor
                if cursor.due_us is not None:
                    self.step_back([(lane, cursor.due_us)])
        if len(self._cursors) > CURSORS_MAX:
            self._cursors.clear()
            self._late.clear()

    def _valid(self, lane: Lane, now_us: int, clock_us: int) -> Cursor | None:
        cursor = self._cursors.get(lane)
        if cursor is None or now_us >= cursor.until_us:
            return None
        return cursor if cursor.again_us > clock_us else None


def _claim_late(
    database: Database, want: Want, cursor: Cursor | None, places: Places, lease: Lease
) -> list[tuple[Any, ...]]:
    """Claim rows that were put before a cursor.

    Args:
      places: Where; those that may have more rows are removed.
    """
    rows: list[tuple[Any, ...]] = []
    if cursor is None:  # the lane is read from its start
        return rows
    for part, pos_us in sorted(places.items()):
        until_us = min((part + 1) * COMMIT_US, cursor.pos_us) - 1
        if until_us < pos_us:  # the claim from the cursor reads it
            continue
        there, more = cursor._replace(pos_us=pos_us), Want(want.lane, want.most - len(rows))
        due: list[tuple[Any, ...]] = []
        if more.most:
            (due,) = claim_due(database, [more], [there], lease, until_us=until_us)
        if len(due) == more.most:
            del places[part]
        rows += due
    return rows


def _firsts(visits: Sequence[_Visit], now_us: int) -> list[int]:
    """Return the new positions of cursors."""
    return [
        min(visit.positions, default=visit.cursor.pos_us if visit.cursor else LEAST)
        if len(visit.positions) == visit.want.most
        else now_us - COMMIT_US
        for visit in visits
    ]


def _heads_query(visits: Sequence[_Visit], now_us: int) -> tuple[str, list[object]]:
    most = 1 + max((len(visit.positions) for visit in visits), default=0)
    wants, cursors = [visit.want for visit in visits], [visit.cursor for visit in visits]
    values = values_of(wants, cursors, _firsts(visits, now_us))
    return HEADS, [*values, now_us, now_us, now_us, most, most]


def _heads(
    visits: Sequence[_Visit], rows: Sequence[tuple[Any, ...]], now_us: int, rereads: Rereads
) -> tuple[dict[Lane, int | None], dict[Lane, Cursor], list[Want]]:
    """Return the lowest `at_us` in each lane, its new cursor, and the lanes to read wholly.

    rows: Of the query of heads.
    """
    firsts = _firsts(visits, now_us)
    heads: dict[Lane, int | None] = {visit.want.lane: None for visit in visits}
    cursors: dict[Lane, Cursor] = {}
    unsure: list[Want] = []
    for place, number, behind_us, due_us, do_wait, ahead_us in rows:
        visit = visits[place - 1]
        want, cursor = visit.want, visit.cursor
        until_us = min(
            GREATEST if behind_us is None else behind_us,
            GREATEST if cursor is None else cursor.until_us,
        )
        head_us = min(
            until_us,
            GREATEST if due_us is None else due_us,
            GREATEST if ahead_us is None else ahead_us,
        )
        if head_us == GREATEST and cursor and cursor.took_us > CHEAP_US:
            head_us = until_us = now_us + max(1, cursor.again_us - visit.began_us)
        heads[want.lane] = head_us
        if head_us == GREATEST:  # never decided from a cursor
            heads[want.lane] = None if cursor is None else now_us + 1
            unsure += [want] if cursor else []
        elif do_wait:
            took_us = cursor.took_us if cursor else visit.took_us
            again_us = cursor.again_us if cursor else rereads.next_us(visit.began_us, took_us)
            first_us, until_us = firsts[place - 1], min(until_us, visit.lapse_us)
            cursors[want.lane] = Cursor(number, first_us, until_us, due_us, again_us, took_us)
    return heads, cursors, unsure
