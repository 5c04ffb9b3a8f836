"""Addresses that no retry makes right exit with 7, outages with 3; each says its cause."""

import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from dueline.api.connect import open_store
from dueline.cli import run
from dueline.core.errors import ConfigError, StoreUnavailable
from dueline.core.store import Migratable
from tests.harness.cassandra_node import node_url
from tests.harness.fake_server import fake_server
from tests.harness.postgres import server_url, statement

SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
CONFIG, OUTAGE = 7, 3


def http(said: bytes) -> bytes:
    """Answer as a web server."""
    is_http = said.startswith(b"GET ")
    return b"HTTP/1.0 200 OK\r\n\r\n" if is_http else b"HTTP/1.0 400 Bad Request\r\n\r\n"


def tls(said: bytes) -> bytes:
    """Answer as a server that speaks TLS only: with a handshake, or an alert."""
    return b"\x16\x03\x03\x00\x02\x02\x28" if said[:2] == b"\x16\x03" else b"\x15\x03\x03\x00\x02"


def silent(_: bytes) -> bytes:
    """Answer nothing."""
    return b""


def login_error(text: str) -> bytes:
    """Return the refusal of a PostgreSQL server."""
    fields = b"".join(b"%c%s\0" % item for item in ((b"S", b"FATAL"), (b"M", text.encode())))
    return b"E" + struct.pack(">I", len(fields) + 5) + fields + b"\0"


def without_rule(said: bytes) -> bytes:
    """Answer as a PostgreSQL server whose pg_hba.conf has no rule."""
    if said == SSL_REQUEST:
        return b"N"
    return login_error('no pg_hba.conf entry for host "10.0.0.1", user "ann", no encryption')


def starting(said: bytes) -> bytes:
    """Answer as a PostgreSQL server that starts."""
    return b"N" if said == SSL_REQUEST else login_error("the database system is starting up")


def with_tls(said: bytes) -> bytes:
    """Answer as a PostgreSQL server that speaks TLS."""
    return b"S" if said == SSL_REQUEST else b""


FAKES = {"http": http, "tls": tls, "silent": silent, "rule": without_rule, "starts": starting,
         "pgtls": with_tls}  # fmt: skip


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    """The ports of servers that are not what an address says, and one that is closed."""
    with ExitStack() as stack:
        found = {name: stack.enter_context(fake_server(reply)) for name, reply in FAKES.items()}
        with socket.create_server(("127.0.0.1", 0)) as closed:
            found["closed"] = closed.getsockname()[1]
        yield found


def expect_refusal(url: str, code: int, cause: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command on an address."""
    assert run(["--store", url, "queues", "list"]) == code
    what, why, attempt = capsys.readouterr().err.splitlines()
    assert cause in why
    assert attempt.removeprefix("    try: ")
    assert ("configuration" in what) == (code == CONFIG)


@pytest.mark.cassandra
@pytest.mark.parametrize(
    ("place", "code", "cause"),
    [
        ("{node}/ks?dc=dc9", CONFIG, "has no data centre 'dc9'"),
        ("{node}/no_such_keyspace", CONFIG, "has not been set up"),
        ("{node}/ks?tls=1", CONFIG, "does not speak TLS"),
        ("127.0.0.1:{tls}/ks", CONFIG, "speaks TLS only"),
        ("127.0.0.1:{http}/ks", CONFIG, "is an HTTP server, not a Cassandra node"),
        ("127.0.0.1:{silent}/ks", OUTAGE, "does not answer"),
        ("127.0.0.1:{closed}/ks", OUTAGE, "Connection refused"),
        ("no-such-host.invalid/ks?insecure=1", OUTAGE, "No address is known"),
    ],
)
def test_cassandra(
    place: str,
    code: int,
    cause: str,
    ports: dict[str, int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with node_url() as node_address:
        node = node_address.removeprefix("cassandra://")
        url = "cassandra://" + place.format(node=node, **ports)
        expect_refusal(url, code, cause, capsys)


@pytest.mark.cassandra
@pytest.mark.postgres
def test_each_other_s_server(capsys: pytest.CaptureFixture[str]) -> None:
    where = urlsplit(server_url())
    place = f"{where.hostname}:{where.port or 5432}"
    expect_refusal(f"cassandra://{place}/ks", CONFIG, "is a PostgreSQL server", capsys)
    with node_url() as url:
        node = url.removeprefix("cassandra://")
        expect_refusal(f"postgresql://a:b@{node}:9042/x", CONFIG, "is a Cassandra node", capsys)


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("place", "code", "cause"),
    [
        ("{server}/no_such_database", CONFIG, "does not exist"),
        ("{server}{path}?schema=no_such_schema", CONFIG, "has not been set up"),
        ("{server}{path}?sslmode=require", CONFIG, "does not support SSL"),
        ("{server}{path}?sslmode=maybe", CONFIG, "invalid sslmode value"),
        ("{server}{path}?no_such_option=1", CONFIG, "invalid URI query parameter"),
        ("a:b@127.0.0.1:{rule}/x", CONFIG, "no pg_hba.conf entry"),
        ("a:b@127.0.0.1:{pgtls}/x?sslmode=verify-full&sslrootcert=/no", CONFIG, "certificate"),
        ("a:b@127.0.0.1:{http}/x", CONFIG, "is an HTTP server, not a PostgreSQL server"),
        ("a:b@127.0.0.1:{starts}/x", OUTAGE, "starting up"),
        ("a:b@127.0.0.1:{silent}/x?connect_timeout=2", OUTAGE, "timeout"),
        ("a:b@127.0.0.1:{closed}/x", OUTAGE, "Connection refused"),
        ("a:b@no-such-host.invalid/x", OUTAGE, "failed to resolve host"),
    ],
)
def test_postgresql(
    place: str,
    code: int,
    cause: str,
    ports: dict[str, int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = urlsplit(server_url())
    url = "postgresql://" + place.format(server=where.netloc, path=where.path, **ports)
    expect_refusal(url, code, cause, capsys)


@pytest.mark.postgres
def test_a_database_that_goes_while_it_is_used_is_an_outage() -> None:
    # A worker that runs waits for it: it may be restored.
    where = urlsplit(server_url())
    name = f"db_{secrets.token_hex(4)}"
    statement(server_url(), f"CREATE DATABASE {name}")
    store = open_store(f"postgresql://{where.netloc}/{name}")
    try:
        assert isinstance(store, Migratable)
        store.migrate()
        assert store.read("queues", after=None, limit=1) == []
        statement(server_url(), f"DROP DATABASE {name} WITH (FORCE)")
        with pytest.raises(StoreUnavailable, match="does not exist") as caught:
            store.read("queues", after=None, limit=1)
        assert not isinstance(caught.value, ConfigError)
    finally:
        store.close()
        statement(server_url(), f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.mark.postgres
def test_a_role_that_may_not_log_in(capsys: pytest.CaptureFixture[str]) -> None:
    where = urlsplit(server_url())
    role = f"role_{secrets.token_hex(4)}"
    statement(server_url(), f"CREATE ROLE {role} NOLOGIN PASSWORD 'secret'")
    try:
        place = where.netloc.rpartition("@")[2]
        url = f"postgresql://{role}:secret@{place}{where.path}"
        expect_refusal(url, CONFIG, "is not permitted to log in", capsys)
        url = f"postgresql://{role}:wrong@{place}{where.path}"
        expect_refusal(url, CONFIG, "authentication failed", capsys)
    finally:
        statement(server_url(), f"DROP ROLE {role}")
