"""A server that refuses: read-only, without connections, without space, or by an administrator."""

import os
import pwd
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dueline.api.connect import open_store
from dueline.core.errors import DuelineError, StoreUnavailable
from dueline.core.store import Migratable
from dueline.store_tests.calls import lane_of, new_job, new_jobs, rows_in
from tests.harness.postgres import expect_server, server_url, statement
from tests.kills.disk import MountError, SmallDisk, small_disk

expect_server()

import psycopg  # noqa: E402

from dueline.stores.postgres.store import PostgresStore  # noqa: E402

pytestmark = pytest.mark.postgres

DISK_BYTES = 48 * 2**20
GIVE_UP_S = 30.0


class Database:
    """A database of the test's own, and its URL."""

    def __init__(self, tablespace: str = "pg_default") -> None:
        """Make it, with the tables of a store."""
        url = server_url()
        self.name = f"outage_{secrets.token_hex(6)}"
        statement(url, f"CREATE DATABASE {self.name} TABLESPACE {tablespace}")
        self.url = f"{url.rpartition('/')[0]}/{self.name}"
        self._server = url
        with closing(self.open()) as store:
            assert isinstance(store, Migratable)
            store.migrate()

    def open(self) -> PostgresStore:
        """Open the store, with connections of its own."""
        store = open_store(self.url)
        assert isinstance(store, PostgresStore)
        return store

    def alter(self, setting: str) -> None:
        """Change a setting of the database, for connections to come."""
        statement(self._server, f"ALTER DATABASE {self.name} {setting}")

    def drop(self) -> None:
        """Remove it."""
        statement(self._server, f"DROP DATABASE {self.name} WITH (FORCE)")


@pytest.fixture
def database() -> Iterator[Database]:
    made = Database()
    yield made
    made.drop()


def refusal(store: PostgresStore) -> DuelineError:
    with pytest.raises(StoreUnavailable) as raised:
        store.add([new_job(1)])
    return raised.value


def test_a_server_that_is_read_only_is_named_as_such_and_used_again_later(
    database: Database,
) -> None:
    """As a replica after a failover; a later connection goes to the new primary."""
    database.alter("SET default_transaction_read_only = on")
    with closing(database.open()) as store:
        assert "read-only" in str(refusal(store))
        assert "target_session_attrs=read-write" in refusal(store).hint
        assert rows_in(store, lane_of()) == []
    database.alter("RESET default_transaction_read_only")
    with closing(database.open()) as store:
        store.add([new_job(1)])
        assert rows_in(store, lane_of()) == new_jobs(1)


def test_a_server_without_free_connections_says_so(database: Database) -> None:
    role = f"{database.name}_role"
    statement(database.url, f"CREATE ROLE {role} LOGIN PASSWORD 'apart' CONNECTION LIMIT 0")
    head, _, place = database.url.rpartition("@")
    store = open_store(f"{head.partition('//')[0]}//{role}:apart@{place}")
    try:
        with closing(store), pytest.raises(StoreUnavailable) as raised:
            store.clock_us()
        assert "max_connections" in raised.value.hint
    finally:
        statement(database.url, f"DROP ROLE {role}")


def test_a_statement_that_an_administrator_cancels_wrote_nothing(database: Database) -> None:
    raised: list[DuelineError] = []

    def add(store: PostgresStore) -> None:
        try:
            store.add([new_job(1)])
        except DuelineError as error:
            raised.append(error)

    with closing(database.open()) as store:
        thread = threading.Thread(target=add, args=(store,))
        with psycopg.connect(database.url) as lock:
            lock.execute("LOCK TABLE dueline.jobs IN ACCESS EXCLUSIVE MODE")
            thread.start()
            give_up_s = time.monotonic() + GIVE_UP_S
            while not raised and time.monotonic() < give_up_s:
                statement(
                    database.url,
                    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
                    " WHERE wait_event_type = 'Lock' AND datname = current_database()",
                )
                time.sleep(0.05)
        thread.join()
        assert "cancelled the statement" in raised[0].hint
        assert rows_in(store, lane_of()) == []
        store.add([new_job(1)])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[SmallDisk, Path]]:
    place = Path("/tmp") / f"dueline-disk-{secrets.token_hex(4)}"  # noqa: S108  (the server's user enters)
    place.mkdir()
    try:
        with small_disk(place, size=DISK_BYTES) as disk:
            space = place / "space"
            space.mkdir()
            if os.geteuid() == 0:
                shutil.chown(space, pwd.getpwnam("postgres").pw_uid)
            place.chmod(0o755)
            yield disk, space
    except MountError as error:
        pytest.skip(f"no small disk can be mounted: {error}")
    finally:
        place.rmdir()


def test_a_full_disk_loses_nothing_and_is_over_when_there_is_space(
    disk: tuple[SmallDisk, Path],
) -> None:
    small, space = disk
    name = f"small_{secrets.token_hex(4)}"
    statement(server_url(), f"CREATE TABLESPACE {name} LOCATION '{space}'")
    database = Database(name)
    try:
        with closing(database.open()) as store:
            stored: list[int] = []
            small.fill()
            error: StoreUnavailable | None = None
            for number in range(1, 200):
                rows = range(number * 1000, number * 1000 + 500)
                try:
                    store.add([new_job(row) for row in rows])
                except StoreUnavailable as full:
                    error = full
                    break
                stored += rows
            assert error is not None
            assert "free some space" in error.hint
            present = {int.from_bytes(row.id) for row in rows_in(store, lane_of())}
            assert present == set(stored)
            small.free()
            store.add([new_job(1)])
    finally:
        database.drop()
        statement(server_url(), f"DROP TABLESPACE {name}")
