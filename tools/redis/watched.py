"""A primary and a replica that sentinels watch."""

import time
from pathlib import Path
from typing import Final

from tools.redis.server import CACHE, HOST, RedisError, Server

SERVICE: Final = "dueline"
"""Name under which the sentinels know the primary."""

FIRST_PORT: Final = 63800
SENTINELS: Final = 3
FAILOVER_S: Final = 60.0
"""Maximum time in which the sentinels promote a replica, in seconds."""


class Sentinel(Server):
    """A sentinel, in a folder of its own.

    Args:
      kind, folder, port: As for a server.
      primary: Port of the primary at the start.
    """

    def __init__(self, kind: str, folder: Path, *, port: int, primary: int) -> None:
        super().__init__(kind, folder, port=port)
        self._primary = primary

    def start(self) -> None:
        """Start the sentinel, and wait until it answers; it keeps what it knows from before."""
        if self.is_ready():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "sentinel.conf"
        if not config.exists():
            config.write_text(
                f"port {self.port}\nbind {HOST}\ndir {self.folder}\ndaemonize yes\n"
                f"pidfile {self.folder / 'pid'}\nlogfile {self.log}\n"
                f"sentinel monitor {SERVICE} {HOST} {self._primary} 2\n"
                f"sentinel down-after-milliseconds {SERVICE} 1000\n"
                f"sentinel failover-timeout {SERVICE} 3000\n"
            )
        self._run([str(config), "--sentinel"])


class Watched:
    """Two servers, of which one is the primary, and three sentinels.

    Attributes:
      servers: The servers, by port.
      sentinels: The sentinels.
    """

    def __init__(
        self, kind: str = "redis", folder: Path | None = None, *, ports: list[int] | None = None
    ) -> None:
        folder = folder or CACHE / f"watched-{kind}"
        first, second, *others = ports or range(FIRST_PORT, FIRST_PORT + 2 + SENTINELS)
        self.servers = {
            port: Server(kind, folder / f"server-{port}", port=port) for port in (first, second)
        }
        self.sentinels = [
            Sentinel(kind, folder / f"sentinel-{port}", port=port, primary=first) for port in others
        ]

    @property
    def url(self) -> str:
        """The URL of the store."""
        places = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{places}/{SERVICE}/0"

    def start(self) -> None:
        """Start all, and wait until the replica has what the primary has."""
        first, second = self.servers.values()
        first.start()
        second.start()
        if not any(sentinel.folder.exists() for sentinel in self.sentinels):
            second.ask("REPLICAOF", HOST, str(first.port))
        for sentinel in self.sentinels:
            sentinel.start()
        self.wait()

    def primary(self) -> Server:
        """Return the server that most sentinels name."""
        named = [
            sentinel.lines("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
            for sentinel in self.sentinels
        ]
        ports = [int(lines[4]) for lines in named if len(lines) > 4]  # an array of two strings
        return self.servers[max(set(ports), key=ports.count)]

    def pair(self) -> tuple[Server, Server]:
        """Return the primary and its replica."""
        primary = self.primary()
        return primary, next(each for each in self.servers.values() if each is not primary)

    def wait(self) -> Server:
        """Wait until the primary has a replica and could be replaced by it; return it."""
        give_up_s = time.monotonic() + FAILOVER_S
        while time.monotonic() < give_up_s:
            primary = self.primary()
            others = [server for server in self.servers.values() if server is not primary]
            if (
                "role:master" in primary.info("replication")
                and all("master_link_status:up" in server.info("replication") for server in others)
                and all(self._sees_replica(sentinel) for sentinel in self.sentinels)
            ):
                return primary
            time.sleep(0.05)
        raise RedisError("The sentinels have not made a primary with a replica.")

    def fail_over(self) -> Server:
        """Kill the primary, wait for the next one, and start the killed one as its replica."""
        before = self.primary()
        before.kill()
        give_up_s = time.monotonic() + FAILOVER_S
        while (after := self.primary()) is before and time.monotonic() < give_up_s:
            time.sleep(0.05)
        # As a primary, it would accept writes until it is demoted.
        before.start_with("--replicaof", HOST, str(after.port))
        return self.wait()

    def stop(self) -> None:
        """Stop all, if they run."""
        for server in (*self.sentinels, *self.servers.values()):
            server.stop()

    def remove(self) -> None:
        """Stop all and delete their data."""
        for server in (*self.sentinels, *self.servers.values()):
            server.remove()

    def _sees_replica(self, sentinel: Sentinel) -> bool:
        """Return whether a sentinel would fail over now: it knows a replica and the others."""
        facts = sentinel.lines("SENTINEL", "MASTER", SERVICE)
        pairs = dict(zip(facts[2::4], facts[4::4], strict=False))
        return (
            pairs.get("flags") == "master"
            and pairs.get("num-slaves") == "1"
            and pairs.get("num-other-sentinels") == str(len(self.sentinels) - 1)
        )
