"""The same engine on two stores, in time that stands still."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.ids import Ids
from dueline.queue import Queues
from dueline.settings import QueueSettings
from dueline.store import Store
from dueline.stores.memory import MemoryStore
from dueline.stores.sqlite import SqliteStore
from tests.clocks import HandClock

__all__ = ["clock", "queues", "store"]


@pytest.fixture
def clock() -> HandClock:
    """Make the only clock of a test."""
    return HandClock()


@pytest.fixture(
    params=[
        pytest.param("memory", marks=pytest.mark.memory),
        pytest.param("sqlite", marks=pytest.mark.sqlite),
    ]
)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    """Open an empty store."""
    store: Store = MemoryStore(clock)
    if request.param == "sqlite":
        store = SqliteStore(tmp_path / "jobs.db", clock=clock, synchronous="NORMAL")
    yield store
    store.close()


@pytest.fixture
def queues(store: Store, clock: HandClock) -> Queues:
    """Make the engine."""
    return Queues(store, clock=clock, ids=Ids(), defaults=QueueSettings())
