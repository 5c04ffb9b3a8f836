"""The HTTP API: what operators and producers do with jobs and queues."""

import socket
import threading
from collections.abc import Iterator

import pytest
from starlette.types import Receive, Scope, Send

from dueline import Dueline
from dueline.web import api, dashboard
from dueline.web.server import bound
from tests.harness.http_api import Program
from tests.harness.web import Shop, serving


@pytest.fixture
def program(shop: Shop) -> Program:
    """Use the API as an operator."""
    return Program(api(shop.app, role="operator"))


@pytest.fixture
def app() -> Iterator[Dueline]:
    """Open an application in memory."""
    made = Dueline("memory://")
    yield made
    made.close()


def test_jobs_are_cancelled_retried_and_rescheduled(shop: Shop, program: Program) -> None:
    assert program.call("POST", f"/jobs/{shop.ready}/cancel") == {"ended": True}
    program.call("POST", f"/jobs/{shop.done}/cancel", {}, status=409)
    program.call("POST", f"/jobs/{shop.dead}/retry")
    assert program.call("GET", f"/jobs/{shop.dead}")["state"] == "ready"
    program.call("POST", f"/jobs/{shop.done}/retry", status=409)
    path = f"/jobs/{shop.scheduled}/reschedule"
    program.call("POST", path, {"after": 7200})
    program.call("POST", path, {"due": "2030-01-01T00:00:00+01:00"}, status=200)
    assert program.call("GET", f"/jobs/{shop.scheduled}")["next"] == "2029-12-31T23:00:00Z"
    program.call("POST", path, {}, status=422)
    program.call("POST", path, {"after": 1, "due": "2030-01-01T00:00:00Z"}, status=422)
    program.call("POST", path, {"due": "0001-01-01T00:00:00Z"}, status=422)
    done = {(one.what, one.target, one.result) for one in shop.app.admin.actions()}
    assert ("cancel", shop.ready, "done") in done
    assert ("retry", shop.dead, "done") in done


def test_results_are_returned_as_they_are_stored(shop: Shop, program: Program) -> None:
    result = program.call("GET", f"/jobs/{shop.done}/result")
    assert result["state"] == "done"
    assert result["result"] == {"to": "ann", "token": "hunter2", "note": Shop.evil}
    dead = program.call("GET", f"/jobs/{shop.dead}/result?wait=5")
    assert dead["state"] == "dead"
    assert "no mailbox" in dead["error"]
    assert program.call("GET", f"/jobs/{shop.ready}/result?wait=0.05")["state"] == "ready"
    program.call("GET", f"/jobs/{'0' * 32}/result", status=404)
    program.call("GET", f"/jobs/{shop.ready}/result?wait=31", status=422)


def test_a_result_is_waited_for(app: Dueline) -> None:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    job = add.enqueue(2, 3)
    program = Program(api(app, role="producer"))
    later = threading.Timer(0.05, lambda: app.run_worker(["default"], burst=True, monitor=False))
    later.start()
    assert program.call("GET", f"/jobs/{job.id}/result?wait=20")["result"] == 5
    later.join()


def test_queues_are_read_paused_and_resumed(shop: Shop, program: Program) -> None:
    queues = {one["name"]: one for one in program.call("GET", "/queues")["queues"]}
    assert queues["mail"]["dead"] == 2
    assert queues["slow"]["ready"] == 1
    program.call("POST", "/queues/mail/pause")
    assert program.call("GET", "/queues/mail")["is_paused"]
    program.call("POST", "/queues/mail/resume")
    assert not shop.app.engine.catalog.settings("mail").is_paused
    program.call("GET", "/queues/nothing", status=404)
    program.call("POST", "/queues/nothing/pause", status=404)
    program.call("GET", "/queues/A%20b", status=422)
    stats = program.call("GET", "/stats")
    assert stats["dead"] == 2
    assert stats["start_latency_p50"] is not None


def test_slow_clients_are_cut_off(app: Dueline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dueline.web.security.BODY_S_MAX", 0.05)
    monkeypatch.setattr("dueline.web.server.REQUEST_S_MAX", 0.1)
    with serving(dashboard(app, role="operator")) as address:
        heads = {
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ": b"",
            b"": b"",
            _post(address, "/api/v1/jobs", "application/json", address): b" 408 ",
            _post(address, "/jobs/change", "application/x-www-form-urlencoded", address): b" 408 ",
        }
        for head, expected in heads.items():
            answer = _trickled(address, head)
            assert expected in answer.partition(b"\r\n")[0] + b" "
        again = b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET / HTTP/1.1\r\nHost: 12"
        assert _trickled(address, again).count(b"HTTP/1.1 ") == 1


def test_answers_are_sent_without_delay() -> None:
    with bound("127.0.0.1", 0) as listening, _connected(listening) as accepted:
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def _connected(listening: socket.socket) -> socket.socket:
    with socket.create_connection(listening.getsockname()):
        return listening.accept()[0]


def test_clients_that_read_nothing_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dueline.web.server.REQUEST_S_MAX", 0.1)
    ended = threading.Event()

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(200):
            await send({"type": "http.response.body", "body": bytes(10**6), "more_body": True})
        ended.set()

    with serving(large) as address:
        host, _, port = address.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert ended.wait(timeout=10)


def _post(address: str, path: str, kind: str, origin: str) -> bytes:
    host = address.removeprefix("http://")
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Type: {kind}",
             f"Origin: {origin}", "Content-Length: 1000", "", "{"]  # fmt: skip
    return "\r\n".join(lines).encode()


def _trickled(address: str, head: bytes) -> bytes:
    """Send the begin of a request, then a byte now and then; return what the server sends."""
    host, _, port = address.removeprefix("http://").partition(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(head)
        connection.settimeout(0.02)
        for _ in range(500):
            try:
                part = connection.recv(65536)
                if not part:
                    return received
                received += part
            except TimeoutError:
                connection.sendall(b"x")
            except ConnectionError:
                return received
    raise AssertionError("The server waits for ever.")


def test_a_dead_job_is_settled_with_a_result(shop: Shop, program: Program) -> None:
    program.call("POST", f"/jobs/{shop.ready}/settle", {"result": 1}, status=409)
    program.call("POST", f"/jobs/{shop.dead}/settle", {"result": {"paid": True}})
    result = program.call("GET", f"/jobs/{shop.dead}/result")
    assert (result["state"], result["result"]) == ("done", {"paid": True})
    assert ("settle", shop.dead) in {(one.what, one.target) for one in shop.app.admin.actions()}
