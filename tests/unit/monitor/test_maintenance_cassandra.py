"""The monitor's chores on a real Cassandra: hidden jobs, samples, old events (O7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from dueline.coordination import notes
from dueline.core.clock import DAY_US
from dueline.core.errors import DuelineError, StoreUnavailable
from dueline.core.lane import Lane
from dueline.foresight.trends import TrendRecorder, trend_of
from dueline.monitor.audit import audit, findings
from dueline.monitor.lane_sweep import sweep_lanes
from dueline.store_tests.calls import lane_of, new_job
from dueline.streams.retention import trim_streams
from tests.harness.audits import look, wait
from tests.harness.cassandra_node import expect_node, session_on_a_node
from tests.harness.clocks import HandClock
from tests.harness.old_streams import kept, old_stream, one_more
from tests.harness.stepped_store import nothing
from tests.harness.stream_stage import Stage, values
from tests.harness.world import World

if TYPE_CHECKING:  # the driver may be absent
    from dueline.stores.cassandra.answers import Rows
    from dueline.stores.cassandra.session import CassandraSession

expect_node()
pytestmark = pytest.mark.cassandra


@pytest.fixture(scope="module")
def session() -> Iterator[CassandraSession]:
    with session_on_a_node("chores") as session:
        yield session


@pytest.fixture
def world(session: CassandraSession) -> World:
    """Make an engine on a clock that stands still."""
    from tests.harness.cassandra_stage import HandTimedStore  # noqa: PLC0415  (needs the driver)

    session.define([f"TRUNCATE {session.place.keyspace}.{table}" for table in ("jobs", "lanes")])
    clock = HandClock()
    return World(HandTimedStore(session, clock, nothing, "calls", nothing), clock)


def test_a_job_that_landed_late_in_a_lane_listed_nowhere_is_recovered(
    world: World, session: CassandraSession
) -> None:
    from dueline.stores.cassandra import statements as rows  # noqa: PLC0415  (needs the driver)

    world.put(queue="listed")
    lane = lane_of(queue="hidden", tenant="t")
    job = new_job(7, at_us=world.now_us, lane=lane)
    world.queues.engine.catalog.settings("hidden")
    session.write([[rows.index(job)], [rows.insert(job)]])
    assert look(world) == 0  # it may be on its way to the list
    wait(world)
    assert lane not in set(world.queues.engine.lanes_of("hidden"))
    assert look(world) == 1
    assert lane in set(world.queues.engine.lanes_of("hidden"))
    (finding,) = findings(world.store)
    assert (finding.queue, finding.job) == ("hidden", job.id.hex())
    assert look(world) == 0


def test_a_minute_says_how_many_jobs_wait(world: World) -> None:
    world.put()
    world.put(after_s=60)
    world.clock.advance(5)
    report = TrendRecorder().step(world.queues.engine, None)
    assert world.store.commit(notes.PARTITION, report.puts)
    (minute,) = trend_of(world.store, "1h")
    assert minute.ready == 1


def test_the_shards_of_a_queue_are_looked_at_together(
    world: World, session: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # O3: each minute, on an idle store
    world.queues.engine.catalog.configure("wide", shards=32)
    reads: list[str] = []
    read = session.read

    def noted(text: str, values: Sequence[object]) -> Rows:
        reads.append(text)
        return read(text, values)

    monkeypatch.setattr(session, "read", noted)
    queues = list(world.queues.engine.catalog.names_after(None, 100))
    reads.clear()
    assert sweep_lanes(world.queues.engine, None).acts == 0
    assert len(reads) <= 8 * len(queues)


def test_old_events_go_bucket_by_bucket_and_none_that_a_group_needs(world: World) -> None:
    # rules F4 and F6
    stage = Stage(world.store, world.clock)
    orders = old_stream(stage)
    member = stage.member(shards=1, batch=1)
    assert one_more(member) == [0]
    assert trim_streams(world.queues.engine, None).acts == 0
    world.clock.advance(us=3 * DAY_US)
    orders.append("young")
    stage.later()
    member.balance()
    assert values(member) == [1, 2, 3, 4, "young"]
    while (report := trim_streams(world.queues.engine, None)).after is not None:
        assert report.acts == 1
    assert kept(orders) == ["young"]
    stage.member(group="new", shards=1).balance()
    assert trim_streams(world.queues.engine, None).acts == 0
    assert kept(orders) == ["young"]


class Crowded:
    """A session on which a read may cross so many deleted rows only: four to a range of lanes."""

    def __init__(self, lanes: Sequence[Lane], most: int) -> None:
        """Spread lanes evenly over the hashes; each has one deleted row beside it."""
        step = 2**64 // len(lanes)
        self._rows = [(-(2**63) + 1 + step * n, *lane) for n, lane in enumerate(lanes)]
        self._most = most
        self.reads = 0
        self.fails: DuelineError | None = None

    def read(self, _text: str, values: tuple[int, int, int]) -> Rows:
        """Read a range of hashes."""
        from dueline.stores.cassandra.connection import TooManyTombstones  # noqa: PLC0415

        self.reads += 1
        start, end, limit = values
        if self.fails is not None:
            raise self.fails
        found = [row for row in self._rows if start < row[0] <= end][:limit]
        if len(found) > self._most:
            raise TooManyTombstones
        return found


def test_where_deleted_rows_lie_ranges_are_made_as_small_as_it_takes() -> None:
    from dueline.stores.cassandra.lane_index import CassandraLaneLister  # noqa: PLC0415

    lanes = [lane_of(tenant=f"t{number}") for number in range(100)]
    session = Crowded(lanes, most=4)
    census = CassandraLaneLister(session)  # type: ignore[arg-type]
    found: list[Lane] = []
    after: str | None = None
    while True:
        page = census.lanes_with_rows(after, 3)
        found += page.lanes
        if page.after is None:
            break
        assert after is None or int(page.after) > int(after)
        after = page.after
    assert found == lanes
    assert session.reads < 150
    session.fails = StoreUnavailable("it took too long")
    with pytest.raises(StoreUnavailable):
        census.lanes_with_rows(None, 50)


def test_an_audit_goes_through_a_store_that_has_nothing(world: World) -> None:
    assert audit(world.queues.engine, None).after is None
