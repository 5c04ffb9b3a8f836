"""The Cassandra store and the contract, on a real node."""

import secrets
from collections.abc import Iterator
from itertools import count

import pytest

from dueline.clock import Clock
from dueline.connect import open_store
from dueline.contract.laws import SharedSteppedLaws, StoreFactory
from dueline.store import Store
from tests.cassandra_node import node_url

TABLES = ("jobs", "ids", "shards", "lanes", "records", "streams", "stream_hours")
KEYSPACES = 2


class Keyspaces:
    """Empty keyspaces: a few that are made once, emptied and used in turn."""

    def __init__(self, address: str, options: str) -> None:
        self._urls = [
            f"{address}/laws_{secrets.token_hex(4)}?dc=datacenter1{options}"
            for _ in range(KEYSPACES)
        ]
        from dueline.stores.cassandra import CassandraStore  # noqa: PLC0415  (needs the driver)

        stores = [open_store(url) for url in self._urls]
        self._stores = [store for store in stores if isinstance(store, CassandraStore)]
        for store in self._stores:
            store.migrate()
        self._turns = count()

    def fresh(self) -> str:
        turn = next(self._turns) % KEYSPACES
        session = self._stores[turn]._session
        session.define(f"TRUNCATE {session.place.keyspace}.{table}" for table in TABLES)
        return self._urls[turn]

    def open(self, url: str, *, clock: Clock | None = None) -> Store:
        return open_store(url, clock=clock)

    def remove(self) -> None:
        for store in self._stores:
            keyspace = store._session.place.keyspace
            store._session.define([f"DROP KEYSPACE {keyspace}"])
            store.close()


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with node_url() as url:
        yield url


@pytest.fixture(scope="class")
def keyspaces(request: pytest.FixtureRequest, address: str) -> Iterator[Keyspaces]:
    keyspaces = Keyspaces(address, request.cls.OPTIONS)
    yield keyspaces
    keyspaces.remove()


@pytest.mark.cassandra
class TestCassandra(SharedSteppedLaws):
    OPTIONS = ""
    lives = 8  # one takes seconds here

    @pytest.fixture
    def factory(self, keyspaces: Keyspaces) -> StoreFactory:
        return keyspaces


@pytest.mark.cassandra
class TestCassandraWithoutMemory(TestCassandra):
    OPTIONS = "&remember=0"
