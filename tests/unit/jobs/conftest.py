"""The same engine on two stores, in time that stands still."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.core.ids import Ids
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Store
from dueline.jobs.history_recorder import open_engine
from dueline.jobs.queue import Queues
from tests.harness.clocks import HandClock
from tests.harness.world import EVERY_KIND, KINDS, World, store_on, world_on

__all__ = ["clock", "queues", "store", "world"]


@pytest.fixture
def clock() -> HandClock:
    """Make the only clock of a test."""
    return HandClock()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    """Open an empty store."""
    store = store_on(request.param, tmp_path, clock)
    yield store
    store.close()


@pytest.fixture
def queues(store: Store, clock: HandClock) -> Queues:
    """Make the engine."""
    return Queues(open_engine(store, clock=clock, ids=Ids(), defaults=QueueSettings()))


@pytest.fixture(params=EVERY_KIND)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Make a world on each kind of store."""
    world = world_on(request.param, tmp_path)
    yield world
    world.store.close()
