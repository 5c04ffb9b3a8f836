"""The interval of polls is a setting of a queue, which running workers take over (H1, O3)."""

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.store import Store
from dueline.core.wakeup import FALLBACK_US, FALLBACK_US_MAX
from tests.harness.calls import call, put
from tests.harness.clocks import HandClock
from tests.harness.waking import Lossy, engine, idle, start_of

PHASE_US = 40 * SECOND_US


@pytest.mark.parametrize(
    ("poll_us", "idle_us"),
    [
        (SECOND_US // 100, SECOND_US),
        (SECOND_US // 2, PHASE_US),
        (FALLBACK_US_MAX, 4 * PHASE_US),
    ],
)
def test_an_idle_worker_polls_as_often_as_its_queue_says(
    store: Store, clock: HandClock, poll_us: int, idle_us: int
) -> None:
    queues = engine(store, clock, Lossy())
    queues.engine.catalog.configure("default", poll_us=poll_us)
    bench = idle(queues, clock)
    put_at_us = clock.wall_us() + idle_us
    longest_s: list[float] = []

    def put_one() -> None:
        longest_s.append(max(bench.wakeup.waits_s))
        put(queues, call(1))

    began_us = start_of(bench, clock, put_at_us, put_one)
    assert put_at_us <= began_us <= put_at_us + poll_us
    assert longest_s[0] * SECOND_US == pytest.approx(poll_us, rel=0.01)


def test_a_running_worker_takes_a_change_at_its_next_poll(store: Store, clock: HandClock) -> None:
    queues = engine(store, clock, Lossy())
    bench = idle(queues, clock)
    changes = [SECOND_US // 2, 10 * SECOND_US, 0]
    last_us: list[float] = []
    began_us = clock.wall_us()

    def meanwhile() -> None:
        if clock.wall_us() - began_us < PHASE_US * (len(last_us) + 1):
            return
        last_us.append(bench.wakeup.waits_s[-1] * SECOND_US)
        if len(last_us) > len(changes):
            bench.worker.stop()
        else:
            queues.engine.catalog.configure("default", poll_us=changes[len(last_us) - 1])

    bench.wakeup.meanwhile = meanwhile
    bench.run()
    assert last_us == pytest.approx(
        [FALLBACK_US, SECOND_US // 2, 10 * SECOND_US, FALLBACK_US], rel=0.01
    )


def test_of_several_queues_the_shortest_interval_counts(store: Store, clock: HandClock) -> None:
    queues = engine(store, clock, Lossy())
    queues.engine.catalog.configure("default", poll_us=FALLBACK_US_MAX)
    queues.engine.catalog.configure("other")
    bench = idle(queues, clock, serving={"default": None, "other": None})
    put_at_us = clock.wall_us() + 2 * PHASE_US
    start_of(bench, clock, put_at_us, lambda: put(queues, call(1)))
    assert max(bench.wakeup.waits_s) * SECOND_US == pytest.approx(FALLBACK_US, rel=0.01)
