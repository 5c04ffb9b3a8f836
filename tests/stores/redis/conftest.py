"""Servers that a test may stop."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.redis import CLUSTER, NAME, StartServer, free_port
from tests.harness.redis_cluster import Watching
from tests.harness.servers import absent
from tools.redis import RedisError, Server, Slots, Watched, slot_of


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


@contextmanager
def watched_in(folder: Path, kind: str) -> Iterator[Watched]:
    """Start a primary, a replica and three sentinels."""
    watched = Watched(kind, folder, ports=[free_port() for _ in range(5)])
    try:
        watched.start()
    except RedisError as error:
        absent(NAME, str(error))
    yield watched
    watched.remove()


@contextmanager
def cluster_in(folder: Path, kind: str) -> Iterator[Slots]:
    """Start a cluster of three primaries and their replicas."""
    cluster = Slots(kind, folder, ports=[free_port() for _ in range(12)])
    try:
        cluster.start()
    except RedisError as error:
        absent(NAME + CLUSTER, str(error))
    yield cluster
    cluster.remove()


@pytest.fixture(params=["redis", "valkey"])
def watched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    """Start servers that sentinels watch."""
    with watched_in(tmp_path, request.param) as watched:
        yield watched


@pytest.fixture(params=["redis", pytest.param("valkey", marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Slots]:
    """Start a cluster that a test may disturb."""
    with cluster_in(tmp_path, request.param) as cluster:
        yield cluster


@pytest.fixture(params=[("redis", False), ("valkey", False), ("redis", True), ("valkey", True)])
def watching(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watching]:
    """Start servers that sentinels watch, or a cluster."""
    kind, is_cluster = request.param
    if not is_cluster:
        with watched_in(tmp_path, kind) as watched:
            url = f"{watched.url}?timeout=1s"
            yield Watching(url, watched.pair, watched.fail_over, may_go_back=True)
        return
    with cluster_in(tmp_path, kind) as cluster:
        slot = slot_of("dueline")
        yield Watching(
            f"{cluster.url}?timeout=1s",
            lambda: cluster.pair(slot),
            lambda: cluster.fail_over(slot),
            may_go_back=False,
        )
