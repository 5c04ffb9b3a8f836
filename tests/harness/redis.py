"""Redis and Valkey servers for tests, and empty stores on them."""

import os
import secrets
import socket
from collections.abc import Callable

from dueline.store_tests.factory import UrlFactory
from tests.harness.servers import absent
from tools.redis import Server, Slots

NAME = "redis"
NAMES = ("redis", "valkey")
CLUSTER = "-cluster"
"""End of the name of a kind: a cluster of such servers."""

StartServer = Callable[..., Server]


def server_url(kind: str = "redis") -> str:
    """Return the URL of a server or cluster for tests; skip the test without one."""
    try:
        import redis  # noqa: F401, PLC0415  (an extra)
    except ModuleNotFoundError:
        absent(NAME, "redis-py is not installed")
    variable = f"DUELINE_TEST_{kind.replace('-', '_').upper()}"
    if url := os.environ.get(variable, ""):
        return url
    is_cluster = kind.endswith(CLUSTER)
    server = Slots(kind.removesuffix(CLUSTER)) if is_cluster else Server(kind)
    if not server.is_ready():
        start = "`python -m tools.redis up --cluster`" if is_cluster else "`make redis-up`"
        name = NAME + CLUSTER if is_cluster else NAME
        absent(name, f"no {kind} runs: {start}, or {variable}=redis://…")
    return server.url


def new_url(kind: str = "redis", **options: str) -> str:
    """Return the URL of an empty store: a prefix that was never used."""
    base, _, query = server_url(kind).partition("?")
    texts = [
        f"prefix=test{secrets.token_hex(8)}",
        *(f"{key}={value}" for key, value in options.items()),
    ]
    return f"{base}?{'&'.join([*filter(None, [query]), *texts])}"


def prefixes(kind: str) -> UrlFactory:
    """Return the factory of empty stores on a server."""
    server_url(kind)
    return UrlFactory(lambda _: new_url(kind))


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
