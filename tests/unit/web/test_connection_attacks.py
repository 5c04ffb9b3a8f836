"""Clients that hold connections of the dashboard: those with a good token are answered."""

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

from dueline import Dueline
from dueline.web import dashboard
from dueline.web.security import Role
from dueline.web.server import CONNECTIONS_MAX
from tests.harness.programs import wait_for
from tests.harness.web import serving

PRODUCER, OPERATOR = "a-token-of-a-producer", "a-token-of-an-operator"
TOKENS: dict[str, Role] = {PRODUCER: "producer", OPERATOR: "operator"}
HEAD = b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 60000\r\n"
KNOWN = f"Authorization: Bearer {PRODUCER}\r\n".encode()
MORE = 60
JSON = b"Content-Type: application/json\r\n\r\n{"

ATTACKS = {
    "idle": b"",
    "half heads": b"GET /api/v1/queues HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
    "slow bodies without a token": HEAD + JSON,
    "slow bodies of a producer": HEAD + KNOWN + JSON,
    "garbage": b"\0\xff\r\n\r\n" * 100,
    "pipelined": b"GET /static/dashboard.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 50,
}


@pytest.fixture
def place() -> Iterator[str]:
    app = Dueline("memory://")
    with serving(dashboard(app, tokens=TOKENS)) as address:
        yield address.removeprefix("http://")
    app.close()


def connected(place: str, data: bytes, count: int) -> list[socket.socket]:
    """Open connections that send some bytes, and leave them so."""
    host, _, port = place.partition(":")
    clients = []
    for _ in range(count):
        with suppress(OSError):
            client = socket.create_connection((host, int(port)), timeout=30)
            clients.append(client)
            client.sendall(data)
    return clients


def status(place: str) -> int:
    headers = {"authorization": f"Bearer {OPERATOR}"}
    request = urllib.request.Request(f"http://{place}/api/v1/queues", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  (HTTP)
        found: int = answer.status
        return found


@pytest.mark.long
@pytest.mark.parametrize("name", ATTACKS)
def test_a_good_token_is_answered_beside_any_number_of_bad_clients(place: str, name: str) -> None:
    clients = connected(place, ATTACKS[name], CONNECTIONS_MAX + MORE)
    try:
        assert [status(place) for _ in range(3)] == [200] * 3
        clients += connected(place, ATTACKS[name], MORE)
        assert [status(place) for _ in range(3)] == [200] * 3
    finally:
        for client in clients:
            client.close()


def test_a_connection_with_a_good_token_outlives_those_without(place: str) -> None:
    headers = {"authorization": f"Bearer {OPERATOR}"}
    with httpx.Client(base_url=f"http://{place}", headers=headers, timeout=30) as known:
        assert known.get("/api/v1/queues").status_code == 200
        mine = known._transport._pool.connections  # type: ignore[attr-defined]
        before = list(mine)
        clients = connected(place, b"GET / HT", CONNECTIONS_MAX + MORE)
        assert known.get("/api/v1/queues").status_code == 200
        assert list(mine) == before
    for client in clients:
        client.close()


def test_the_oldest_of_the_peer_with_most_connections_is_closed(place: str) -> None:
    host, _, port = place.partition(":")
    other = socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0))
    clients = connected(place, b"", CONNECTIONS_MAX + 10)
    wait_for(lambda: is_closed(clients[0]), "the oldest of the many is closed")
    assert not is_closed(other)
    assert not is_closed(clients[-1])
    for client in (other, *clients):
        client.close()


def is_closed(client: socket.socket) -> bool:
    client.settimeout(0.05)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True
