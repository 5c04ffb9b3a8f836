"""Servers that fail over, and slots of a cluster that move to another node, key by key."""

from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

import redis

from tools.redis import Server, Slots
from tools.redis.server import HOST

PART = 1000
"""Number of keys that are moved at once."""


class Watching(NamedTuple):
    """Servers of which one is killed in each failover.

    Attributes:
      url: The URL of the store.
      pair: Returns the primary and its replica.
      fail_over: Kills the primary, and returns when it is the replica of the next one.
      may_go_back: Whether the killed one may become the primary again, without what was written
        meanwhile: sentinels that do not agree yet name it when it comes back.
    """

    url: str
    pair: Callable[[], tuple[Server, Server]]
    fail_over: Callable[[], object]
    may_go_back: bool


class SlotMove:
    """The move of a slot from its primary to another one.

    Args:
      cluster: The cluster.
      slot: The slot.
    """

    def __init__(self, cluster: Slots, slot: int) -> None:
        self._cluster = cluster
        self._slot = slot
        self.source = cluster.primary_of(slot)
        self.target = next(
            server
            for server in cluster.servers
            if server is not self.source and "role:master" in server.info("replication")
        )

    def begin(self) -> None:
        """Tell both nodes."""
        source, target = (_id_of(server) for server in (self.source, self.target))
        slot = str(self._slot)
        assert self.target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source) == "+OK"
        assert self.source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target) == "+OK"

    def move_keys(self, *, but: bytes = b"") -> None:
        """Move the keys, except those that end so."""
        with closing(redis.Redis(port=self.source.port)) as client:
            run: Any = client.execute_command
            count = run("CLUSTER", "COUNTKEYSINSLOT", self._slot)
            keys = run("CLUSTER", "GETKEYSINSLOT", self._slot, count)
            moved = [key for key in keys if not (but and key.endswith(but))]
            for first in range(0, len(moved), PART):
                part = moved[first : first + PART]
                run("MIGRATE", HOST, self.target.port, "", 0, 5000, "KEYS", *part)

    def end(self) -> None:
        """Make the other node the primary of the slot."""
        target = _id_of(self.target)
        for server in (self.target, self.source):
            server.ask("CLUSTER", "SETSLOT", str(self._slot), "NODE", target)

    def run(self) -> None:
        """Move the slot at once."""
        self.begin()
        self.move_keys()
        self.end()


def _id_of(server: Server) -> str:
    return server.lines("CLUSTER", "MYID")[1]
