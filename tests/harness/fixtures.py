"""Fixtures of a clock, a store, its queues, a world; a folder's conftest imports them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.core.store import Store
from dueline.jobs.queue import Queues
from tests.harness.clocks import HandClock
from tests.harness.queues import queues_on
from tests.harness.world import EVERY_KIND, KINDS, World, store_on, world_on


@pytest.fixture
def clock() -> HandClock:
    """Make the only clock of a test."""
    return HandClock()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    """Open an empty store of each transactional kind."""
    store = store_on(request.param, tmp_path, clock)
    yield store
    store.close()


@pytest.fixture
def queues(store: Store, clock: HandClock) -> Queues:
    """Make the queues of a process."""
    return queues_on(store, clock)


@pytest.fixture(params=EVERY_KIND)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Make a world on each kind of store."""
    world = world_on(request.param, tmp_path)
    yield world
    world.store.close()
