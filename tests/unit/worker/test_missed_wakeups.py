"""Polls that find jobs of which the worker was not notified."""

from unittest.mock import Mock

import pytest

from dueline.core.store import Store
from dueline.core.wakeup import LocalWakeups, NoListener
from tests.harness.calls import call, put
from tests.harness.clocks import HandClock
from tests.harness.waking import IDLE_US, Lossy, engine, idle, start_of


@pytest.mark.parametrize(("wakeups", "misses"), [(LocalWakeups, 0), (Lossy, 1)])
def test_a_poll_that_finds_a_job_without_a_wake_up_is_reported(
    store: Store,
    clock: HandClock,
    monkeypatch: pytest.MonkeyPatch,
    wakeups: type[LocalWakeups],
    misses: int,
) -> None:
    missed = Mock()
    monkeypatch.setattr(NoListener, "missed", missed)
    queues = engine(store, clock, wakeups())
    start_of(idle(queues, clock), clock, clock.wall_us() + IDLE_US, lambda: put(queues, call(1)))
    assert missed.call_count == misses
