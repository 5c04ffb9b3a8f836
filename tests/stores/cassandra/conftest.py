"""What the tests of the store on Cassandra share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from dueline.api.connect import open_store
from tests.harness.cassandra_node import Keyspaces, keyspaces_on_a_node

if TYPE_CHECKING:  # the driver may be absent
    from dueline.stores.cassandra.store import CassandraStore


@pytest.fixture(scope="module")
def keyspaces() -> Iterator[Keyspaces]:
    """Make keyspaces that are emptied and used in turn."""
    with keyspaces_on_a_node() as keyspaces:
        yield keyspaces


@pytest.fixture
def store(keyspaces: Keyspaces) -> Iterator[CassandraStore]:
    """Open an empty store."""
    from dueline.stores.cassandra.store import CassandraStore  # noqa: PLC0415  (needs the driver)

    store = open_store(keyspaces.fresh())
    assert isinstance(store, CassandraStore)
    yield store
    store.close()
