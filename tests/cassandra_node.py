"""A Cassandra node for tests."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from tests.servers import absent
from tools.cassandra import cql
from tools.cassandra.jars import CACHE, CassandraError
from tools.cassandra.ring import Ring

HOST_VARIABLE = "DUELINE_TEST_CASSANDRA"
"""An address that answers already, such as 127.0.0.1; a node is started where it is not set."""

FIRST = 61  # the address 127.0.0.61, so that a developer's own ring may be running


@contextmanager
def node_url() -> Iterator[str]:
    """Give the address of a node that answers: `cassandra://host`, without a keyspace.

    One that the environment names; one on 127.0.0.1; else one of the tests' own, which several
    test processes share and which is stopped by the process that started it.
    """
    if find_spec("cassandra") is None:
        absent("cassandra", "the driver is not installed: pip install 'dueline[cassandra]'")
    for host in (os.environ.get(HOST_VARIABLE), "127.0.0.1"):
        if host and cql.answers(host):
            yield f"cassandra://{host}"
            return
    ring = Ring(CACHE / "tests", fast_start=True, first=FIRST)
    has_run = ring.nodes[0].is_alive()
    try:
        ring.start()
    except CassandraError as error:
        absent("cassandra", str(error))
    try:
        yield f"cassandra://{ring.hosts[0]}"
    finally:
        if not has_run:
            ring.stop()
