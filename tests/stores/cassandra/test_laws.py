"""The Cassandra store and the contract (C1, C3, C4, C5, C7, T12, H4, H5, H14, R1)."""

from collections.abc import Iterator

import pytest

from dueline.store_tests.laws import SharedSteppedLaws, StoreFactory
from tests.harness.cassandra_node import Keyspaces, expect_node, node_url
from tests.harness.remembering_store import only_those_that_remember, watched
from tests.harness.store_comparison import ModelLaws

expect_node()


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with node_url() as url:
        yield url


@pytest.fixture(scope="class")
def keyspaces(request: pytest.FixtureRequest, address: str) -> Iterator[Keyspaces]:
    keyspaces = Keyspaces(address, request.cls.OPTIONS)
    yield keyspaces
    keyspaces.close()


@pytest.mark.cassandra
@pytest.mark.timeout(600)  # some lives on a node that others use too take minutes
class TestCassandra(SharedSteppedLaws, ModelLaws):
    OPTIONS = ""
    runs = 2  # one takes seconds here

    @pytest.fixture
    def factory(self, keyspaces: Keyspaces) -> StoreFactory:
        return keyspaces

    @pytest.fixture(autouse=True)
    def watching(self, request: pytest.FixtureRequest) -> Iterator[None]:
        with watched(request.node.originalname):
            yield


@pytest.mark.cassandra
@only_those_that_remember
@pytest.mark.long  # the same laws once more
class TestCassandraWithoutMemory(TestCassandra):
    OPTIONS = "&remember=0"
    runs = 1
