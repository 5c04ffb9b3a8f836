"""A world for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.failing_world import World


@pytest.fixture
def lease_s() -> float:
    """Let no claim end by itself, however busy the machine is; some tests ask for less."""
    return 60.0


@pytest.fixture
def world(tmp_path: Path, lease_s: float) -> Iterator[World]:
    """Make a world, and leave no process behind."""
    world = World(tmp_path, lease_s)
    try:
        yield world
    finally:
        world.close()
