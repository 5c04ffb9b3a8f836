"""A world for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.failures.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Make a world, and leave no process behind."""
    world = World(tmp_path)
    try:
        yield world
    finally:
        world.close()
