"""The listener that Spark's tasks connect to, with peers that misbehave."""

import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from dueline.spark.worker import driver_server as module
from dueline.spark.worker.driver_server import Gate, come

KEY = b"k" * 32


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Open a gate on loopback."""
    one = Gate("127.0.0.1", "127.0.0.1", key=KEY)
    yield one
    one.close()


@contextmanager
def few_descriptors() -> Iterator[int]:
    """Let this process have a few more descriptors than it has open.

    Other threads of the process use them too, so nothing is served meanwhile.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = socket.socket()
    most = probe.fileno() + 12
    probe.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield most
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def silent(gate: Gate) -> socket.socket:
    """Connect and say nothing."""
    return socket.create_connection((gate.address.host, gate.address.port))


def wait_until_threads(most: int, most_s: float = 20.0) -> bool:
    """Wait until this process has a number of threads at most."""
    end_s = time.monotonic() + most_s
    while threading.active_count() > most and time.monotonic() < end_s:
        threading.Event().wait(0.02)
    return threading.active_count() <= most


@pytest.mark.slow
def test_a_task_is_served_beside_silent_peers_once_their_time_is_over(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.2, raising=False)
    monkeypatch.setattr(module, "ARRIVING_MAX", 4, raising=False)
    threads = threading.active_count()
    line = gate.expect(1)
    peers = [silent(gate) for _ in range(8)]
    connection = come(gate.address, 1)
    assert connection is not None
    connection.send_bytes(b"hello")
    assert line.recv_bytes() == b"hello"
    assert wait_until_threads(threads)
    for peer in peers:
        peer.close()
    connection.close()
    line.close()


def test_the_listener_outlives_a_lack_of_descriptors(gate: Gate) -> None:
    line = gate.expect(1)
    peers = []
    with few_descriptors() as most:
        with suppress(OSError):
            for _ in range(most):
                peers.append(silent(gate))  # noqa: PERF401  (those made before it fails are kept)
        assert peers
        threading.Event().wait(0.2)  # the listener meets the lack
    for peer in peers:
        peer.close()
    connection = come(gate.address, 1)
    assert connection is not None
    connection.close()
    line.close()


def test_a_peer_with_another_key_is_refused(gate: Gate) -> None:
    line = gate.expect(1)
    with pytest.raises(Exception, match="digest"):
        come(gate.address._replace(key=b"x" * 32), 1)
    assert not line.has_come
