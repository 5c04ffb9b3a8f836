"""Tables of schema version 1, used as they are, and migrated."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dueline import Dueline
from dueline.api.connect import open_store
from dueline.core.errors import SchemaMismatch, StoreUnavailable
from tests.harness.postgres import AS_BEFORE, expect_server, statement
from tests.harness.servers import migrate

expect_server()

import psycopg  # noqa: E402

pytestmark = pytest.mark.postgres


def schema_of(url: str) -> str:
    """Return the name of a store's schema."""
    return url.partition("schema=")[2]


@pytest.fixture
def old(url: str) -> str:
    """Make a store with tables of version 1."""
    statement(url, AS_BEFORE.format(schema_of(url)))
    return url


@pytest.fixture
def app(old: str) -> Iterator[Dueline]:
    app = Dueline(old)
    yield app
    app.close()


def read(app: Dueline) -> list[Any]:
    """Read the events of the stream."""
    return [event.value for event in app.stream("clicks", shards=1).read()]


def test_tables_of_version_1_are_used_and_migrated_beside_an_open_application(
    app: Dueline, old: str
) -> None:
    clicks = app.stream("clicks", shards=1)
    clicks.append(1)
    with psycopg.connect(old.partition("?")[0]) as connection:
        clicks.append(2, tx=connection)
    assert read(app) == [1, 2]
    assert list(migrate(old).made) == ["columns of stream_marks"]
    assert list(migrate(old).made) == []
    assert read(app) == [1, 2]  # the connections of before are replaced
    clicks.append(3)
    with psycopg.connect(old.partition("?")[0]) as connection:
        clicks.append(4, tx=connection)
        clicks.append(5)
        assert read(app) == [1, 2, 3]
    assert read(app) == [1, 2, 3, 4, 5]


def test_the_first_call_of_a_process_may_close_a_shard_of_version_1(old: str) -> None:
    store = open_store(old)
    assert store.close_until("log", 0, at_us=5) == 5
    assert store.close_until("log", 0, at_us=-1) == 5
    store.close()


def test_a_caller_repeats_a_transaction_that_meets_the_migration(app: Dueline, old: str) -> None:
    clicks = app.stream("clicks", shards=1)
    clicks.append(1)
    migrate(old)
    with psycopg.connect(old.partition("?")[0]) as connection:
        with pytest.raises(StoreUnavailable, match="have been migrated"):
            clicks.append(2, tx=connection)
        connection.rollback()
        clicks.append(2, tx=connection)
    assert read(app) == [1, 2]


def test_a_migration_waits_for_open_transactions(app: Dueline, old: str) -> None:
    clicks = app.stream("clicks", shards=1)
    clicks.append(0)
    with psycopg.connect(old.partition("?")[0]) as connection:
        clicks.append(1, tx=connection)
        made: list[str] = []
        migration = threading.Thread(target=lambda: made.extend(migrate(old).made))
        migration.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
        while not statement(old, waiting, (f"{schema_of(old)}.stream_marks",))[0][0]:
            assert migration.is_alive()
    migration.join()
    assert made == ["columns of stream_marks"]
    clicks.append(2)
    assert read(app) == [0, 1, 2]


def test_a_process_of_version_1_refuses_migrated_tables(
    app: Dueline, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(old)
    monkeypatch.setattr("dueline.stores.postgres.connection.VERSIONS", ("1",))
    with pytest.raises(SchemaMismatch, match="schema '2'"):
        read(app)
