"""Letting go of old history (V2, O7)."""

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.errors import BadInput
from dueline.core.maintenance import StepResult
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Row
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.monitor.retention import QUEUES_A_STEP, expire_history
from dueline.store_tests.calls import stream_of
from tests.harness.world import World

HISTORY_US = QueueSettings().history_us


def told(world: World, number: int, queue: str = "q") -> Row:
    """Append a row to a queue's history, now."""
    world.queues.engine.catalog.settings(queue)
    at_us = world.clock.wall_us()
    row = Row(queue + HISTORY_SUFFIX, 0, at_us, number.to_bytes(16), b"{}")
    assert world.store.append([row])[0] is not None
    return row


def test_history_goes_when_it_is_older_than_it_is_kept_and_the_rest_stays(world: World) -> None:
    told(world, 1)
    world.clock.advance(us=HISTORY_US // 2)
    young = told(world, 2)
    assert expire_history(world.queues.engine, None).acts == 0
    world.clock.advance(us=HISTORY_US // 2 + SECOND_US)
    assert expire_history(world.queues.engine, None).acts == 1
    left = stream_of(world.store, "q" + HISTORY_SUFFIX)
    assert [row.id for row in left] == [young.id]
    assert expire_history(world.queues.engine, None).acts == 0


def test_a_step_looks_at_some_queues_and_the_next_goes_on_there(world: World) -> None:
    names = [f"q{number:03}" for number in range(QUEUES_A_STEP + 1)]
    for name in names:
        told(world, 1, name)
    world.clock.advance(us=HISTORY_US + SECOND_US)
    report = expire_history(world.queues.engine, None)
    assert (report.acts, report.after) == (QUEUES_A_STEP, names[QUEUES_A_STEP - 1])
    assert expire_history(world.queues.engine, report.after) == StepResult(acts=1)


def test_a_queue_says_how_long_its_history_is_kept(world: World) -> None:
    told(world, 1, "short")
    told(world, 2, "usual")
    world.queues.engine.catalog.configure("short", history_us=60 * SECOND_US)
    world.clock.advance(61)
    assert expire_history(world.queues.engine, None).acts == 1
    assert stream_of(world.store, "short" + HISTORY_SUFFIX) == []
    assert len(stream_of(world.store, "usual" + HISTORY_SUFFIX)) == 1
    with pytest.raises(BadInput, match="history_keep"):
        world.queues.engine.catalog.configure("short", history_us=0)
