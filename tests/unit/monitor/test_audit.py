"""The audit behind the marks."""

from collections.abc import Callable

import pytest

from dueline.core.attempt import Outcome
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import EnqueueUnknown
from dueline.core.job import JobId, State
from dueline.core.lane import Lane
from dueline.core.store_capabilities import LanesWithRows
from dueline.jobs.queue import EnqueueRequest
from dueline.monitor.audit import LANES_A_STEP, RESTS, audit, findings
from dueline.stores.lane_index import LaneIndex, Shard
from dueline.stores.memory.store import MemoryStore
from dueline.stores.sqlite.store import SqliteStore
from tests.harness.audits import look, wait
from tests.harness.clocks import HandClock
from tests.harness.queues import queues_on
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.world import World


def hide(world: World, lane: Lane) -> None:
    """Take a lane off its list, as no protocol does."""
    store = world.store
    if isinstance(store, SqliteStore):
        store._connection.write(
            lambda database: database.execute("UPDATE lanes SET listing = NULL")
        )
    elif isinstance(store, MemoryStore):
        store._listed.clear()
    else:
        assert isinstance(store, SteppedMemoryStore)
        store._node.cluster.pointers[Shard(lane.queue, lane.shard)].clear()
        store._lane_index = LaneIndex(store._node)  # another process audits


def a_waiting_job(world: World) -> JobId:
    """Put a job."""
    return world.put(priority=3, tenant="t")


def a_job_whose_worker_died(world: World) -> JobId:
    """Put a job, and have it claimed and started."""
    job_id = world.put()
    world.claim(job_id, start=True)
    return job_id


def a_dead_job(world: World) -> JobId:
    """Have a job die."""
    job_id = world.put()
    world.die(job_id)
    return job_id


@pytest.mark.parametrize("make", [a_waiting_job, a_job_whose_worker_died, a_dead_job])
def test_a_lane_that_is_listed_nowhere_is_listed_again_and_told_of(
    world: World, make: Callable[[World], JobId]
) -> None:
    job_id = make(world)
    lane = world.row(job_id).lane
    before = world.row(job_id)
    wait(world)
    hide(world, lane)
    assert lane not in set(world.queues.engine.lanes_of(lane.queue))
    assert look(world) == 1
    assert lane in set(world.queues.engine.lanes_of(lane.queue))
    row = world.row(job_id)
    assert (row.state, row.errors, row.crashes) == (before.state, before.errors, before.crashes)
    (finding,) = findings(world.store)
    assert (finding.queue, finding.priority, finding.tenant) == (lane.queue, *lane[3:])
    assert finding.job == job_id.hex()
    assert look(world) == 0
    if lane.queue == "q":
        again = world.claim(job_id)
        assert again.crashes == (before.state == State.STARTED)


def test_what_is_listed_is_left_alone(world: World) -> None:
    ids = [world.put(), world.put(after_s=10), world.put(tenant="other")]
    running = world.claim(world.put(queue="r"))
    world.die(world.put(queue="d"))
    rows = [world.row(one) for one in (*ids, running.id)]
    wait(world)
    assert look(world) == 0
    assert [world.row(one) for one in (*ids, running.id)] == rows
    assert findings(world.store) == []


def test_what_is_due_only_now_may_be_on_its_way_to_the_list(world: World) -> None:
    hide(world, world.row(world.put()).lane)
    assert look(world) == 0


def test_a_job_that_somebody_touches_meanwhile_is_left_to_them(world: World) -> None:
    job_id = world.put()
    lane = world.row(job_id).lane
    wait(world)
    hide(world, lane)
    lanes = world.store.lanes

    def lanes_and_an_end(*args: object, **kwargs: object) -> object:
        world.store.lanes = lanes  # type: ignore[method-assign]
        world.end(world.claim(job_id), Outcome("done", world.now_us))
        return lanes(*args, **kwargs)  # type: ignore[arg-type]

    world.store.lanes = lanes_and_an_end  # type: ignore[method-assign, assignment]
    assert look(world) == 0
    assert world.store.find([job_id]) == [None]


def test_many_lanes_are_looked_through_step_by_step(world: World) -> None:
    calls = [
        EnqueueRequest("q", "t", 0, [b"[1]"], None, 0, f"t{number}")
        for number in range(LANES_A_STEP + 2)
    ]
    for call in calls:
        world.queues.enqueue(call)
    wait(world)
    report = audit(world.queues.engine, None)
    assert report.after is not None
    assert audit(world.queues.engine, report.after).after is None


def test_where_looking_takes_long_the_next_step_waits(world: World) -> None:
    world.put()
    lanes_with_rows = world.store.lanes_with_rows  # type: ignore[attr-defined]

    def slow(**terms: object) -> LanesWithRows:
        world.clock.advance(0.5)
        return LanesWithRows(lanes_with_rows(**terms).lanes, "more")

    world.store.lanes_with_rows = slow  # type: ignore[attr-defined]
    took_us = audit(world.queues.engine, None).rest_us // RESTS
    assert SECOND_US // 2 <= took_us < SECOND_US


class Ended(BaseException):
    """The producer's process ended here."""


def test_a_job_that_landed_late_and_was_never_acknowledged_is_recovered() -> None:
    """E4: its producer listed the lane, stood still until that was swept, inserted, and died."""
    clock = HandClock()
    workers = SteppedMemoryStore(clock)
    engine = queues_on(workers, clock)
    engine.engine.catalog.settings("q")
    was_inserted = False

    def late(step: str) -> None:
        nonlocal was_inserted
        if step == "insert":
            was_inserted = True
            for _ in range(3):
                clock.advance(us=2 * DAY_US)
                workers.sweep("q", 0, now_us=clock.wall_us(), width_us=DAY_US)
        elif was_inserted:
            raise Ended

    producer = SteppedMemoryStore(clock, cluster=workers._node.cluster, step=late)
    with pytest.raises((Ended, EnqueueUnknown)):
        queues_on(producer, clock).enqueue(EnqueueRequest("q", "t", 0, [b"[1]"]))
    assert list(engine.engine.lanes_of("q")) == []
    world = World(workers, clock)
    assert look(world) == 1
    (lane,) = engine.engine.lanes_of("q")
    assert len(workers.scan(lane, after=None, until_us=None, limit=9).jobs) == 1
