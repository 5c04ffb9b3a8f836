"""Cursors of claims, over a table that answers the statements as `test_statements` checks them."""

import random
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, cast

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreUnavailable
from dueline.core.job import Job, JobId, State
from dueline.core.lane import Lane
from dueline.core.store import Claimed, Lease, Want
from dueline.store_tests.calls import NOW_US, lane_of, new_job, token_of
from tests.harness.clocks import HandClock
from tests.harness.postgres import expect_server

expect_server()

from dueline.stores.postgres import claims, cursors  # noqa: E402
from dueline.stores.postgres.claims import MANY  # noqa: E402
from dueline.stores.postgres.cursors import (  # noqa: E402
    CHEAP_US,
    NOTIFIED,
    POLLED,
    Claims,
    Rereads,
)
from dueline.stores.postgres.job_rows import SET_BY_CLAIMS  # noqa: E402
from dueline.stores.postgres.late_rows import COMMIT_US, LATE_MAX  # noqa: E402

LEASE_US = 3 * SECOND_US
LANES = [lane_of(priority=priority) for priority in range(3)]
FOREVER_US = 2**62


class Table:
    """The rows of a store, and how many of them its statements have read.

    Attributes:
      is_pooled: No notifications come.
      locked: Rows that other transactions hold.
      before_heads: Called between the commit of a claim and the query after it.
      fails: The query after a commit fails.
      statements: Number of statements that were run.
      quick: Number of claims of rows that were only inserted.
      takes_us: Duration of each statement, in microseconds.
    """

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.rows: dict[JobId, Job] = {}
        self.numbers: dict[Lane, int] = {}
        self.read_count = self.takes_us = self.statements = self.quick = 0
        self.is_pooled = self.fails = False
        self.locked: set[JobId] = set()
        self.before_heads: Callable[[], object] = lambda: None

    def add(self, *jobs: Job) -> None:
        """Insert rows."""
        for job in jobs:
            self.numbers.setdefault(job.lane, 1 + len(self.numbers))
            self.rows[job.id] = job

    def copy(self) -> "Table":
        """Return a table with the same rows."""
        table = Table(self.clock)
        table.add(*self.rows.values())
        return table

    def write_then_fetch(self, work: Callable[[Any], Any]) -> Any:  # noqa: ANN401
        """Run statements and a query."""
        result, query = work(self)
        self.before_heads()
        return result, None if self.fails else self.fetch(*query)

    def read(self, work: Callable[[Any], Any]) -> Any:  # noqa: ANN401
        """Run statements that read."""
        if self.fails:
            raise StoreUnavailable("lost")
        return work(self)

    def fetch(self, statement: str, bound: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run a statement."""
        self.clock.advance(us=self.takes_us)
        self.statements += 1
        statements: dict[str, Callable[..., Iterator[tuple[Any, ...]]]] = {
            claims._PREFETCH: self._prefetch,
            claims.HEADS: self._heads,
            claims._CLAIM_DUE: self._claim_due,
            claims._CLAIM_INSERTED: self._claim_inserted,
        }
        lanes = [Lane(*columns) for columns in zip(*bound[:5], strict=True)]
        wanted = zip(lanes, *bound[5:8], strict=True)
        rows = [
            row
            for place, (lane, most, number, since_us) in enumerate(wanted, 1)
            if lane in self.numbers
            for row in statements[statement](
                place, lane, most, since_us if number == self.numbers[lane] else -1, *bound[8:]
            )
        ]
        return rows[::-1]  # they come in any order

    def _from(self, lane: Lane, since_us: int) -> Iterator[Job]:
        for row in sorted(self.rows.values(), key=attrgetter("pos_us", "id")):
            if row.lane == lane and row.pos_us >= since_us:
                self.read_count += 1
                yield row

    def _first(self, lane: Lane, most: int, since_us: int, until_us: int) -> list[Job]:
        """Return the first due rows, and read no more than these."""
        rows: list[Job] = []
        for row in self._from(lane, since_us):
            if row.pos_us > until_us or len(rows) == most:
                break
            rows += [row] if row.at_us <= until_us and row.id not in self.locked else []
        return rows

    def _claim(self, row: Job, end_us: int, token: Any, worker: str, now_us: int) -> Job:  # noqa: ANN401
        self.rows[row.id] = row = row._replace(
            at_us=end_us, fence=row.fence + 1, token=token, worker=worker, claimed_us=now_us,
            state=State.CLAIMED,
        )  # fmt: skip
        return row

    def _claim_due(
        self, place: int, lane: Lane, most: int, since_us: int, until_us: int, _until: int,
        *terms: Any,  # noqa: ANN401
    ) -> Iterator[tuple[Any, ...]]:  # fmt: skip
        first = self._first(lane, most, since_us, until_us)
        if len(first) == most and any(row.at_us > first[-1].pos_us for row in first):
            us = max(row.at_us for row in first)
            earlier = [row for row in self._from(lane, since_us) if row.at_us <= us]
            first = sorted(earlier, key=attrgetter("at_us", "id"))[:most]
        for row in first:
            old = [getattr(row, name) for name in claims._OLD]
            yield (place, *old, *self._claim(row, *terms)[1:])

    def _claim_inserted(
        self, _place: int, lane: Lane, most: int, since_us: int, until_us: int, _until: int,
        *terms: Any,  # noqa: ANN401
    ) -> Iterator[tuple[Any, ...]]:  # fmt: skip
        self.quick += 1
        first = self._first(lane, most, since_us, until_us)
        if all(row.state == State.WAITING and row.at_us == row.pos_us for row in first):
            for row in first:
                kept = self._claim(row, *terms)._asdict()
                yield tuple(kept[name] for name in Job._fields[1:] if name not in SET_BY_CLAIMS)

    def _prefetch(
        self,
        place: int,
        lane: Lane,
        most: int,
        _since_us: int,
        *bound: Any,  # noqa: ANN401
    ) -> Iterator[tuple[Any, ...]]:
        now_us, until_us, lease_us, *terms = bound
        for row in self._first(lane, most, now_us + 1, until_us):
            old = [getattr(row, name) for name in claims._OLD]
            yield (place, *old, *self._claim(row, row.at_us + lease_us, *terms)[1:])

    def _heads(
        self, place: int, lane: Lane, first_us: int, since_us: int, now_us: int, *_: int
    ) -> Iterator[tuple[Any, ...]]:
        rows = list(self._from(lane, min(since_us, first_us)))
        self.read_count -= sum(row.pos_us >= first_us for row in rows)  # it reads few of them
        behind = [row for row in rows if since_us <= row.pos_us < first_us]
        due = [row for row in behind if row.at_us <= now_us]
        yield (
            place,
            self.numbers[lane],
            min((row.at_us for row in behind if row.at_us > now_us), default=None),
            min((row.at_us for row in due), default=None),
            all(row.at_us == row.pos_us for row in due),
            min((row.at_us for row in rows if row.pos_us >= first_us), default=None),
        )


class Process:
    """A process that claims from the table, at the present of a clock."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.claims = Claims(table.clock)
        self.count = 0

    def claim(self, *wants: Want, limit: int = 10**6) -> Claimed:
        """Claim, and check what holds in any case."""
        self.count += 1
        now_us = self.table.clock.wall_us()
        before = dict(self.table.rows)
        claimed = self.claims.claim(
            cast("Any", self.table),
            wants or [Want(LANES[0], 10**6)],
            limit=limit,
            lease=Lease(now_us, LEASE_US, "w", token_of(self.count)),
        )
        most = {want.lane: want.most for want in wants or [Want(LANES[0], 10**6)]}
        assert len(claimed.jobs) <= max(limit, 0)
        assert len({job.id for job in claimed.jobs}) == len(claimed.jobs)
        for job in claimed.jobs:
            row = before[job.id]
            assert row.at_us <= now_us
            assert job == self.table.rows[job.id]
            most[job.lane] -= 1
            assert (claimed.died.get(job.id) == row) == (row.state != State.WAITING)
        assert min(most.values()) >= 0
        order = [(job.lane.priority, before[job.id].at_us, job.id) for job in claimed.jobs]
        assert [place[1:] for place in order] == [
            place[1:] for lane in most for place in sorted(order) if place[0] == lane.priority
        ]
        lanes = list(most)
        assert [lanes.index(job.lane) for job in claimed.jobs] == sorted(
            lanes.index(job.lane) for job in claimed.jobs
        )
        return claimed

    def put(self, *jobs: Job, is_noted: bool = True) -> None:
        """Insert rows, and note them as the store and notifications do."""
        self.table.add(*jobs)
        if is_noted:
            self.claims.step_back([(job.lane, job.pos_us) for job in jobs])

    def move(self, job: Job, at_us: int) -> None:
        """Release a row until a time."""
        self.put(job._replace(at_us=at_us, pos_us=at_us, state=State.WAITING))


@pytest.fixture
def table() -> Table:
    return Table(HandClock(NOW_US))


@pytest.fixture
def process(table: Table) -> Process:
    return Process(table)


def in_lane(table: Table, lane: Lane) -> list[Job]:
    return [row for row in table.rows.values() if row.lane == lane]


def head_of(table: Table, lane: Lane) -> int | None:
    return min((row.at_us for row in in_lane(table, lane)), default=None)


def due_in(table: Table, lane: Lane, now_us: int) -> int:
    return sum(row.at_us <= now_us for row in in_lane(table, lane))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_claim_takes_as_many_as_are_due_however_they_came(table: Table, seed: int) -> None:
    """All rows are noted: those of the process's own, and those of another, by notifications."""
    chance, process, numbers = random.Random(seed), Process(table), iter(range(1, 10**6))
    held: list[Job] = []
    for _ in range(60):
        now_us = table.clock.wall_us()
        jobs = [
            new_job(next(numbers), lane=chance.choice(LANES))._replace(
                pos_us=at_us, at_us=at_us, due_us=at_us
            )
            for at_us in [
                now_us + chance.choice((-9, -2, -1, 0, 0, 0, 1, 4)) * chance.choice((1, SECOND_US))
                for _ in range(chance.choice((0, 0, 1, 3, 40)))
            ]
        ]
        process.put(*jobs)
        for job in held:
            if job == table.rows.get(job.id) and chance.random() < 0.4:
                if chance.random() < 0.5:
                    del table.rows[job.id]
                else:
                    process.move(job, now_us + chance.choice((0, 1, 2)) * SECOND_US)
        table.clock.advance(us=chance.choice((0, 1, 1000, SECOND_US, 3 * SECOND_US)))
        now_us = table.clock.wall_us()
        wants = [Want(lane, chance.choice((1, 2, 9, 50))) for lane in chance.sample(LANES, 2)]
        limit = chance.choice((1, 5, 100))
        due = {want.lane: min(want.most, due_in(table, want.lane, now_us)) for want in wants}
        claimed = process.claim(*wants, limit=limit)
        held += claimed.jobs
        assert len(claimed.jobs) == min(limit, sum(due.values()))
        for want in wants:
            is_first = want is wants[0]
            assert not is_first or want.lane in claimed.next_at_us
        for lane, head_us in claimed.next_at_us.items():
            first_us = head_of(table, lane)
            assert head_us == first_us or (
                head_us is not None and head_us < (first_us or FOREVER_US)
            )


def test_a_lane_that_is_not_at_the_limit_has_its_exact_head_at_the_second_claim(
    table: Table, process: Process
) -> None:
    for number in range(1, 9):
        process.put(new_job(number, at_us=NOW_US + number % 3, lane=LANES[0]))
    table.clock.advance(us=5)
    for _ in range(9):
        claimed = process.claim(Want(LANES[0], 1))
        for job in claimed.jobs:
            del table.rows[job.id]
    claimed = process.claim()
    assert claimed.next_at_us == {LANES[0]: None}


@pytest.mark.parametrize("limit", [0, -1])
def test_a_claim_of_nothing_reads_nothing(process: Process, limit: int) -> None:
    process.put(new_job(1, lane=LANES[0]))
    assert process.claim(limit=limit) == Claimed([], {}, {})
    lease = Lease(NOW_US, LEASE_US, "w", token_of(1))
    assert process.claims.claim(cast("Any", process.table), [], limit=9, lease=lease) == Claimed(
        [], {}, {}
    )
    assert process.table.read_count == 0


def test_all_lanes_are_due_in_a_moment_if_their_heads_cannot_be_read(
    table: Table, process: Process
) -> None:
    process.put(new_job(1, lane=LANES[0]), new_job(2, at_us=NOW_US + 5, lane=LANES[1]))
    process.claim(Want(LANES[0], 9))
    assert process.claims.numbers() == [1]
    table.fails = True
    claimed = process.claim(*(Want(lane, 9) for lane in LANES))
    assert claimed.next_at_us == dict.fromkeys(LANES, NOW_US + 1)
    assert process.claims.numbers() == []


@pytest.mark.parametrize(
    ("mosts", "limit", "visited", "statements"),
    [
        ((2, 2, 2), 6, 3, 1),
        ((2, 2, 2), 4, 2, 1),
        ((2, 2, 2), 5, 3, 2),  # the last lane gets what the first ones leave
        ((2, 2, 2), 2, 1, 1),
        ((9, 2, 2), 3, 1, 1),
        ((3, 9, 2), 9, 3, 3),
        ((0, 2, 2), 4, 3, 1),
    ],
)
def test_lanes_are_visited_by_few_statements_until_the_limit(
    process: Process, mosts: tuple[int, ...], limit: int, *, visited: int, statements: int
) -> None:
    for number, lane in enumerate(LANES):
        process.put(*(new_job(10 * number + n, lane=lane) for n in range(3)))
    claimed = process.claim(*map(Want, LANES, mosts), limit=limit)
    assert list(claimed.next_at_us) == LANES[:visited]
    assert process.table.statements == statements + 1  # and the heads


@pytest.mark.parametrize(("most", "statements"), [(MANY - 1, 1), (MANY, 1), (MANY + 1, 1)])
def test_a_claim_of_many_inserted_rows_takes_one_statement(
    table: Table, process: Process, most: int, statements: int
) -> None:
    process.put(*(new_job(number, at_us=NOW_US - 1, lane=LANES[0]) for number in range(3 * MANY)))
    assert len(process.claim(Want(LANES[0], most)).jobs) == most
    assert table.statements == statements + 1
    assert table.quick == (most >= MANY)
    process.put(new_job(999, at_us=NOW_US - 9, lane=LANES[0]))  # behind the cursor
    assert len(process.claim(Want(LANES[0], most)).jobs) == most
    assert table.quick == (most >= MANY)  # not beside late rows


def test_late_rows_that_are_claimed_do_not_count_for_the_head(
    table: Table, process: Process
) -> None:
    process.put(*(new_job(number, lane=LANES[0]) for number in range(3)))
    table.clock.advance(5)
    assert process.claim().next_at_us == {LANES[0]: table.clock.wall_us() + LEASE_US}
    process.put(new_job(9, at_us=NOW_US - 9, lane=LANES[0]))
    now_us = table.clock.wall_us()
    claimed = process.claim()
    assert len(claimed.jobs) == 1
    assert claimed.next_at_us == {LANES[0]: now_us + LEASE_US}
    assert process.claims.numbers() == [1]
    before = table.read_count
    process.claim()  # from the cursor, which is behind all of these
    assert table.read_count == before


def test_a_row_that_another_claim_held_is_claimed_next(table: Table, process: Process) -> None:
    process.put(*(new_job(number, at_us=NOW_US + number, lane=LANES[0]) for number in range(6)))
    table.clock.advance(us=9)
    table.locked = {new_job(1).id}
    assert len(process.claim(Want(LANES[0], 4)).jobs) == 4
    table.locked.clear()
    assert [job.id for job in process.claim().jobs] == [new_job(1).id, new_job(5).id]


@pytest.mark.parametrize("us", [LEASE_US - 1, LEASE_US])
def test_a_claim_before_the_cursor_is_claimed_again_when_it_expires(
    table: Table, process: Process, us: int
) -> None:
    process.put(new_job(1, lane=LANES[0]))
    assert process.claim().jobs
    for number in range(2, 9):
        process.put(new_job(number, at_us=table.clock.wall_us(), lane=LANES[0]))
        assert len(process.claim().jobs) == 1
        for row in list(table.rows.values())[1:]:  # heartbeats
            table.rows[row.id] = row._replace(at_us=NOW_US + 9 * LEASE_US)
        table.clock.advance(us=SECOND_US // 8)
    table.clock.advance(us=us - 7 * (SECOND_US // 8))
    assert len(process.claim().jobs) == (us == LEASE_US)


@pytest.mark.parametrize("has_others", [False, True])
def test_the_head_counts_rows_that_are_noted_meanwhile(
    table: Table, process: Process, *, has_others: bool
) -> None:
    others = [new_job(1, at_us=NOW_US + 9, lane=LANES[0])] * has_others
    process.put(*others, new_job(2, at_us=NOW_US - 9, lane=LANES[1]))
    late = [(LANES[0], NOW_US - 5)]
    table.before_heads = lambda: process.claims.step_back(late)
    assert process.claim(Want(LANES[0], 9)).next_at_us == {LANES[0]: NOW_US - 5}


# --- how much is read

ROWS, STEP = 200, 10


@pytest.mark.parametrize("is_old", [False, True])
def test_claims_that_drain_a_lane_read_each_row_a_few_times(
    table: Table, process: Process, *, is_old: bool
) -> None:
    """The rows that were claimed stay: their handlers run."""
    first_us = NOW_US - 60 * SECOND_US if is_old else NOW_US
    process.put(
        *(new_job(number, at_us=first_us + number, lane=LANES[0]) for number in range(ROWS))
    )
    table.clock.advance(us=ROWS)
    for _ in range(ROWS // STEP):
        claimed = process.claim(Want(LANES[0], STEP)).jobs
        assert len(claimed) == STEP
        # Another claim may hold rows between these, and be rolled back.
        assert process.claims._cursors[LANES[0]].pos_us == claimed[0].pos_us
        table.clock.advance(us=100)
    assert table.read_count < 4 * ROWS


def test_claims_that_keep_up_with_inserts_read_the_last_second(
    table: Table, process: Process
) -> None:
    for number in range(ROWS):
        process.put(new_job(number, at_us=table.clock.wall_us(), lane=LANES[0]))
        assert len(process.claim(Want(LANES[0], STEP)).jobs) == 1
        table.clock.advance(us=COMMIT_US // 4)
        for row in list(table.rows.values()):  # heartbeats
            table.rows[row.id] = row._replace(at_us=table.clock.wall_us() + LEASE_US)
    rereads = ROWS // 4  # of the whole lane, each second, by the claim and for its head
    assert table.read_count < (rereads + 10) * ROWS


@pytest.mark.parametrize("is_pooled", [False, True])
def test_a_row_that_nobody_notes_is_found_when_the_lane_is_read_again(
    table: Table, process: Process, *, is_pooled: bool
) -> None:
    table.is_pooled = is_pooled
    rereads = POLLED if is_pooled else NOTIFIED
    process.put(new_job(1, at_us=NOW_US, lane=LANES[0]))
    assert process.claim().jobs
    process.put(new_job(2, at_us=NOW_US - 2 * SECOND_US, lane=LANES[0]), is_noted=False)
    table.clock.advance(us=rereads.us_min - 1)
    assert not process.claim().jobs
    table.clock.advance(us=1)
    assert process.claim().jobs


def test_a_lane_that_takes_long_to_read_is_read_again_more_rarely(
    table: Table, process: Process
) -> None:
    table.takes_us = SECOND_US // 10
    process.put(new_job(1, at_us=NOW_US, lane=LANES[0]))
    began_us = table.clock.monotonic_us()
    assert process.claim().jobs
    table.takes_us = 0
    process.put(new_job(2, at_us=NOW_US - 2 * SECOND_US, lane=LANES[0]), is_noted=False)
    until_us = began_us + NOTIFIED.cost * SECOND_US // 10
    while table.clock.monotonic_us() < until_us - SECOND_US:
        table.clock.advance(us=SECOND_US // 2)
        for row in list(table.rows.values()):
            if row.state != State.WAITING:
                table.rows[row.id] = row._replace(at_us=table.clock.wall_us() + 9 * LEASE_US)
        assert not process.claim().jobs
    table.clock.advance(us=SECOND_US)
    assert process.claim().jobs


@pytest.mark.parametrize("takes_us", [0, CHEAP_US, CHEAP_US + 1])
def test_an_empty_lane_is_read_from_its_start_at_once_only_if_that_is_quick(
    table: Table, process: Process, takes_us: int
) -> None:
    table.takes_us = takes_us
    process.put(new_job(1, lane=LANES[0]))
    (job,) = process.claim().jobs
    del table.rows[job.id]
    now_us = table.clock.wall_us()
    head_us = process.claim().next_at_us[LANES[0]]
    if takes_us <= CHEAP_US:
        assert head_us is None
    else:
        rest_us = NOTIFIED.us_min - (now_us - NOW_US)
        assert head_us == now_us + rest_us


def test_of_late_rows_only_their_part_of_the_lane_is_read(table: Table, process: Process) -> None:
    first_us = NOW_US - 60 * SECOND_US
    process.put(
        *(new_job(n, at_us=first_us + n * COMMIT_US // 10, lane=LANES[0]) for n in range(ROWS))
    )
    assert len(process.claim(Want(LANES[0], ROWS)).jobs) == ROWS
    process.claim()  # from the cursor
    before = table.read_count
    process.put(new_job(ROWS, at_us=first_us + 5 * SECOND_US, lane=LANES[0]))
    assert len(process.claim(Want(LANES[0], 3)).jobs) == 1
    assert table.read_count - before < 20


@pytest.mark.parametrize("parts", [1, 2, LATE_MAX, LATE_MAX + 1])
@pytest.mark.parametrize("most", [1, 3, 100])
def test_late_rows_in_many_parts_are_all_claimed(
    table: Table, process: Process, parts: int, most: int
) -> None:
    process.put(new_job(1, lane=LANES[0]))
    assert process.claim().jobs
    late = [
        new_job(10 * part + n, at_us=NOW_US - (part + 2) * COMMIT_US + 5 * n, lane=LANES[0])
        for part in range(1, parts + 1)
        for n in (3, 1)
    ]
    process.put(*late)
    jobs: list[Job] = []
    while len(jobs) < len(late):
        claimed = process.claim(Want(LANES[0], most))
        assert len(claimed.jobs) == min(most, len(late) - len(jobs))
        jobs += claimed.jobs
    assert {job.id for job in jobs} == {job.id for job in late}


def test_the_cursors_are_bounded(
    table: Table, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 5
    monkeypatch.setattr(cursors, "CURSORS_MAX", most)
    lanes = [lane_of(priority=number) for number in range(most + 1)]
    process.put(*(new_job(number, lane=lane) for number, lane in enumerate(lanes)))
    process.claim(*(Want(lane, 1) for lane in lanes[:-1]))
    process.claims.step_back([(lanes[0], NOW_US - 9)])
    assert sorted(process.claims.numbers()) == list(range(1, most + 1))
    process.claim(Want(lanes[-1], 1))
    assert process.claims.numbers() == []
    assert process.claims._late.of(lanes[0]) == {}


def test_rows_that_are_claimed_ahead_come_in_the_order_of_their_times(table: Table) -> None:
    for number in range(12):
        table.add(new_job(99 - number, at_us=NOW_US + number // 2, lane=LANES[number % 3]))
    for limit in range(1, 9):
        result = claims.prefetch(
            cast("Any", table.copy()),
            [Want(LANES[2], 2), Want(LANES[0], 3), Want(LANES[1], 9)],
            limit=limit,
            until_us=NOW_US + 4,
            lease=Lease(NOW_US, LEASE_US, "w", token_of(1)),
        )
        starts_us = [job.start_us - NOW_US for job in result.jobs]
        assert starts_us == [1, 2, 1, 3, 4, 2, 3][:limit]
        assert [job.job.at_us - LEASE_US - NOW_US for job in result.jobs] == starts_us
        assert (
            list(result.next_at_us)
            == [LANES[2], LANES[0], LANES[1]][: 1 + (limit > 2) + (limit > 5)]
        )


@pytest.mark.parametrize(
    ("took_us", "next_us"), [(0, 100), (10, 100), (25, 100), (26, 104), (1000, 4000)]
)
def test_a_read_comes_again_after_a_share_of_its_time(took_us: int, next_us: int) -> None:
    assert Rereads(100, 4).next_us(7, took_us) == 7 + next_us
