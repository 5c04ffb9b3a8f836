"""Empty stores of each kind, by their addresses."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.cassandra_node import expect_node, keyspaces_on_a_node
from tests.harness.clocks import HandClock
from tests.harness.postgres import schemas
from tests.harness.redis import new_url
from tests.harness.stepped_store import nothing
from tests.harness.world import World, world_on

IN_MEMORY = [pytest.param(kind, marks=pytest.mark.memory) for kind in ("memory", "steps")]
"""With the one that is not transactional."""

WITH_ADDRESS = [
    *(
        pytest.param(kind, marks=getattr(pytest.mark, kind))
        for kind in ("sqlite", "postgres", "cassandra")
    ),
    pytest.param("redis", marks=[pytest.mark.redis, pytest.mark.long]),
]
"""Those that several processes can open."""

LONG_ON_CASSANDRA = [
    *WITH_ADDRESS[:2],
    WITH_ADDRESS[3],
    pytest.param("cassandra", marks=[pytest.mark.cassandra, pytest.mark.long]),
]


@contextmanager
def address(kind: str, folder: Path) -> Iterator[str]:
    """Make an empty store of a kind; give its address."""
    match kind:
        case "postgres":
            with schemas() as made:
                yield made.fresh()
        case "redis":
            yield new_url()
        case "cassandra":
            expect_node()
            with keyspaces_on_a_node(1) as keyspaces:
                yield keyspaces.fresh()
        case "sqlite":
            yield f"sqlite:///{folder}/jobs.db"
        case "memory":
            yield "memory://"
        case _:
            yield "memory://?transactional=off"


@contextmanager
def world_of(kind: str, folder: Path) -> Iterator[World]:
    """Make a world on an empty store of a kind, whose time is moved by hand."""
    clock = HandClock(time.time_ns() // 1000)  # a server expires records by its own
    match kind:
        case "postgres":
            with schemas() as made:
                store = made.open(made.fresh(), clock=clock)
                store.clock_us = clock.wall_us  # type: ignore[method-assign]
                yield World(store, clock)
                store.close()
        case "cassandra":
            expect_node()
            from tests.harness.cassandra_stage import HandTimedStore  # noqa: PLC0415  (needs the driver)

            with keyspaces_on_a_node(1) as keyspaces:
                _, session = keyspaces.fresh_session()
                yield World(HandTimedStore(session, clock, nothing, "calls", nothing), clock)
        case _:
            world = world_on(kind, folder)
            yield world
            world.store.close()
