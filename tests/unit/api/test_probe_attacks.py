"""Clients that keep a worker's port busy: its probes and metrics still answer (O12)."""

import random
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from dueline import Dueline
from dueline.api import probe_server
from dueline.api.launch import make_worker
from dueline.api.probe_server import ANSWERS_MAX, CONNECTIONS_MAX
from dueline.api.worker_http import Listener, listening
from dueline.api.worker_plan import plan_of
from dueline.worker.tally import Tally
from tests.harness.programs import wait_for

HOST = "127.0.0.1"
PATHS = ("/livez", "/readyz", "/metrics")
ROUNDS = 8


@pytest.fixture
def app() -> Iterator[Dueline]:
    made = Dueline("memory://")
    yield made
    made.close()


@pytest.fixture
def port(app: Dueline) -> Iterator[int]:
    tally = Tally()
    worker = make_worker(app, plan_of(["default"], 2, 0, 0), tally=tally)
    thread = threading.Thread(target=worker.run)
    thread.start()
    with listening((HOST, 0), Listener(app.engine, worker, tally, 2)) as port:
        wait_for(lambda: status(port, "/readyz") == 200, "the worker claims jobs")
        yield port
    worker.stop()
    thread.join()


def status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=30) as answer:
            answer.read()
            found: int = answer.status
            return found
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def connected(port: int, data: bytes = b"", *, receive_bytes: int = 0) -> socket.socket:
    """Open a connection, send some bytes, and leave it so."""
    client = socket.socket()
    if receive_bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.settimeout(30)
    client.connect((HOST, port))
    with suppress(OSError):
        client.sendall(data)
    return client


@contextmanager
def attack(opened: Callable[[], socket.socket], count: int) -> Iterator[None]:
    """Keep so many connections open while the block runs: those that are closed are renewed."""
    stop = threading.Event()

    def renew(clients: list[socket.socket]) -> None:
        chance = random.Random(7)
        while not stop.wait(0.01):
            place = chance.randrange(len(clients))
            clients[place].close()
            with suppress(OSError):
                clients[place] = opened()

    with ExitStack() as stack:
        clients = [stack.enter_context(opened()) for _ in range(count)]
        thread = threading.Thread(target=renew, args=(clients,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            for client in clients:
                client.close()


ATTACKS: dict[str, tuple[bytes, int]] = {
    "idle": (b"", ANSWERS_MAX),
    "half heads": (b"G", ANSWERS_MAX),
    "many half heads": (b"GET /metrics HTTP/1.1\r\nHost: x\r\n", 2 * CONNECTIONS_MAX),
    "slow bodies": (b"POST /livez HTTP/1.1\r\nContent-Length: 99999\r\n\r\nx", 2 * CONNECTIONS_MAX),
    "pipelined garbage": (b"\0\xff GARBAGE\r\n\r\n" * 500, CONNECTIONS_MAX),
    "pipelined requests": (b"GET /metrics HTTP/1.1\r\n\r\n" * 500, CONNECTIONS_MAX),
    "endless heads": (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 5000, CONNECTIONS_MAX),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ATTACKS)
def test_probes_and_metrics_answer_beside_any_number_of_bad_clients(port: int, name: str) -> None:
    data, count = ATTACKS[name]
    with attack(lambda: connected(port, data), count):
        answers = [status(port, path) for _ in range(ROUNDS) for path in PATHS]
    assert answers == [200] * ROUNDS * len(PATHS)


def test_a_thousand_connections_do_not_end_the_probes(port: int) -> None:
    clients = []
    for number in range(1000):
        with suppress(OSError):
            clients.append(connected(port, b"GET /livez HT"))
        if number % 100 == 0:
            assert status(port, PATHS[number // 100 % 3]) == 200
    assert [status(port, path) for path in PATHS] == [200, 200, 200]
    for client in clients:
        client.close()
    wait_for(lambda: status(port, "/livez") == 200, "it goes on")


def test_clients_that_do_not_read_keep_no_thread(
    app: Dueline, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(200):  # metrics that fill the buffers of a connection
        app.queue(f"queue-{number}-with-a-long-name")
    monkeypatch.setattr(probe_server, "WRITE_S_MAX", 60.0)
    asked = b"GET /metrics?%d HTTP/1.1\r\n\r\n"
    clients = [connected(port, asked % n, receive_bytes=1024) for n in range(2 * ANSWERS_MAX)]
    assert [status(port, path) for path in PATHS] == [200, 200, 200]
    for client in clients:
        client.close()


def test_a_store_that_does_not_answer_leaves_livez_alone(
    app: Dueline, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()

    def stuck(*_: object, **__: object) -> list[object]:
        release.wait(60)
        return []

    monkeypatch.setattr(type(app.engine.store), "read", stuck)
    clients = [connected(port, b"GET /readyz?%d HTTP/1.1\r\n\r\n" % n) for n in range(30)]
    assert [status(port, "/livez") for _ in range(5)] == [200] * 5
    release.set()
    assert status(port, "/readyz") == 200
    for client in clients:
        client.close()


def test_a_request_that_waits_too_long_is_told_so(
    app: Dueline, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    server = probe_server.ProbeServer(
        lambda _: str(release.wait(60)).encode(),
        is_quick=lambda _: False,
        late=b"HTTP/1.0 503 Late\r\n\r\n",
        answer_s_max=0.1,
    )
    listening_socket = socket.create_server((HOST, 0))
    with server.serving(listening_socket):
        port = listening_socket.getsockname()[1]
        assert [status(port, "/readyz") for _ in range(2)] == [503, 503]
        release.set()


def test_the_oldest_silent_connection_is_closed_for_a_new_one(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe_server, "HEAD_S_MAX", 60.0)
    oldest = connected(port)
    others = [connected(port) for _ in range(CONNECTIONS_MAX - 1)]
    newest = connected(port)
    with suppress(ConnectionError):
        assert oldest.recv(1) == b""
    newest.sendall(b"GET /livez HTTP/1.1\r\n\r\n")
    assert newest.recv(12) == b"HTTP/1.0 200"
    for client in (oldest, newest, *others):
        client.close()
