"""A world on each kind of store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.world import EVERY_KIND, World, world_on


@pytest.fixture(params=EVERY_KIND)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Make an engine on a clock that stands still, on each kind of store."""
    world = world_on(request.param, tmp_path)
    yield world
    world.store.close()
