"""A PostgreSQL server for tests, and schemas on it."""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dueline.api.connect import open_store
from dueline.core.clock import Clock
from dueline.core.store import Store
from tests.harness.servers import absent, migrate
from tools.postgres import Cluster

NAME = "postgres"
AT_ONCE = 50
VARIABLE = "DUELINE_TEST_POSTGRES"


def server_url() -> str:
    """Return the URL of the server for tests; skip the test without one."""
    try:
        import psycopg  # noqa: F401, PLC0415  (an extra)
    except ModuleNotFoundError:
        absent(NAME, "psycopg is not installed")
    if url := os.environ.get(VARIABLE, ""):
        return url
    cluster = Cluster()
    if not cluster.is_running():
        absent(NAME, f"no server runs: `make postgres-up`, or {VARIABLE}=postgresql://…")
    return cluster.url


def expect_server() -> None:
    """Skip a module whose import needs the driver."""
    try:
        import psycopg  # noqa: F401, PLC0415  (an extra)
    except ModuleNotFoundError:
        pytest.skip(f"{NAME} is absent: psycopg is not installed", allow_module_level=True)


def statement(url: str, text: str, bound: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    """Run a statement outside dueline; return its rows."""
    import psycopg  # noqa: PLC0415  (an extra)

    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        cursor = connection.execute(text.encode(), bound)
        return cursor.fetchall() if cursor.description is not None else []


class Schemas:
    """Makes empty stores, each in a schema of its own."""

    def __init__(self, url: str) -> None:
        """Take the server's URL."""
        self._url = url
        self._made: list[str] = []

    def fresh(self) -> str:
        """Make a schema; answer the URL of its store, whose sessions have the schema's name."""
        name = f"t_{secrets.token_hex(6)}"
        url = f"{self._url}?application_name={name}&schema={name}"
        self._made.append(name)
        migrate(url)
        return url

    def open(self, url: str, *, clock: Clock | None = None) -> Store:
        """Open a store by its URL."""
        return open_store(url, clock=clock)

    def remove(self) -> None:
        """Drop what was made."""
        for start in range(0, len(self._made), AT_ONCE):
            names = ", ".join(self._made[start : start + AT_ONCE])
            statement(self._url, f"DROP SCHEMA IF EXISTS {names} CASCADE")
        self._made.clear()


@contextmanager
def database() -> Iterator[str]:
    """Make an empty database, answer its URL, and drop it."""
    url = server_url()
    name = f"own_{secrets.token_hex(6)}"
    statement(url, f"CREATE DATABASE {name}")
    yield f"{url.rpartition('/')[0]}/{name}"
    statement(url, f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def schemas() -> Iterator[Schemas]:
    """Make schemas on the server for tests, and drop them."""
    made = Schemas(server_url())
    try:
        yield made
    finally:
        made.remove()


def port_of_own(offset: int = 0) -> int:
    """Return a port for a server of this process: none that the system gives to connections."""
    return 20_000 + (os.getpid() + offset) % 12_000


@contextmanager
def server(folder: Path, port: int) -> Iterator[Cluster]:
    """Run a server of one's own, which a test may kill."""
    if os.environ.get(VARIABLE) and not Cluster().is_installed():
        absent(NAME, "the server's programs are not on this machine")
    cluster = Cluster(folder, port=port)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.remove()
