"""A clock, a store, its queues and a world, for the tests of every package."""

from collections.abc import Iterator

import pytest

from tests.harness.fixtures import clock, queues, store, world
from tests.harness.guarded_fields import checked_locks

__all__ = ["clock", "queues", "store", "world"]


@pytest.fixture(autouse=True)
def locks() -> Iterator[None]:
    """Fail if state that threads share is used without its lock."""
    with checked_locks():
        yield
