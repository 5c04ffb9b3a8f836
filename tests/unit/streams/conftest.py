"""Every store, in time that stands still."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.core.store import Store
from tests.harness.clocks import HandClock
from tests.harness.stream_stage import Stage
from tests.harness.world import EVERY_KIND, store_on


@pytest.fixture(params=EVERY_KIND)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: HandClock) -> Iterator[Store]:
    """Open an empty store."""
    store = store_on(request.param, tmp_path, clock)
    yield store
    store.close()


@pytest.fixture
def stage(store: Store, clock: HandClock) -> Stage:
    """Set a stage on it."""
    return Stage(store, clock)
