"""A cluster of three primaries, each with a replica."""

import time
from binascii import crc_hqx
from pathlib import Path
from typing import Final

from tools.redis.server import CACHE, HOST, RedisError, Server

FIRST_PORTS: Final = {"redis": 63850, "valkey": 63870}
PRIMARIES: Final = 3
SLOTS: Final = 16384
NODE_TIMEOUT_MS: Final = 1000
FORM_S: Final = 60.0
"""Maximum time in which the nodes agree on who has which slots, in seconds."""


class Slots:
    """A cluster on loopback: the second half of its servers begins as replicas of the first.

    Args:
      kind, fsync: As for a server.
      folder: The folder; by default under `.cache/redis` of the project.
      ports: Twelve ports: those of the servers, then those on which they talk to each other.

    Attributes:
      servers: The servers.
    """

    def __init__(
        self,
        kind: str = "redis",
        folder: Path | None = None,
        *,
        ports: list[int] | None = None,
        fsync: str = "everysec",
    ) -> None:
        folder = folder or CACHE / f"cluster-{kind}"
        count = 2 * PRIMARIES
        chosen = ports or list(range(FIRST_PORTS[kind], FIRST_PORTS[kind] + 2 * count))
        self._buses = dict(zip(chosen[:count], chosen[count:], strict=True))
        self.servers = [
            Server(
                kind,
                folder / f"node-{port}",
                port=port,
                fsync=fsync,
                settings={
                    "cluster-enabled": "yes",
                    "cluster-port": str(bus),
                    "cluster-node-timeout": str(NODE_TIMEOUT_MS),
                    "cluster-replica-validity-factor": "0",
                },
            )
            for port, bus in self._buses.items()
        ]

    @property
    def url(self) -> str:
        """The URL of the store."""
        places = ",".join(f"{HOST}:{server.port}" for server in self.servers)
        return f"redis+cluster://{places}"

    def start(self) -> None:
        """Start all, and wait until each slot has a primary with a replica."""
        is_new = not any(server.folder.exists() for server in self.servers)
        for server in self.servers:
            server.start()
        if is_new:
            self._form()
        self.wait()

    def is_ready(self) -> bool:
        """Return whether all servers run, all slots have a primary, and each has its replica."""
        return all(
            server.pid is not None
            and "cluster_state:ok" in "".join(server.lines("CLUSTER", "INFO"))
            and self._has_partner(server)
            for server in self.servers
        )

    def wait(self) -> None:
        """Wait until the cluster is ready."""
        give_up_s = time.monotonic() + FORM_S
        while not self.is_ready():
            if time.monotonic() > give_up_s:
                raise RedisError("The cluster is not complete.")
            time.sleep(0.02)

    def primary_of(self, slot: int) -> Server:
        """Return the server that most others name as the primary of a slot."""
        give_up_s = time.monotonic() + FORM_S
        while time.monotonic() < give_up_s:
            named = [port for server in self.servers if (port := _named(server, slot)) is not None]
            if named:  # else the primary has failed
                port = max(set(named), key=named.count)
                return next(server for server in self.servers if server.port == port)
            time.sleep(0.02)
        raise RedisError(f"No node is the primary of slot {slot}.")

    def pair(self, slot: int) -> tuple[Server, Server]:
        """Return the primary of a slot, and its replica."""
        primary = self.primary_of(slot)
        facts = f"master_port:{primary.port}\r"
        return primary, next(each for each in self.servers if facts in each.info("replication"))

    def fail_over(self, slot: int) -> Server:
        """Kill the primary of a slot, wait for the next one, and start the killed one again."""
        before = self.primary_of(slot)
        before.kill()
        give_up_s = time.monotonic() + FORM_S
        while (after := self.primary_of(slot)) is before and time.monotonic() < give_up_s:
            time.sleep(0.02)
        before.start()
        self.wait()
        return after

    def stop(self) -> None:
        """Stop all, if they run."""
        for server in self.servers:
            server.stop()

    def remove(self) -> None:
        """Stop all and delete their data."""
        for server in self.servers:
            server.remove()

    def _form(self) -> None:
        """Spread the slots over the first servers, and make the others their replicas."""
        primaries, replicas = self.servers[:PRIMARIES], self.servers[PRIMARIES:]
        for number, server in enumerate(self.servers):
            server.ask("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
        for number, server in enumerate(primaries):
            first, end = (SLOTS * place // PRIMARIES for place in (number, number + 1))
            server.ask("CLUSTER", "ADDSLOTSRANGE", str(first), str(end - 1))
        for server in self.servers[1:]:
            bus = self._buses[primaries[0].port]
            server.ask("CLUSTER", "MEET", HOST, str(primaries[0].port), str(bus))
        give_up_s = time.monotonic() + FORM_S
        for server, primary in zip(replicas, primaries, strict=True):
            node = primary.lines("CLUSTER", "MYID")[1]
            while server.ask("CLUSTER", "REPLICATE", node) != "+OK":  # it has not met it
                if time.monotonic() > give_up_s:
                    raise RedisError("The nodes of the cluster do not meet.")
                time.sleep(0.02)

    def _has_partner(self, server: Server) -> bool:
        """Return whether a primary has a replica that follows, or a replica its primary."""
        facts = server.info("replication")
        return "master_link_status:up" in facts or (
            "role:master" in facts and "state=online" in facts
        )


def slot_of(tag: str) -> int:
    """Return the slot of the keys with a hash tag."""
    return crc_hqx(tag.encode(), 0) % SLOTS


def _named(server: Server, slot: int) -> int | None:
    """Return the port of the primary of a slot, as a server says; None if it does not run."""
    for line in server.lines("CLUSTER", "NODES")[1:2]:
        for node in line.split("\n"):
            words = node.split()
            if len(words) > 8 and "master" in words[2] and "fail" not in words[2].split(","):
                for span in words[8:]:
                    first, _, last = span.partition("-")
                    if first.isdigit() and int(first) <= slot <= int(last or first):
                        return int(words[1].partition("@")[0].rpartition(":")[2])
    return None
