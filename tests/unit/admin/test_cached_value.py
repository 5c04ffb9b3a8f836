"""Values that a thread reads while pages go on."""

import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from prometheus_client.core import Metric

from dueline.admin.cached_value import RESTS, WAIT_S, CachedValue
from dueline.admin.metrics import StoreMetrics
from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreUnavailable
from tests.harness.clocks import HandClock
from tests.harness.programs import wait_for
from tests.harness.world import world_on


@pytest.fixture
def clock() -> HandClock:
    return HandClock(0)


def ended(kept: CachedValue[int], is_so: Callable[[int | None], bool]) -> bool:
    """Ask until it is so: each call waits for a moment."""
    return any(is_so(kept.get(SECOND_US)) for _ in range(100))


def test_a_page_does_not_wait_for_a_long_read(clock: HandClock) -> None:
    numbers, go_on = iter(range(9)), threading.Semaphore(0)

    def read() -> int:
        go_on.acquire()
        clock.advance(3)
        return next(numbers)

    kept = CachedValue(read, clock)
    assert kept.get(SECOND_US) is None is kept.get(SECOND_US)
    go_on.release()
    assert ended(kept, lambda value: value == 0)
    clock.advance(3 * RESTS - 1)  # it took three seconds
    assert kept.get(SECOND_US) == 0
    clock.advance(2)
    assert kept.get(SECOND_US) == 0  # the old one, while a thread reads
    go_on.release()
    assert ended(kept, lambda value: value == 1)


def test_what_failed_is_read_again(clock: HandClock) -> None:
    calls = count()

    def read() -> int:
        if next(calls) == 0:
            raise StoreUnavailable("away")
        return 7

    kept = CachedValue(read, clock)
    with pytest.raises(StoreUnavailable):
        kept.get(SECOND_US)
    assert ended(kept, lambda value: value == 7)


def test_an_old_value_is_waited_for(clock: HandClock) -> None:
    numbers = count()

    def read() -> int:
        time.sleep(WAIT_S * 1.5)
        return next(numbers)

    kept = CachedValue(read, clock, old_us=10 * SECOND_US)
    assert kept.get(SECOND_US) == 0
    clock.advance(2)
    assert kept.get(SECOND_US) == 0
    assert ended(kept, lambda value: value == 1)
    clock.advance(11)
    assert kept.get(SECOND_US) == 2
    assert kept.now() == kept.get(SECOND_US) == 3


def test_a_scrape_does_not_wait_for_a_slow_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_on("memory", tmp_path)
    metrics = StoreMetrics(world.queues.engine)
    first, go_on = list(metrics.collect()), threading.Event()
    sample = metrics._sample

    def slow() -> Iterator[Metric]:
        go_on.wait()
        return sample()

    monkeypatch.setattr(metrics, "_sample", slow)
    world.put()
    world.clock.advance(15)
    assert list(metrics.collect()) == first
    go_on.set()
    wait_for(lambda: list(metrics.collect()) != first, "the next sample is shown")
