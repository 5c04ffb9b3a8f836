"""Cassandra nodes that are absent, empty, of another version, or too old (R15)."""

import secrets
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread

import pytest

from dueline.cli import run
from dueline.core.errors import ConfigError, SchemaMismatch, StoreUnavailable
from tests.harness.cassandra_node import PATIENT, TABLES, expect_node, node_url
from tests.harness.keyspaces import enqueue_one, refusal, session_on
from tests.harness.servers import migrate
from tools.cassandra.config import CQL_PORT

expect_node()
pytestmark = pytest.mark.cassandra

NOBODY = "127.0.0.74"
OLD = "127.0.0.75"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with node_url() as url:
        yield url


@pytest.fixture
def url(address: str) -> Iterator[str]:
    """Name a keyspace that is not there, and see that it is not there afterwards."""
    name = f"refusals_{secrets.token_hex(4)}"
    yield f"{address}/{name}?{PATIENT}"
    with session_on(f"{address}/{name}?{PATIENT}") as session:
        session.define([f"DROP KEYSPACE IF EXISTS {name}"])


# Nobody, or nothing, is there


def test_a_node_that_is_down_exits_3_and_leaves_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dueline", "--store", f"cassandra://{NOBODY}/jobs", "jobs", "list"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (3, "")
    what, why, attempt = done.stderr.splitlines()
    assert what == "dueline: the store is unavailable; nothing was written"
    assert f"cassandra://{NOBODY}/jobs does not answer" in why
    assert "Connection refused" in why
    assert attempt == "    try: Check that it is running and reachable."


def test_a_host_that_nobody_knows_is_said_to_be_unknown() -> None:
    error = refusal("cassandra://nobody.invalid/jobs")
    assert isinstance(error, StoreUnavailable)
    assert "No address is known for the hosts of cassandra://nobody.invalid/jobs" in error.message


@pytest.mark.parametrize("present", ["nothing", "keyspace"])
def test_what_has_not_been_set_up_is_told_how_it_is(url: str, present: str) -> None:
    if present == "keyspace":
        make_keyspace(url)
    for error in (refusal(url), enqueue_one(url)):
        assert isinstance(error, ConfigError)
        assert "has not been set up" in error.message
        assert error.hint == "Run `dueline migrate` with this URL once."
    assert run(["--store", url, "doctor"]) == 7
    migrate(url)
    assert refusal(url) is None
    assert enqueue_one(url) is None


def make_keyspace(url: str, *tables: str) -> None:
    with session_on(url) as session:
        name = session.place.keyspace
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        session.define([f"CREATE KEYSPACE {name} WITH replication = {replication}"])
        session.define(f"CREATE TABLE {name}.{table} (id int PRIMARY KEY)" for table in tables)


def test_a_keyspace_is_set_up_once(url: str) -> None:
    name = url.rpartition("/")[2].partition("?")[0]
    tables = {f"table {table}" for table in ("about", *TABLES)}
    made, version = migrate(url)
    assert (set(made), version) == ({f"keyspace {name}", *tables}, "2")
    assert migrate(url) == ([], "2")
    with session_on(url) as session:
        session.define([f"DROP TABLE {name}.records", f"TRUNCATE {name}.about"])
    error = refusal(url)
    assert isinstance(error, ConfigError)
    assert "set up in part only" in error.message
    assert migrate(url) == (["table records"], "2")
    assert refusal(url) is None


def test_nothing_of_a_stream_goes_by_a_time_to_live(url: str) -> None:
    # rule A5
    migrate(url)
    with session_on(url) as session:
        name = session.place.keyspace
        found = session.ask(
            "SELECT keyspace_name, table_name, default_time_to_live FROM system_schema.tables"
        )
    assert {ttl_s for keyspace, _, ttl_s in found if keyspace == name} == {0}


def test_another_program_s_tables_are_left_as_they_are(url: str) -> None:
    make_keyspace(url, "jobs")
    with pytest.raises(ConfigError, match="tables of another program: jobs"):
        migrate(url)
    with session_on(url) as session:
        tables = session.ask("SELECT keyspace_name, table_name FROM system_schema.tables")
        name = session.place.keyspace
    assert [table for keyspace, table in tables if keyspace == name] == ["jobs"]


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("1", r"has schema version 1: a development version before 1\.0 made it"),
        ("9", "has schema version 9; this dueline uses 2"),
    ],
)
def test_another_version_s_tables_are_left_as_they_are(url: str, version: str, words: str) -> None:
    migrate(url)
    with session_on(url) as session:
        name = session.place.keyspace
        changed = "INSERT INTO {keyspace}.about (name, value) VALUES (?, ?)"
        session.write([[(changed, ("schema", version))]])
        session.define([f"DROP TABLE {name}.records"])
    with pytest.raises(SchemaMismatch, match=words):
        migrate(url)
    assert isinstance(refusal(url), SchemaMismatch)
    with session_on(url) as session, pytest.raises(ConfigError):
        session.read("SELECT * FROM {keyspace}.records")


def test_a_statement_that_is_refused_keeps_its_whole_call_from_being_sent(url: str) -> None:
    migrate(url)
    good = ("INSERT INTO {keyspace}.about (name, value) VALUES (?, ?)", ("new", "1"))
    wrong = ("INSERT INTO {keyspace}.about (name, nothing) VALUES (?, ?)", ("new", "1"))
    with session_on(url) as session:
        with pytest.raises(SchemaMismatch, match="refuses a statement"):
            session.write_many([[good], [wrong]])
        assert session.read("SELECT value FROM {keyspace}.about WHERE name = ?", ("new",)) == []


# A server that is too old


def test_a_session_whose_answered_version_is_replaced_by_4_0_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cassandra.cluster import Session  # noqa: PLC0415  (the driver may be absent)

    execute = Session.execute

    def answer(session: Session, query: str, *rest: object, **named: object) -> object:
        if "release_version" in query:
            return [("4.0.17",)]
        return execute(session, query, *rest, **named)

    monkeypatch.setattr(Session, "execute", answer)
    error = refusal(f"{address}/jobs")
    assert isinstance(error, ConfigError)
    assert "is Cassandra 4.0.17, which has no Paxos v2" in error.message
    assert error.hint == "Use Apache Cassandra 4.1 or later; other servers were never run."


def test_a_server_that_answers_as_3_11_does_is_refused() -> None:
    told = b"Invalid or unsupported protocol version (5); highest supported is 4"
    body = struct.pack(">IH", 0x0A, len(told)) + told
    refused = struct.pack(">BBhBI", 0x84, 0, 0, 0x00, len(body)) + body

    def serve(server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:  # the test is over
                return
            with connection, suppress(OSError):  # it may hang up first
                connection.recv(4096)
                connection.sendall(refused)
                connection.recv(4096)

    with socket.create_server((OLD, CQL_PORT)) as server:
        thread = Thread(target=serve, args=[server], daemon=True)
        thread.start()
        error = refusal(f"cassandra://{OLD}/jobs")
        server.shutdown(socket.SHUT_RDWR)
    thread.join()
    assert isinstance(error, ConfigError)
    assert "does not speak version 5 of the protocol" in error.message
    assert error.hint == "Use Apache Cassandra 4.1 or later; other servers were never run."
