"""`explain` in situations that combine causes, on PostgreSQL."""

import time
from collections.abc import Iterator

import pytest

from tests.harness.cases.explain_table import every_condition_is_named_and_changed_in_order
from tests.harness.clocks import HandClock
from tests.harness.explain_oracle import Situation, situations
from tests.harness.postgres import schemas
from tests.harness.world import World

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with schemas() as made:
        clock = HandClock(time.time_ns() // 1000)  # the server expires records by its own
        store = made.open(made.fresh(), clock=clock)
        store.clock_us = clock.wall_us  # type: ignore[method-assign]  # the test moves it
        yield World(store, clock)
        store.close()


CHOSEN = [one for place, one in enumerate(situations()) if place % 7 < 4]
"""More than 80 of them: each is some round trips."""


@pytest.mark.parametrize("situation", CHOSEN, ids=str)
def test_every_condition_is_named_and_changed_in_order(world: World, situation: Situation) -> None:
    # V4
    every_condition_is_named_and_changed_in_order(world, situation)
