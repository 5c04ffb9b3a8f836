"""Servers that a test may stop."""

import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.harness.redis import NAME
from tests.harness.servers import absent
from tools.redis import RedisError, Server

StartServer = Callable[..., Server]


@pytest.fixture(params=["redis", "valkey"])
def start_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartServer]:
    """Start servers of a kind with settings of their own; end them with the test."""
    started: list[Server] = []

    def start(fsync: str = "everysec", settings: Mapping[str, str] | None = None) -> Server:
        folder = tmp_path / f"server{len(started)}"
        server = Server(request.param, folder, port=free_port(), fsync=fsync, settings=settings)
        started.append(server)
        try:
            server.start()
        except RedisError as error:
            absent(NAME, str(error))
        return server

    yield start
    for server in started:
        server.kill()


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
