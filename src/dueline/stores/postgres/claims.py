"""Claims in PostgreSQL's tables.

A claim reads its lanes in the order of positions, from the cursor on, and locks what it takes; rows
that another transaction holds are skipped. No index has a column that it changes.
"""

import itertools
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from dueline.core.clock import SECOND_US, Clock
from dueline.core.errors import DuelineError
from dueline.core.job import Job, JobId, State
from dueline.core.lane import Lane
from dueline.core.store import Claimed, Lease, Want
from dueline.core.store_capabilities import Prefetched, PrefetchResult
from dueline.stores.postgres.arrays import columns_of
from dueline.stores.postgres.database import GREATEST, LEAST, Database, Executor
from dueline.stores.postgres.job_rows import SELECT, SELECT_KEPT, claimed_jobs, jobs_of
from dueline.stores.postgres.lanes import head_in


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

MANY: Final = 32
"""Minimum number of jobs for which a claim tries the statement for rows that were only inserted."""

COMMIT_US: Final = SECOND_US
"""Most rows are committed within this time. The cursor of a lane without more due rows is so far
behind the present, and a row that comes later, with a notification, is looked for in so long a
part of the lane, which begins with it."""

LATE_MAX: Final = 16
"""Maximum number of such parts of a lane; for more of them it is read from its start."""

_EVERYWHERE: Final = LEAST
"""Stands for the parts of a lane that have more late rows."""

_OLD: Final = ("at_us", "state", "token", "worker", "claimed_us", "crashes", "alone")
_OLD_COLUMNS: Final = ", ".join(_OLD)
_WANTED: Final = (
    "unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::bigint[],"
    " %s::bigint[], %s::bigint[]) WITH ORDINALITY"
    " AS w (queue, shard, bucket, priority, tenant, most, since_lane, since, place)"
)
_LANES: Final = (
    "wanted AS MATERIALIZED (SELECT w.place, l.id AS lane, w.most,"
    f" CASE WHEN l.id = w.since_lane THEN w.since ELSE {LEAST} END AS since FROM {_WANTED}"
    " JOIN @lanes l ON l.queue = w.queue AND l.shard = w.shard AND l.bucket = w.bucket"
    " AND l.priority = w.priority AND l.tenant = w.tenant)"
)


def _read(lane: str, until: str, order: str, columns: str = _OLD_COLUMNS) -> str:
    """Return the query that locks due rows of a lane up to a position."""
    return (
        f"SELECT ctid AS tid, pos_us, {columns} FROM @jobs AS j WHERE j.lane = {lane}.lane"
        f" AND j.pos_us >= {lane}.since AND j.pos_us <= {until} AND j.at_us <= {until}"
        f" ORDER BY {order}, j.id LIMIT {lane}.most FOR UPDATE SKIP LOCKED"
    )


_TAKE: Final = (
    "UPDATE @jobs AS jobs SET at_us = {at}, fence = fence + 1, token = %s, worker = %s,"
    " claimed_us = %s, crashes = jobs.crashes + (jobs.state = 2)::int,"
    " alone = jobs.alone OR jobs.state = 2, state = 1 FROM taken"
    " WHERE jobs.ctid = taken.tid"
    f" RETURNING taken.place, {', '.join(f'taken.{name}' for name in _OLD)}, {SELECT}"
)
# Rows are read in the order of positions. If there are as many as wanted and one of them is due
# later than the last position, as a claim is that has expired, others may come before it: all up
# to that time are read.
_CLAIM: Final = (
    f"WITH {_LANES}, found AS MATERIALIZED (SELECT wanted.place, wanted.lane, wanted.most,"
    " wanted.since, r.* FROM wanted CROSS JOIN LATERAL"
    f" ({_read('wanted', '%s', 'j.pos_us')}) AS r),"
    " unsure AS MATERIALIZED (SELECT place, lane, most, since, max(at_us) AS us FROM found"
    " GROUP BY place, lane, most, since HAVING count(*) = most AND max(at_us) > max(pos_us)),"
    " earlier AS MATERIALIZED (SELECT unsure.place, unsure.lane, r.* FROM unsure CROSS JOIN LATERAL"
    f" ({_read('unsure', 'unsure.us', 'j.at_us')}) AS r),"
    f" taken AS MATERIALIZED (SELECT place, lane, tid, {_OLD_COLUMNS} FROM found"
    " WHERE place NOT IN (SELECT place FROM unsure)"
    f" UNION ALL SELECT place, lane, tid, {_OLD_COLUMNS} FROM earlier) {_TAKE.format(at='%s')}"
)
# Rows that were only inserted have columns that need not be read back, and no expired claim comes
# before them: nothing is claimed if there is another row among them.
_CLAIM_NEW: Final = (
    f"WITH {_LANES}, found AS MATERIALIZED (SELECT r.* FROM wanted CROSS JOIN LATERAL"
    f" ({_read('wanted', '%s', 'j.pos_us', 'at_us, state')}) AS r)"
    " UPDATE @jobs AS jobs SET at_us = %s, fence = fence + 1, token = %s, worker = %s,"
    " claimed_us = %s, state = 1 WHERE jobs.ctid = ANY(ARRAY(SELECT tid FROM found"
    " WHERE NOT EXISTS (SELECT 1 FROM found WHERE state <> 0 OR at_us <> pos_us)))"
    f" RETURNING {SELECT_KEPT}"
)
_PREFETCH: Final = (
    f"WITH {_LANES}, taken AS MATERIALIZED (SELECT wanted.place, wanted.lane, r.*"
    " FROM wanted CROSS JOIN LATERAL"
    f" (SELECT ctid AS tid, {_OLD_COLUMNS} FROM @jobs AS j WHERE j.lane = wanted.lane"
    " AND j.pos_us > %s AND j.pos_us <= %s AND j.at_us = j.pos_us AND j.state = 0"
    " AND j.outcome = '' ORDER BY j.pos_us, j.id LIMIT wanted.most FOR UPDATE SKIP LOCKED) AS r)"
    f" {_TAKE.format(at='jobs.at_us + %s')}"
)
_HEADS: Final = (
    f"WITH {_LANES} SELECT place, lane, behind.*, CASE WHEN ahead.is_known THEN ahead.us"
    f" ELSE {head_in('wanted.lane', 'wanted.most')} END"
    " FROM wanted CROSS JOIN LATERAL (SELECT min(j.at_us) FILTER (WHERE j.at_us > %s),"
    " min(j.at_us) FILTER (WHERE j.at_us <= %s),"
    " coalesce(bool_and(j.at_us = j.pos_us) FILTER (WHERE j.at_us <= %s), true)"
    " FROM @jobs AS j WHERE j.lane = wanted.lane AND j.pos_us >= wanted.since"
    " AND j.pos_us < wanted.most) AS behind CROSS JOIN LATERAL (SELECT min(at_us) AS us,"
    " coalesce(bool_or(at_us = pos_us), false) OR count(*) < %s AS is_known FROM"
    " (SELECT j.at_us, j.pos_us FROM @jobs AS j WHERE j.lane = wanted.lane"
    " AND j.pos_us >= wanted.most ORDER BY j.pos_us, j.id LIMIT %s) AS rest) AS ahead"
)
"""For each lane, of the rows from `since` to before `most`: the lowest time after the present and
the lowest until then, and whether all of the latter wait; and the lowest time of the rest, which
the first ones of them show if one of these waits (see HEAD)."""

_HEAD: Final = len(_OLD) + 1
_AT, _STATE = 1, 2
_ID: Final = _HEAD + 1


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
    again_us: int = 0
    took_us: int = 0


Places = dict[int, int]
"""Parts of a lane, by their numbers: the first position in each."""


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


class LateRows:
    """Where rows were put that a claim with a cursor may not read. Several threads use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[Lane, Places] = {}
        self._notes = itertools.count()

    def note(self, puts: Iterable[tuple[Lane, int]]) -> None:
        """Note lanes and positions where rows were put."""
        with self._lock:
            for lane, pos_us in puts:
                places = self._places.setdefault(lane, {})
                part = pos_us // COMMIT_US
                if _EVERYWHERE not in places and (part in places or len(places) < LATE_MAX):
                    places[part] = min(pos_us, places.get(part, pos_us))
                else:
                    places.clear()
                    places[_EVERYWHERE] = next(self._notes)

    def of(self, lane: Lane) -> Places:
        """Return the places in a lane that are known now."""
        with self._lock:
            return dict(self._places.get(lane, ()))

    def remove(self, lane: Lane, read: Places) -> None:
        """Remove places that have been read, but for rows that were noted meanwhile."""
        with self._lock:
            places = self._places.get(lane, {})
            for part, pos_us in read.items():
                if places.get(part) == pos_us:
                    del places[part]
            if not places:
                self._places.pop(lane, None)

    def clear(self) -> None:
        """Remove all places."""
        with self._lock:
            self._places.clear()


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
            found, cursors, unsure = _heads(visits, rows, now_us, rereads)
            heads |= found
        if unsure:
            with suppress(DuelineError):
                heads |= connection.read(lambda database: _whole_heads(database, unsure))
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
            some: list[Want] = []
            room = limit - len(taken.jobs)
            # As many lanes as fit: what they leave of the limit, the next one may take.
            while place < len(wants) and (not some or wants[place].most <= room):
                lane, most = wants[place]
                some.append(Want(lane, min(most, room)))
                room -= some[-1].most
                place += 1
            self._visit(database, some, lease, taken)
        return taken, _heads_query(taken.visits, lease.now_us)

    def _visit(
        self, database: Database, wants: Sequence[Want], lease: Lease, taken: _Taken
    ) -> None:
        """Claim from lanes by one statement, or two, beside those for late rows."""
        began_us = self._clock.monotonic_us()
        read = [self._late.of(want.lane) for want in wants]
        known = [
            None if _EVERYWHERE in places else self._valid(want.lane, lease.now_us, began_us)
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
            new = _claim_new(database, rest[0], known[0], lease)
        rows = [[]] if new else _claim(database, rest, known, lease)
        took_us = self._clock.monotonic_us() - began_us
        for want, cursor, places, found, more in zip(rest, known, read, rows, late, strict=True):
            positions = [row[_HEAD] for row in found] or [job.pos_us for job in new]
            lapse_us = lease.now_us + lease.duration_us if more else GREATEST
            taken.visits.append(
                _Visit(want, cursor, places, positions, began_us, took_us, lapse_us)
            )
            found += more  # noqa: PLW2901  (in place)
            found.sort(key=lambda row: (row[_AT], row[_ID]))
            taken.jobs.extend(_jobs_of(want.lane, found))
            taken.died.update(_died_of(want.lane, found))
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
        found: list[tuple[Any, ...]] = []
        if more.most:
            (found,) = _claim(database, [more], [there], lease, until_us=until_us)
        if len(found) == more.most:
            del places[part]
        rows += found
    return rows


def _bound(
    wants: Sequence[Want], cursors: Sequence[Cursor | None], mosts: Sequence[int] | None = None
) -> list[list[object]]:
    return [
        *columns_of(want.lane for want in wants),
        list(mosts if mosts is not None else [want.most for want in wants]),
        [cursor.lane if cursor else -1 for cursor in cursors],
        [cursor.pos_us if cursor else LEAST for cursor in cursors],
    ]


def _claim(
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
    bound = _bound(wants, cursors)
    for row in database.fetch(
        _CLAIM, [*bound, until_us, until_us, now_us + lease_us, token, worker, now_us]
    ):
        rows[row[0] - 1].append(row)
    return rows


def _claim_new(database: Database, want: Want, cursor: Cursor | None, lease: Lease) -> list[Job]:
    """Claim rows that were only inserted; none if there is another one before the last of them."""
    now_us, lease_us, worker, token = lease
    rows = database.fetch(
        _CLAIM_NEW,
        [*_bound([want], [cursor]), now_us, now_us, now_us + lease_us, token, worker, now_us],
    )
    rows.sort()
    return claimed_jobs(want.lane, rows, lease)


def _jobs_of(lane: Lane, rows: Sequence[tuple[Any, ...]]) -> list[Job]:
    return jobs_of(lane, [row[_HEAD:] for row in rows])


def _died_of(lane: Lane, rows: Sequence[tuple[Any, ...]]) -> dict[JobId, Job]:
    """Return the rows before the claim of those whose last claim had no outcome."""
    died = {}
    for row in rows:
        if row[_STATE] in (State.CLAIMED, State.STARTED):
            job = Job(lane, *row[_HEAD:])
            old = dict(zip(_OLD, row[1:_HEAD], strict=True))
            died[job.id] = job._replace(fence=job.fence - 1, **old)
    return died


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
    bound = _bound(wants, cursors, _firsts(visits, now_us))
    return _HEADS, [*bound, now_us, now_us, now_us, most, most]


def _heads(
    visits: Sequence[_Visit], rows: Sequence[tuple[Any, ...]], now_us: int, rereads: Rereads
) -> tuple[dict[Lane, int | None], dict[Lane, Cursor], list[Want]]:
    """Return the lowest `at_us` in each lane, its new cursor, and the lanes to read wholly.

    rows: Of the query of heads.
    """
    firsts = _firsts(visits, now_us)
    heads: dict[Lane, int | None] = {one.want.lane: None for one in visits}
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


def _whole_heads(database: Database, wants: Sequence[Want]) -> dict[Lane, int | None]:
    """Return the lowest `at_us` in each lane, read from its start."""
    heads: dict[Lane, int | None] = dict.fromkeys(want.lane for want in wants)
    if wants:
        bound = _bound(wants, [None] * len(wants), [LEAST] * len(wants))
        for place, *_, head_us in database.fetch(_HEADS, [*bound, 0, 0, 0, 1, 1]):
            heads[wants[place - 1].lane] = head_us
    return heads


def prefetch(
    database: Database, wants: Sequence[Want], *, limit: int, until_us: int, lease: Lease
) -> PrefetchResult:
    """Claim the first rows that become due soon, want by want."""
    now_us, lease_us, worker, token = lease
    found: list[Prefetched] = []
    visited: list[Want] = []
    for lane, most in wants:
        if len(found) >= limit:
            break
        want = Want(lane, min(most, limit - len(found)))
        visited.append(want)
        rows = database.fetch(
            _PREFETCH, [*_bound([want], [None]), now_us, until_us, lease_us, token, worker, now_us]
        )
        rows.sort(key=lambda row: (row[_AT], row[_ID]))
        found += map(Prefetched, _jobs_of(lane, rows), [row[_AT] for row in rows])
    return PrefetchResult(found, _whole_heads(database, visited))
