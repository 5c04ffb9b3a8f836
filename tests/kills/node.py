"""The Cassandra node that the loop kills."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dueline.connect import open_store
from dueline.store import Migratable
from tools.cassandra.ring import Ring

FIRST = 81  # the address 127.0.0.81, beside a developer's own ring and that of the other tests
KEYSPACE = "kills"


class KilledNode:
    """One node whose commit log is synced before a write is acknowledged."""

    def __init__(self, ring: Ring) -> None:
        """Take a ring of one node that runs."""
        assert ring.commitlog == "batch"
        self._node = ring.nodes[0]
        self.url = ring.url(KEYSPACE)

    def kill(self) -> None:
        """Kill the node with SIGKILL, and start it again at once."""
        assert self._node.is_alive(), "the node ended by itself"
        self._node.kill()
        self._node.start()

    def wait_ready(self) -> None:
        """Wait until the node answers."""
        self._node.wait_ready()


@contextmanager
def killed_node(folder: Path) -> Iterator[KilledNode]:
    """Run a node of the loop's own, with an empty keyspace, in an empty folder."""
    with Ring(folder, first=FIRST, fast_start=True) as ring:
        node = KilledNode(ring)
        store = open_store(node.url)
        assert isinstance(store, Migratable)
        store.migrate()
        store.close()
        yield node
