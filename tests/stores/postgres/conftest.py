"""What the tests of the store in PostgreSQL share."""

from collections.abc import Iterator

import pytest

from tests.harness.postgres import schemas


@pytest.fixture
def url() -> Iterator[str]:
    """Make a store in a schema of its own, and answer its URL."""
    with schemas() as made:
        yield made.fresh()
