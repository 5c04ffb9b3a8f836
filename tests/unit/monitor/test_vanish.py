"""Queues that are never used again."""

from collections.abc import Callable, Sequence

import pytest

from dueline.core.attempt import Outcome
from dueline.core.clock import DAY_US
from dueline.core.errors import EnqueueUnknown, StoreUnavailable
from dueline.core.job import Job
from dueline.core.queue_catalog import LATE_US
from dueline.core.store import Record
from dueline.jobs.queue import Queues
from dueline.monitor.empty_queues import QUEUES_A_STEP, WAIT_US, remove_empty_queues
from dueline.monitor.lane_sweep import sweep_lanes
from dueline.monitor.retention import expire_history
from dueline.stores.memory.store import MemoryStore
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.empty_queues import (
    CALL,
    HISTORY_US,
    STAGES,
    Put,
    against_monitor,
    check_known,
    engine_of,
    hurried_against_monitor,
    nothing,
    rounds,
)
from tests.harness.failing_store import FailingStore
from tests.harness.interleaving import Turns, every_order
from tests.harness.queues import queues_on
from tests.harness.world import World


def names(world: World) -> list[str]:
    """Name the queues."""
    return world.queues.engine.catalog.names()


def a_queue(_monitor: Queues, _clock: HandClock) -> Put:
    """Prepare nothing: the queue that is read of first is empty."""
    return lambda producer: producer.enqueue(CALL)


def producer_against_monitor() -> int:
    """Let a job be put while the monitor lets its queue vanish."""
    return against_monitor(a_queue)


def hurried_producer_against_monitor() -> int:
    """Let a job be put late while the monitor lets its queue vanish."""
    return hurried_against_monitor(a_queue)


def use_once(world: World) -> None:
    """Have a job of the queue done, and nothing left of it but its history."""
    world.end(world.claim(world.put()), Outcome("done", world.now_us))
    for _ in range(4):
        world.clock.advance(us=2 * DAY_US)
        sweep_lanes(world.queues.engine, None)


def test_a_queue_that_nobody_uses_vanishes(world: World) -> None:
    # C16
    world.queues.engine.catalog.settings("q")
    world.queues.engine.catalog.settings("r")
    assert rounds(world) == [2, 2, 2]
    assert names(world) == []
    assert rounds(world, 1) == [0]


def test_it_stays_as_long_as_its_history_is_kept(world: World) -> None:
    use_once(world)
    assert rounds(world) == [0, 0, 0]
    world.clock.advance(us=HISTORY_US + 2 * DAY_US)
    assert expire_history(world.queues.engine, None).acts == 1
    assert rounds(world) == [1, 1, 1]
    assert names(world) == []


@pytest.mark.parametrize("after_s", [0, 1_000_000])
def test_it_stays_as_long_as_a_job_waits(world: World, after_s: float) -> None:
    world.put(after_s=after_s)
    assert rounds(world) == [0, 0, 0]
    assert names(world) == ["q"]


def test_it_stays_as_long_as_a_job_is_dead(world: World) -> None:
    world.queues.engine.catalog.configure("r", history="off")
    world.die(world.put())
    for _ in range(4):
        world.clock.advance(us=2 * DAY_US)
        sweep_lanes(world.queues.engine, None)
    world.clock.advance(us=HISTORY_US)
    expire_history(world.queues.engine, None)
    assert not [*world.queues.engine.lanes_of("q")]
    assert rounds(world) == [0, 0, 0]
    assert names(world) == ["q", "r"]


def test_it_stays_as_long_as_a_worker_serves_it(world: World) -> None:
    world.queues.engine.catalog.settings("q")
    for _ in range(STAGES):
        world.clock.advance(us=WAIT_US + 1)
        world.live(queues=("q",))
        assert remove_empty_queues(world.queues.engine, None).acts == 0
    world.leave()
    assert rounds(world) == [1, 1, 1]


def test_it_stays_if_somebody_has_set_it(world: World) -> None:
    world.queues.engine.catalog.configure("q", lease_us=7_000_000)
    world.queues.engine.catalog.configure("r", is_paused=True)
    assert rounds(world) == [0, 0, 0]
    assert names(world) == ["q", "r"]


@pytest.mark.parametrize("stages", [1, 2])
def test_a_job_that_comes_meanwhile_keeps_it(world: World, stages: int) -> None:
    world.queues.engine.catalog.settings("q")
    rounds(world, stages)
    producer = world.other()
    producer.enqueue(CALL)
    entry = producer.engine.catalog.entry("q")
    assert entry is not None
    assert entry.leaving_us is None
    assert rounds(world, 5) == [0] * 5
    assert names(world) == ["q"]


def test_settings_that_come_meanwhile_keep_it(world: World) -> None:
    world.queues.engine.catalog.settings("q")
    rounds(world, 2)
    world.other().engine.catalog.configure("q", shards=3)
    assert rounds(world, 5) == [0] * 5
    assert world.queues.engine.catalog.settings("q").shards == 3


def test_two_rounds_in_a_row_are_no_wait(world: World) -> None:
    world.queues.engine.catalog.settings("q")
    assert [remove_empty_queues(world.queues.engine, None).acts for _ in range(5)] == [
        1,
        1,
        0,
        0,
        0,
    ]
    world.clock.advance(us=WAIT_US + 1)
    assert remove_empty_queues(world.queues.engine, None).acts == 1


def test_a_step_looks_at_some_queues_and_the_next_goes_on_there(world: World) -> None:
    made = [f"q{number:03}" for number in range(QUEUES_A_STEP + 3)]
    for name in made:
        world.queues.engine.catalog.settings(name)
    report = remove_empty_queues(world.queues.engine, None)
    assert (report.acts, report.after) == (QUEUES_A_STEP, made[QUEUES_A_STEP - 1])
    report = remove_empty_queues(world.queues.engine, report.after)
    assert (report.acts, report.after) == (3, None)


def test_a_dead_job_that_is_retried_keeps_its_queue(world: World) -> None:
    job_id = world.put()
    world.die(job_id)
    dead = world.row(job_id)
    world.queues.engine.catalog.settings("q")
    entry = world.queues.engine.catalog.entry("q")
    assert entry is not None
    assert world.queues.engine.catalog.mark_leaving("q", entry, 0)
    producer = world.other()
    assert producer.retry_all([dead]) == 1
    entry = producer.engine.catalog.entry("q")
    assert entry is not None
    assert entry.leaving_us is None


def test_jobs_that_are_sent_again_keep_their_queue(world: World) -> None:
    jobs = world.queues.enqueue(CALL)
    entry = world.queues.engine.catalog.entry("q")
    assert entry is not None
    assert world.queues.engine.catalog.remove("q", entry)
    world.other().enqueue_again(jobs)
    assert names(world) == ["q"]


class Slow(FailingStore):
    """Takes long to store a job; answers no reading after that, for a while."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(MemoryStore(clock), {})
        self.clock = clock
        self.is_slow = self.is_down = False

    def add(self, jobs: Sequence[Job]) -> Sequence[bool]:
        added = super().add(jobs)
        if self.is_slow:
            self.clock.advance(us=LATE_US + 1)
        self.is_down = self.is_slow
        return added

    def read(self, partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        if self.is_down:
            raise StoreUnavailable("It is down.")
        return super().read(partition, after=after, limit=limit)


@pytest.mark.memory
def test_a_job_whose_queue_cannot_be_looked_after_is_unknown(clock: HandClock) -> None:
    store = Slow(clock)
    queues = queues_on(store, clock)
    queues.engine.catalog.settings("q")
    store.is_slow = True
    with pytest.raises(EnqueueUnknown) as raised:
        queues.enqueue(CALL)
    store.is_slow = store.is_down = False
    queues.enqueue_again(raised.value.jobs)
    assert len(list(queues.engine.jobs_of("q"))) == 1


@pytest.mark.memory
def test_producers_read_of_a_queue_no_more_often_for_that(clock: HandClock) -> None:
    # O3
    counting = FailingStore(MemoryStore(clock), {})
    queues = queues_on(counting, clock)
    queues.enqueue(CALL)
    asked = counting.calls
    queues.enqueue(CALL)
    assert counting.calls == asked + 1


# --- a producer and the monitor, in every order of their steps --------------------------------


def retry_against_monitor() -> int:
    """Let a dead job be retried, and its lane retired, while the monitor looks at its queue."""

    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()
        operator, monitor = (engine_of(clock, cluster, turns.step) for _ in range(2))
        world = World(operator.engine.store, clock)
        world.die(world.put())
        (dead,) = operator.engine.jobs_of("q!dead")
        for _ in range(4):
            clock.advance(us=2 * DAY_US)
            sweep_lanes(monitor.engine, None)
        clock.advance(us=HISTORY_US)
        expire_history(monitor.engine, None)
        entry = monitor.engine.catalog.entry("q")  # marked just before the job was born, late
        assert entry is not None
        assert monitor.engine.catalog.mark_leaving("q", entry, clock.wall_us())
        clock.advance(us=WAIT_US + 1)

        def retry() -> None:
            operator.retry(dead.id)
            sweep_lanes(operator.engine, None)

        turns.run([retry, lambda: remove_empty_queues(monitor.engine, None)])
        check_known(engine_of(clock, cluster, nothing))

    return every_order(lead, switches_max=2)


@pytest.mark.long
@pytest.mark.parametrize(
    "race", [producer_against_monitor, hurried_producer_against_monitor, retry_against_monitor]
)
def test_no_job_is_in_a_queue_that_is_not_known(race: Callable[[], int]) -> None:
    # C16
    assert race() > 20
