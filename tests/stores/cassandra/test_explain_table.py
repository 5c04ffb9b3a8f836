"""`explain` in situations that combine causes, on Cassandra."""

import time
from collections.abc import Iterator

import pytest

from tests.harness.cases.explain_table import every_condition_is_named_and_changed_in_order
from tests.harness.cassandra_node import keyspaces_on_a_node
from tests.harness.clocks import HandClock
from tests.harness.explain_oracle import Situation, situations
from tests.harness.stepped_store import nothing
from tests.harness.world import World

pytestmark = pytest.mark.cassandra


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    from tests.harness.cassandra_stage import HandTimedStore  # noqa: PLC0415  (needs the driver)

    with keyspaces_on_a_node(1) as keyspaces:
        _, session = keyspaces.fresh_session()
        clock = HandClock(time.time_ns() // 1000)  # the server expires records by its own
        yield World(HandTimedStore(session, clock, nothing, "calls", nothing), clock)


CHOSEN = situations()[::20]
"""A sample: each is some hundred round trips."""


@pytest.mark.parametrize("situation", CHOSEN, ids=str)
def test_every_condition_is_named_and_changed_in_order(world: World, situation: Situation) -> None:
    # V4
    every_condition_is_named_and_changed_in_order(world, situation)
