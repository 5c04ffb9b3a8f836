"""What lives say of their accidents is not wanted."""

import logging
from collections.abc import Iterator

import pytest

from tests.harness.fixtures import clock, queues, store

__all__ = ["clock", "queues", "quiet", "store"]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Log nothing: a life of accidents would write thousands of lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
