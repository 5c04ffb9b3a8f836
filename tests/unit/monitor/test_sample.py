"""Samples of how deep and how late queues are."""

from dueline.coordination import notes
from dueline.core.clock import DAY_US, SECOND_US
from dueline.monitor.sampling import SAMPLES_MAX, sample, samples_of
from tests.harness.world import World


def take(world: World) -> None:
    """Sample, and write it down."""
    report = sample(world.queues.engine, None)
    assert world.store.commit(notes.PARTITION, report.puts)


def test_a_sample_says_how_many_jobs_are_in_which_state_and_how_late(world: World) -> None:
    world.claim(world.put())
    world.die(world.put())
    world.put()
    world.put(after_s=60)
    world.clock.advance(5)
    take(world)
    (one,) = samples_of(world.store, "q")
    assert (one.ready, one.running, one.scheduled, one.dead) == (1, 1, 1, 1)
    assert one.lag_us == 5 * SECOND_US
    assert one.at_us == world.now_us


def test_samples_are_bounded_and_the_last_ones_stay(world: World) -> None:
    world.put()
    for _ in range(SAMPLES_MAX + 3):
        world.clock.advance(60)
        take(world)
    kept = samples_of(world.store, "q")
    assert len(kept) == SAMPLES_MAX
    assert kept[-1].at_us == world.now_us
    world.clock.advance(us=DAY_US)
    assert samples_of(world.store, "q") == []


def test_an_idle_queue_leaves_nothing(world: World) -> None:
    world.queues.engine.catalog.settings("idle")
    assert not sample(world.queues.engine, None).puts
