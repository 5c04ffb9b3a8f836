"""Values that a thread reads while pages go on."""

import threading
from collections.abc import Callable
from itertools import count

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.errors import StoreUnavailable
from dueline.web.kept import RESTS, Kept
from tests.harness.clocks import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock(0)


def ended(kept: Kept[int], is_so: Callable[[int | None], bool]) -> bool:
    """Ask until it is so: each call waits for a moment."""
    return any(is_so(kept.get()) for _ in range(100))


def test_a_page_does_not_wait_for_a_long_read(clock: HandClock) -> None:
    numbers, go_on = iter(range(9)), threading.Semaphore(0)

    def read() -> int:
        go_on.acquire()
        clock.advance(3)
        return next(numbers)

    kept = Kept(read, SECOND_US, clock)
    assert kept.get() is None is kept.get()
    go_on.release()
    assert ended(kept, lambda value: value == 0)
    clock.advance(3 * RESTS - 1)  # it took three seconds
    assert kept.get() == 0
    clock.advance(1)
    assert kept.get() == 0  # the old one, while a thread reads
    go_on.release()
    assert ended(kept, lambda value: value == 1)


def test_what_failed_is_read_again(clock: HandClock) -> None:
    calls = count()

    def read() -> int:
        if next(calls) == 0:
            raise StoreUnavailable("away")
        return 7

    kept = Kept(read, SECOND_US, clock)
    with pytest.raises(StoreUnavailable):
        kept.get()
    assert ended(kept, lambda value: value == 7)
