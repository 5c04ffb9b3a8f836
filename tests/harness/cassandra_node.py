"""A Cassandra node for tests."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, cast

import pytest

from dueline.api.connect import open_store
from dueline.core.clock import Clock
from dueline.core.errors import StoreUnavailable
from dueline.core.store import Store
from tests.harness.servers import absent, is_required
from tools.cassandra import cql
from tools.cassandra.jars import CACHE, CassandraError
from tools.cassandra.ring import Ring

if TYPE_CHECKING:  # the driver may be absent
    from dueline.stores.cassandra.session import CassandraSession
    from dueline.stores.cassandra.store import CassandraStore

HOST_VARIABLE = "DUELINE_TEST_CASSANDRA"
"""An address that answers already, such as 127.0.0.1."""

FIRST = 61  # the address 127.0.0.61, so that a developer's own ring may be running


PATIENT = "timeout=60s"
"""An answer that is late is no failure, on a machine that is busy with other tests."""

NO_NODE = "no node answers on 127.0.0.1; `make cassandra-up` starts one"

STREAMS = ("stream_rows", "stream_buckets", "stream_marks")
TABLES = ("jobs", "ids", "shards", "lanes", "records", *STREAMS)
KEYSPACES = 2
TRUNCATE_S_MAX = 120.0


def expect_node() -> None:
    """Skip the module that is being imported, in one line, where no node can be had."""
    if is_required("cassandra"):
        return
    reason = ""
    if find_spec("cassandra") is None:
        reason = "the driver is not installed: pip install 'dueline[cassandra]'"
    elif not any(map(cql.answers, _hosts())):
        reason = NO_NODE
    if reason:
        pytest.skip(f"cassandra is absent: {reason}", allow_module_level=True)


def _hosts() -> list[str]:
    return [host for host in (os.environ.get(HOST_VARIABLE), "127.0.0.1") if host]


@contextmanager
def node_url() -> Iterator[str]:
    """Give the address of a node that answers: `cassandra://host`, without a keyspace.

    One that the environment names, or one on 127.0.0.1. If neither answers, the test is skipped,
    or, if DUELINE_REQUIRE names cassandra, a node of the tests' own is started, which several
    test processes share and which the last of them stops.
    """
    if find_spec("cassandra") is None:
        absent("cassandra", "the driver is not installed: pip install 'dueline[cassandra]'")
    for host in _hosts():
        if cql.answers(host):
            yield f"cassandra://{host}"
            return
    if not is_required("cassandra"):
        absent("cassandra", NO_NODE)
    folder = CACHE / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    ring = Ring(folder, fast_start=True, lazy=True, first=FIRST)
    with (folder / "users.lock").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        try:
            ring.start()
        except CassandraError as error:
            absent("cassandra", str(error))
        try:
            yield f"cassandra://{ring.hosts[0]}"
        finally:
            # Whoever is the last to use it gets the lock alone, and stops it.
            with suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ring.stop()


_unused: list[tuple[str, str]] = []
"""Keyspaces that this process has made and does not use now, with the address of the node."""


class Keyspaces:
    """Empty keyspaces: a few that are made once in a process, emptied and used in turn."""

    def __init__(self, address: str, options: str, number: int = KEYSPACES) -> None:
        made = [name for name in _unused if name[0] == address][:number]
        for name in made:
            _unused.remove(name)
        new = [(address, f"laws_{secrets.token_hex(4)}") for _ in range(number - len(made))]
        self._names = [*made, *new]
        self._urls = [
            f"{address}/{keyspace}?dc=datacenter1&{PATIENT}{options}"
            for address, keyspace in self._names
        ]
        from dueline.stores.cassandra.store import CassandraStore  # noqa: PLC0415  (needs the driver)

        stores = [open_store(url) for url in self._urls]
        self._stores = [store for store in stores if isinstance(store, CassandraStore)]
        for store in self._stores[len(made) :]:
            store.migrate()
            # No node dies here: what is emptied need not be on the disk first.
            keyspace = store._session.place.keyspace
            store._session.define([f"ALTER KEYSPACE {keyspace} WITH durable_writes = false"])
        self._written: dict[tuple[str, str], int] = {}
        self._turns = count()

    def fresh(self) -> str:
        return self.fresh_session()[0]

    def fresh_session(self) -> "tuple[str, CassandraSession]":
        """Give the address of a keyspace that is empty, and connections to it."""
        turn = next(self._turns) % len(self._urls)
        session = self._stores[turn]._session
        self._empty(session)
        return self._urls[turn], session

    def _empty(self, session: "CassandraSession") -> None:
        """Truncate, all at once, the tables that may have been written since they were emptied.

        Be they empty again: births are all of one instant, and tombstones would hide later ones.
        """
        keyspace = session.place.keyspace
        writes = _writes(session)
        full = [
            table
            for table in TABLES
            if table not in writes or writes[table] != self._written.get((keyspace, table))
        ]
        driver = session._connected()
        sent = [
            driver.execute_async(f"TRUNCATE {keyspace}.{table}", timeout=TRUNCATE_S_MAX)
            for table in full
        ]
        for truncation in sent:
            truncation.result()
        self._written |= {(keyspace, table): number for table, number in writes.items()}

    def open(self, url: str, *, clock: Clock | None = None) -> Store:
        return open_store(url, clock=clock)

    def close(self) -> None:
        """Leave the keyspaces to others of this process."""
        for store in self._stores:
            store.close()
        _unused.extend(self._names)


def drop_keyspaces() -> None:
    """Drop what this process has made, but for a node that is of no use later."""
    if os.environ.get("CI"):
        return
    while _unused:
        address, keyspace = _unused.pop()
        with suppress(StoreUnavailable):  # a node of the tests' own, which has ended
            store = open_store(f"{address}/{keyspace}?dc=datacenter1")
            try:
                cast("CassandraStore", store)._session.define([f"DROP KEYSPACE {keyspace}"])
            finally:
                store.close()


def _writes(session: "CassandraSession") -> dict[str, int]:
    """Count the writes that the node made in each table since it started.

    Empty where it cannot: it reads the tables of all keyspaces for it, and stumbles (5.0.8, a
    NullPointerException) over one that another test process drops meanwhile.
    """
    counts = "SELECT table_name, count FROM {} WHERE keyspace_name = '{}' ALLOW FILTERING"
    counts = counts.format("system_views.local_write_latency", session.place.keyspace)
    with suppress(StoreUnavailable):
        return dict(session.ask(counts))
    return {}


@contextmanager
def keyspaces_on_a_node(number: int = KEYSPACES) -> Iterator[Keyspaces]:
    """Make keyspaces that are emptied and used in turn."""
    with node_url() as address:
        keyspaces = Keyspaces(address, "", number)
        yield keyspaces
        keyspaces.close()


@contextmanager
def session_on_a_node(name: str) -> Iterator["CassandraSession"]:
    """Open a keyspace that nobody else uses, made and dropped here; `name` begins its name."""
    from dueline.stores.cassandra.store import CassandraStore  # noqa: PLC0415  (needs the driver)

    with node_url() as address:
        store = open_store(f"{address}/{name}_{secrets.token_hex(4)}?{PATIENT}")
        assert isinstance(store, CassandraStore)
        store.migrate()
        yield store._session
        if not os.environ.get("CI"):
            store._session.define([f"DROP KEYSPACE {store._session.place.keyspace}"])
        store.close()
