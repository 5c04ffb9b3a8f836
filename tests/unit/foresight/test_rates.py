"""What queues did in the last minutes."""

from math import exp
from pathlib import Path

import pytest

from dueline.coordination import notes
from dueline.coordination.run_times import PARTITION, QueueTimes, TaskTimes, WorkerTimes, step_of
from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.store import Put
from dueline.foresight import rates
from dueline.foresight.rates import Counted, Deltas, after_counting, rates_of
from tests.harness.world import world_on


def times(ended: int, failed: int = 0, late: int = 0) -> WorkerTimes:
    latencies = {step_of(5 * SECOND_US): late, 0: ended - late}
    return WorkerTimes(0, 0, {"q": QueueTimes({"t": TaskTimes(ended, failed)}, latencies)})


def test_only_what_is_new_counts() -> None:
    deltas = Deltas()
    assert not deltas.since_last({"w1": times(10)})
    assert deltas.since_last({"w1": times(13, 1), "w2": times(2, 2, 1)}) == {
        "q": Counted({0: 3 + 1, step_of(5 * SECOND_US): 1}, {"t": 5}, {"t": 3})
    }
    assert deltas.since_last({"w2": times(2, 2, 1)})["q"] == Counted()


def test_older_events_count_less() -> None:
    first = after_counting(None, Counted({0: 90}, {"t": 100}, {"t": 10}), SECOND_US)
    later = after_counting(first, None, 301 * SECOND_US)
    assert later.ended["t"] == pytest.approx(
        (100 / exp(5), 100 / exp(1), 100 * exp(-1 / 12), 99.65), rel=1e-3
    )
    assert later.starts().minutes == pytest.approx(90 / exp(1), rel=1e-3)
    assert later.failed["t"].minutes == pytest.approx(10 / exp(1), rel=1e-3)


def test_the_rate_of_a_young_count_is_right() -> None:
    found = None
    for second in range(0, 61, 15):
        found = after_counting(
            found, Counted({}, {"t": 150 if second else 0}, {}), second * SECOND_US
        )
    assert found is not None
    assert found.per_s() == pytest.approx(10, rel=0.1)


def test_late_starts_are_those_above_the_target() -> None:
    found = after_counting(None, Counted({0: 5, step_of(5 * SECOND_US): 3}, {}, {}), 1)
    assert found.late(2 * SECOND_US).minutes == 3
    assert found.late(10 * SECOND_US).minutes == 0


def test_the_leader_notes_the_rates() -> None:
    world = world_on("memory", Path())
    engine, step = world.queues.engine, rates.task().step
    for number in (5, 25):
        put = Put("w1", b"v", encode(times(number)))
        world.store.commit(PARTITION, (put,))
        world.clock.advance(15)
        if puts := step(engine, None).puts:
            world.store.commit(notes.PARTITION, puts)
    found = rates_of(engine, "q")
    assert found is not None
    assert found.ended["t"].minutes == 20
    assert not step(engine, None).puts
