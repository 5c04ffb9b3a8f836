"""What the tests of the store in PostgreSQL share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from dueline.api.connect import open_store
from tests.harness.postgres import schemas

if TYPE_CHECKING:  # the driver may be absent
    from dueline.stores.postgres.store import PostgresStore


@pytest.fixture
def url() -> Iterator[str]:
    """Make a store in a schema of its own, and answer its URL."""
    with schemas() as made:
        yield made.fresh()


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    """Open an empty store."""
    from dueline.stores.postgres.store import PostgresStore  # noqa: PLC0415  (needs the driver)

    store = open_store(url)
    assert isinstance(store, PostgresStore)
    yield store
    store.close()
