"""Servers that a test may stop."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.harness.redis import NAME, StartServer, free_port
from tests.harness.servers import absent
from tools.redis import RedisError, Server


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
