"""The statements of claims on random rows, compared with what they say in a few lines of Python."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, cast

import psycopg
import pytest

from dueline.core.job import Job, JobId, State
from dueline.core.lane import Lane
from dueline.core.store import Lease, Want
from dueline.store_tests.calls import new_job, token_of
from dueline.stores.postgres import claims, jobs, records
from dueline.stores.postgres.claims import Cursor
from dueline.stores.postgres.database import LEAST, Database
from dueline.stores.postgres.job_rows import COLUMNS
from dueline.stores.postgres.store import PostgresStore
from tests.harness.postgres import schemas

pytestmark = pytest.mark.postgres

LANE = Lane("q", 0, 0, 0, "")
LANES = [LANE, LANE._replace(queue="r"), LANE._replace(shard=1), LANE._replace(bucket=1),
         LANE._replace(priority=1), LANE._replace(tenant="t")]  # fmt: skip
STATES = (State.WAITING,) * 4 + (State.CLAIMED, State.STARTED)
ROWS, EXAMPLES, LEASE_US, TIMES = 80, 60, 1000, 12


class Stage:
    """Random rows of six lanes; another transaction locks some of them."""

    def __init__(self, url: str, store: PostgresStore, chance: random.Random) -> None:
        self.chance = chance
        self.url = url
        self.connections = store._connections
        store.add([new_job(number, lane=lane) for number, lane in enumerate(LANES)])
        self.rows = [self._row(number) for number in range(ROWS)]
        self.numbers: dict[Lane, int] = {}
        self.connections.write(self._fill)
        self.locked: list[JobId] = []

    def _row(self, number: int) -> Job:
        pos_us = self.chance.randrange(TIMES)
        lane = self.chance.choice(LANES[:1] * 5 + LANES)
        # The quick claim applies to most claims of the other lanes.
        is_odd = self.chance.random() < (0.7 if lane == LANE else 0.1)
        return new_job(self.chance.getrandbits(40) * 100 + number)._replace(
            lane=lane,
            pos_us=pos_us,
            at_us=pos_us + is_odd * self.chance.choice((0, 1, 3, 8)),
            state=self.chance.choice(STATES) if is_odd else State.WAITING,
            outcome=self.chance.choice((b"",) * 6 + (b"ended",)),
            fence=self.chance.randrange(3),
            crashes=self.chance.randrange(3),
            alone=self.chance.random() < 0.2,
        )

    def _fill(self, database: Database) -> None:
        rows = database.fetch("SELECT queue, shard, bucket, priority, tenant, id FROM @lanes")
        self.numbers = {Lane(*row[:-1]): row[-1] for row in rows}
        database.execute("DELETE FROM @jobs")
        names, places = ", ".join(["lane", *COLUMNS]), ", ".join(["%s"] * (1 + len(COLUMNS)))
        for row in self.rows:
            values = [self.numbers[row.lane], *row[1:]]
            database.execute(
                f"INSERT INTO @jobs ({names}) VALUES ({places})",  # noqa: S608
                [int(value) if isinstance(value, State) else value for value in values],
            )

    def examples(self) -> Iterator["Stage"]:
        """Lock other rows again and again."""
        with psycopg.connect(self.url.partition("?")[0]) as other:
            for _ in range(EXAMPLES):
                self.locked = [row.id for row in self.rows if self.chance.random() < 0.15]
                schema = self.url.partition("schema=")[2]
                other.execute(
                    f"SELECT FROM {schema}.jobs WHERE id = ANY(%s) FOR UPDATE".encode(),
                    (self.locked,),
                )
                yield self
                other.rollback()

    def cursor(self, lane: Lane) -> Cursor | None:
        """Return no cursor, that of the lane, or one of another lane."""
        number = self.numbers[self.chance.choice([lane, lane, lane, *LANES])]
        cursor = Cursor(number, self.chance.randrange(TIMES), 0, None, 0, 0)
        return self.chance.choice((None, cursor, cursor))

    def within(self, want: Want, cursor: Cursor | None, until_us: int) -> list[Job]:
        """Return the rows that a claim may take, in the order of positions."""
        since_us = LEAST
        if cursor is not None and cursor.lane == self.numbers[want.lane]:
            since_us = cursor.pos_us
        rows = [
            row
            for row in self.rows
            if row.lane == want.lane and row.id not in self.locked
            and row.pos_us >= since_us and row.at_us <= until_us
        ]  # fmt: skip
        return sorted(rows, key=attrgetter("pos_us", "id"))

    def run(
        self, call: Callable[..., Any], *bound: object, **named: object
    ) -> tuple[Any, dict[JobId, Job]]:
        """Return what a call returns and the rows after it; roll it back."""

        def run_and_roll_back(database: Database) -> None:
            database.execute("SET LOCAL lock_timeout = '5s'")  # a claim waits for no lock
            answer = call(database, *bound, **named)
            names = ", ".join(f"j.{name}" for name in COLUMNS)
            lanes = {number: lane for lane, number in self.numbers.items()}
            rows = database.fetch(f"SELECT lane, {names} FROM @jobs AS j")  # noqa: S608
            raise Stop(answer, {row[2]: Job(lanes[row[0]], *row[1:]) for row in rows})

        with pytest.raises(Stop) as stopped:
            self.connections.write(run_and_roll_back)
        answer, rows = stopped.value.args
        return answer, rows


class Stop(Exception):
    """Rolls a transaction back."""


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with schemas() as made:
        url = made.fresh()
        store = cast("PostgresStore", made.open(url))
        yield Stage(url, store, random.Random(request.node.name))
        store.close()


def claimed(row: Job, lease: Lease, at_us: int) -> Job:
    """Return a row after its claim."""
    has_crashed = row.state == State.STARTED
    return row._replace(
        at_us=at_us, fence=row.fence + 1, token=lease.token, worker=lease.worker,
        claimed_us=lease.now_us, crashes=row.crashes + has_crashed, alone=row.alone or has_crashed,
        state=State.CLAIMED,
    )  # fmt: skip


def expect_rows(stage: Stage, after: dict[JobId, Job], taken: dict[JobId, Job]) -> None:
    """Check that only the rows of a claim have changed."""
    assert after == {row.id: row for row in stage.rows} | taken


def lease_at(now_us: int) -> Lease:
    return Lease(now_us, LEASE_US, "worker", token_of(7))


def times(rows: Sequence[Job]) -> list[int]:
    return sorted(row.at_us for row in rows)


def test_a_claim_takes_the_rows_that_are_due_first(stage: Stage) -> None:
    for _ in stage.examples():
        lanes = dict.fromkeys([LANE, *stage.chance.sample(LANES, 3)])
        wants = [Want(lane, stage.chance.randrange(1, 9)) for lane in lanes]
        cursors = [stage.cursor(want.lane) for want in wants]
        lease = lease_at(stage.chance.randrange(2 * TIMES))
        until_us = stage.chance.choice((None, stage.chance.randrange(TIMES)))
        answer, after = stage.run(claims.claim_due, wants, cursors, lease, until_us=until_us)
        all_taken: dict[JobId, Job] = {}
        before = {row.id: row for row in stage.rows}
        for want, cursor, rows in zip(wants, cursors, answer, strict=True):
            last_us = lease.now_us if until_us is None else until_us
            within = stage.within(want, cursor, last_us)
            taken = claims.jobs_in(want.lane, rows)
            assert times([before[job.id] for job in taken]) == times(within)[: want.most]
            assert {job.id for job in taken} <= {row.id for row in within}
            died = {
                job.id: before[job.id] for job in taken if before[job.id].state != State.WAITING
            }
            assert claims.died_in(want.lane, rows) == died
            assert [(row[1], row[claims.POSITION + 1]) for row in rows] == [
                claims.due_order(row) for row in rows
            ]
            expected = [claimed(before[job.id], lease, lease.now_us + LEASE_US) for job in taken]
            assert taken == expected
            all_taken |= {job.id: job for job in taken}
        expect_rows(stage, after, all_taken)


def test_the_quick_claim_takes_the_first_rows_or_none_if_one_was_claimed_before(
    stage: Stage,
) -> None:
    sizes = set()
    for _ in stage.examples():
        want = Want(stage.chance.choice(LANES), stage.chance.randrange(1, 9))
        cursor = stage.cursor(want.lane)
        lease = lease_at(stage.chance.randrange(TIMES + 3))
        answer, after = stage.run(claims.claim_inserted, want, cursor, lease)
        first = stage.within(want, cursor, lease.now_us)[: want.most]
        if any(row.state != State.WAITING or row.at_us != row.pos_us for row in first):
            first = []
        expected = [claimed(row, lease, lease.now_us + LEASE_US) for row in first]
        assert answer == expected
        expect_rows(stage, after, {job.id: job for job in expected})
        sizes.add(len(expected))
    assert len(sizes) > 3


def test_rows_are_claimed_ahead_that_only_wait(stage: Stage) -> None:
    for _ in stage.examples():
        wants = [Want(lane, stage.chance.randrange(1, 5)) for lane in stage.chance.sample(LANES, 3)]
        wants.insert(stage.chance.randrange(2), Want(LANE, 5))
        wants = list({want.lane: want for want in wants}.values())
        lease = lease_at(stage.chance.randrange(TIMES))
        until_us = lease.now_us + stage.chance.randrange(TIMES)
        limit = stage.chance.randrange(1, 9)
        answer, after = stage.run(
            claims.prefetch, wants, limit=limit, until_us=until_us, lease=lease
        )
        expected: list[tuple[Job, int]] = []
        heads: dict[Lane, int | None] = {}
        for want in wants:
            if len(expected) < limit:
                first = [
                    row
                    for row in stage.within(want, None, until_us)
                    if row.pos_us > lease.now_us and row.at_us == row.pos_us
                    and row.state == State.WAITING and not row.outcome
                ][: min(want.most, limit - len(expected))]  # fmt: skip
                expected += [
                    (claimed(row, lease, row.at_us + LEASE_US), row.at_us) for row in first
                ]
                rest = [row.at_us for row in after.values() if row.lane == want.lane]
                heads[want.lane] = min(rest, default=None)
        assert list(map(tuple, answer.jobs)) == expected
        assert answer.next_at_us == heads
        expect_rows(stage, after, {job.id: job for job, _ in expected})


def test_the_heads_of_lanes_are_the_lowest_times_before_and_from_a_position(
    stage: Stage,
) -> None:
    for _ in stage.examples():
        wants = [Want(lane, 1) for lane in LANES]
        cursors = [stage.cursor(want.lane) for want in wants]
        firsts = [stage.chance.randrange(TIMES) for _ in wants]
        now_us, most = stage.chance.randrange(2 * TIMES), stage.chance.randrange(1, 4)
        values = [*claims.values_of(wants, cursors, firsts), now_us, now_us, now_us, most, most]
        answer, _ = stage.run(Database.fetch, claims.HEADS, values)
        expected = []
        for place, (want, cursor, first_us) in enumerate(
            zip(wants, cursors, firsts, strict=True), 1
        ):
            stage.locked.clear()
            rows = stage.within(want, cursor, 10**9)
            behind = [row for row in rows if row.pos_us < first_us]
            due = [row for row in behind if row.at_us <= now_us]
            all_rows = stage.within(want, None, 10**9)
            expected.append((
                place,
                stage.numbers[want.lane],
                min((row.at_us for row in behind if row.at_us > now_us), default=None),
                min((row.at_us for row in due), default=None),
                all(row.at_us == row.pos_us for row in due),
                min((row.at_us for row in all_rows if row.pos_us >= first_us), default=None),
            ))  # fmt: skip
        assert sorted(answer) == expected
        heads, _ = stage.run(claims.whole_heads, wants)
        assert heads == {
            lane: min((row.at_us for row in stage.rows if row.lane == lane), default=None)
            for lane in LANES
        }


def test_expired_records_that_another_transaction_holds_are_left_to_it(stage: Stage) -> None:
    def fill(database: Database) -> None:
        for key in ("a", "b"):
            database.execute("INSERT INTO @records VALUES ('p', %s, '', '', 1)", (key,))

    def expire(database: Database) -> list[tuple[str]]:
        records._expire(database, 1)
        left: list[tuple[str]] = database.fetch("SELECT key FROM @records")
        return left

    stage.connections.write(fill)
    schema = stage.url.partition("schema=")[2]
    with psycopg.connect(stage.url.partition("?")[0]) as other:
        other.execute(f"SELECT FROM {schema}.records WHERE key = 'a' FOR UPDATE".encode())
        assert stage.run(expire)[0] == [("a",)]
    assert stage.run(expire)[0] == []


ACTUAL = re.compile(r"actual (?:time=\S+ )?rows=(\d+)")


@pytest.mark.parametrize("limit", [1, 5])
def test_a_page_of_a_long_lane_reads_few_rows(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    lines: list[str] = []
    fetch = Database.fetch

    def explain(self: Database, statement: str, bound: Sequence[Any] = ()) -> list[Any]:
        if "waiting AS" in statement:
            lines.extend(line for (line,) in fetch(self, f"EXPLAIN (ANALYZE) {statement}", bound))
        return fetch(self, statement, bound)

    def page(database: Database) -> Any:  # noqa: ANN401
        fill_up(database, stage.numbers[LANE])
        monkeypatch.setattr(Database, "fetch", explain)
        jobs_page = jobs.scan(database, LANE, after=None, until_us=None, limit=limit)
        monkeypatch.undo()
        return jobs_page

    scanned, _ = stage.run(page)
    in_lane = [row for row in stage.rows if row.lane == LANE]
    assert times(scanned.jobs) == times(in_lane)[:limit]
    assert max(int(rows) for line in lines for rows in ACTUAL.findall(line)) < ROWS


FUTURE = 2000
REMOVED = re.compile(r"Rows Removed by Filter: (\d+)")


def fill_up(database: Database, lane: int) -> None:
    """Insert many rows that are due later."""
    names = "lane, pos_us, id, hop, due_us, enqueued_us, task, codec, body, opts, at_us"
    database.execute(
        f"INSERT INTO @jobs ({names}) SELECT %s, n, int8send(n), 0, 0, 0, '', 1, '', '', n"  # noqa: S608
        " FROM generate_series(30, %s) AS n",
        (lane, FUTURE),
    )


@pytest.mark.parametrize("late_us", [0, 1], ids=["inserted", "expired"])
@pytest.mark.parametrize("name", ["claim_due", "claim_inserted", "prefetch"])
def test_no_claim_reads_rows_that_become_due_later(stage: Stage, name: str, late_us: int) -> None:
    now_us = 5
    statement = getattr(claims, f"_{name.upper()}")
    times_us = [-1, now_us, LEASE_US] if name == "prefetch" else [now_us, now_us, LEASE_US]

    def explain(database: Database) -> list[tuple[str]]:
        pos_us = "get_byte(id, 14) & 3"
        database.execute(
            f"UPDATE @jobs SET pos_us = {pos_us}, at_us = ({pos_us}) + (get_byte(id, 15) & %s)",  # noqa: S608
            (late_us,),
        )
        fill_up(database, stage.numbers[LANE])
        values = [*claims.values_of([Want(LANE, 9)], [None]), *times_us, token_of(1), "w", now_us]
        plan: list[tuple[str]] = database.fetch(f"EXPLAIN (ANALYZE, COSTS off) {statement}", values)
        return plan

    lines, _ = stage.run(explain)
    removed = [int(match[1]) for (line,) in lines if (match := REMOVED.search(line))]
    reads_once = any("never executed" in line for (line,) in lines)
    assert name != "claim_due" or reads_once != late_us  # once again for expired claims only
    assert sum(removed) < ROWS
