"""A Cassandra node for tests."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from tests.servers import absent, is_required
from tools.cassandra import cql
from tools.cassandra.jars import CACHE, CassandraError
from tools.cassandra.ring import Ring

HOST_VARIABLE = "DUELINE_TEST_CASSANDRA"
"""An address that answers already, such as 127.0.0.1."""

FIRST = 61  # the address 127.0.0.61, so that a developer's own ring may be running


@contextmanager
def node_url() -> Iterator[str]:
    """Give the address of a node that answers: `cassandra://host`, without a keyspace.

    One that the environment names, or one on 127.0.0.1. Where neither answers, the tests are
    skipped, unless DUELINE_REQUIRE names cassandra: then a node of the tests' own is started,
    which several test processes share and which is stopped by the process that started it.
    """
    if find_spec("cassandra") is None:
        absent("cassandra", "the driver is not installed: pip install 'dueline[cassandra]'")
    for host in (os.environ.get(HOST_VARIABLE), "127.0.0.1"):
        if host and cql.answers(host):
            yield f"cassandra://{host}"
            return
    if not is_required("cassandra"):
        absent("cassandra", "no node answers on 127.0.0.1; `make cassandra-up` starts one")
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
