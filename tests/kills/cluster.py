"""The PostgreSQL or Redis server that the loop strikes."""

import itertools
import math
import os
import random
import signal
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Final

from tests.harness.postgres import port_of_own, server, statement
from tests.harness.redis_cluster import SlotMove
from tests.harness.relay import Relay, free_port, relay_to
from tests.harness.servers import migrate
from tests.kills.processes import children_of, signal_all
from tests.kills.ring import Over
from tools.postgres import Cluster, PostgresError
from tools.redis import RedisError, Server, Slots, slot_of
from tools.redis.server import HOST

SILENT_S: Final = 0.5, 6.0
"""How long the server is away, or stands still."""

START_S_MAX: Final = 30.0
"""For so long a killed server's processes may hold its memory."""

MUTES: Final[Mapping[str, tuple[bool, bool]]] = {
    "mute": (True, True),
    "deaf": (True, False),
    "speechless": (False, True),
}
"""What is swallowed on connections that stay open: requests, answers."""

SLOW_S: Final = 0.3

SLOT: Final = slot_of("dueline")

COMMON: Final = ("killed", "paused", *MUTES, "mute to all", "slow")
"""What happens to every server."""


class StruckServer(ABC):
    """A server whose processes are killed, stopped, or made to stand still.

    Clients reach it by a relay, which swallows, delays or cuts what passes.

    Attributes:
      own_kinds: What happens to servers of this kind only.
      start_errors: What a start raises while the killed server still holds its port or memory.
    """

    own_kinds: ClassVar[tuple[str, ...]]
    start_errors: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, cluster: Cluster | Server, relay: Relay, seed: int) -> None:
        """Take a server that runs, the relay to it, and the seed of what happens to them."""
        self._cluster = cluster
        self._relay = relay
        self._begin(seed, COMMON)
        self.url = cluster.url
        self.urls = [relay.url(cluster.url)]

    def _begin(self, seed: int, common: Sequence[str]) -> None:
        self._choice = random.Random(seed)
        kinds = (*common, *self.own_kinds)
        self._kinds: Iterator[str] = itertools.cycle(self._choice.sample(kinds, len(kinds)))
        self._struck: Counter[str] = Counter()
        self._over: list[Over] = []

    @property
    def counts(self) -> Mapping[str, int]:
        """How often what happened to the server."""
        return {f"server {kind}": times for kind, times in sorted(self._struck.items())}

    def may_strike(self) -> bool:
        """Tell whether the next thing may happen: what has happened is over, and healed."""
        return not self._over and self._cluster.is_ready()

    def strike(self) -> None:
        """Let the next thing happen."""
        kind = next(self._kinds)
        self._struck[kind] += 1
        pid = self._cluster.pid
        assert pid is not None, "the server ended by itself"
        match kind:
            case "killed":
                self._cluster.kill()
                self._later(self._start)
            case "paused":
                pids = [pid, *children_of(pid)]
                signal_all(pids, signal.SIGSTOP)
                self._later(lambda: signal_all(pids, signal.SIGCONT))
            case "mute to all":
                self._relay.mute(new=True)
                self._later(self._relay.heal)
            case "slow":
                self._relay.delay_s = SLOW_S
                self._later(self._relay.heal)
            case _ if kind in MUTES:
                requests, answers = MUTES[kind]
                self._relay.mute(requests=requests, answers=answers)
                self._later(self._relay.heal)
            case _:
                self._strike(kind, pid)

    @abstractmethod
    def _strike(self, kind: str, pid: int) -> None:
        """Let a thing of `own_kinds` happen to the server, a process of this number."""

    def heal(self, now_s: float) -> None:
        """End what is over."""
        over = [strike for strike in self._over if strike.at_s <= now_s]
        self._over = [strike for strike in self._over if strike.at_s > now_s]
        for strike in over:
            strike.mend()

    def wait_ready(self) -> None:
        """Let everything be over, and wait until the server answers."""
        self.heal(math.inf)
        give_up_s = time.monotonic() + START_S_MAX
        while not self._cluster.is_ready():
            assert time.monotonic() < give_up_s, f"the server does not answer: {self._cluster.log}"
            time.sleep(0.1)

    def _later(self, mend: Callable[[], object]) -> None:
        self._over.append(Over(time.monotonic() + self._choice.uniform(*SILENT_S), mend))

    def _start(self) -> None:
        give_up_s = time.monotonic() + START_S_MAX
        while True:
            try:
                return self._cluster.start()
            except self.start_errors:  # other processes of the killed server have not ended yet
                if time.monotonic() > give_up_s:
                    raise
                time.sleep(0.1)


class StruckCluster(StruckServer):
    """A PostgreSQL server."""

    own_kinds = "restarted", "backend killed", "sessions ended", "cut after COMMIT"
    start_errors = (PostgresError,)

    def _strike(self, kind: str, pid: int) -> None:
        match kind:
            case "restarted":
                assert isinstance(self._cluster, Cluster)
                self._cluster.stop(self._choice.choice(["fast", "immediate"]))
                self._later(self._start)
            case "backend killed":  # the server ends all others, and recovers
                with suppress(ProcessLookupError):
                    os.kill(self._choice.choice(children_of(pid)), signal.SIGKILL)
            case "cut after COMMIT":
                self._relay.cut_after(b"COMMIT")
            case "sessions ended":
                statement(
                    self.url,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'dueline'",
                )


class StruckRedis(StruckServer):
    """A Redis server, with `appendfsync always`."""

    own_kinds = "restarted", "functions deleted", "clients killed", "full", "replica"
    start_errors = (RedisError,)

    def _strike(self, kind: str, pid: int) -> None:
        del pid
        server = self._cluster
        assert isinstance(server, Server)
        match kind:
            case "restarted":
                server.stop()
                self._later(self._start)
            case "functions deleted":
                server.ask("FUNCTION", "FLUSH")
            case "clients killed":
                server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            case "full":
                server.ask("CONFIG", "SET", "maxmemory", "1")
                self._later(lambda: server.ask("CONFIG", "SET", "maxmemory", "0"))
            case "replica":  # of a primary that does not exist
                server.ask("REPLICAOF", HOST, "1")
                self._later(lambda: server.ask("REPLICAOF", "NO", "ONE"))


class StruckSlots(StruckServer):
    """A cluster of Redis servers whose replicas confirm each write."""

    own_kinds = (
        "primary killed", "primary paused", "replica killed", "slot moved", "functions deleted",
        "clients killed",
    )  # fmt: skip
    start_errors = (RedisError,)

    def __init__(self, cluster: Slots, seed: int) -> None:
        self._slots = cluster
        self._begin(seed, ())
        self.url = f"{cluster.url}?wait=1"
        self.urls = [self.url]

    def may_strike(self) -> bool:
        return not self._over and self._slots.is_ready()

    def strike(self) -> None:
        kind = next(self._kinds)
        self._struck[kind] += 1
        pid = self._slots.primary_of(SLOT).pid
        assert pid is not None, "the server ended by itself"
        self._strike(kind, pid)

    def _strike(self, kind: str, pid: int) -> None:
        primary, replica = self._slots.pair(SLOT)
        match kind:
            case "primary killed":
                primary.kill()
                self._later(primary.start)
            case "replica killed":
                replica.kill()
                self._later(replica.start)
            case "primary paused":
                os.kill(pid, signal.SIGSTOP)
                self._later(lambda: os.kill(pid, signal.SIGCONT))
            case "slot moved":
                SlotMove(self._slots, SLOT).run()
            case "functions deleted":
                primary.ask("FUNCTION", "FLUSH")
            case "clients killed":
                primary.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def wait_ready(self) -> None:
        self.heal(math.inf)
        self._slots.wait()


@contextmanager
def struck_slots(folder: Path, seed: int) -> Iterator[StruckSlots]:
    """Run a cluster of Redis servers of the loop's own, in an empty folder."""
    cluster = Slots("redis", folder, ports=[free_port() for _ in range(12)])
    try:
        cluster.start()
        struck = StruckSlots(cluster, seed)
        try:
            yield struck
        finally:
            struck.heal(math.inf)
    finally:
        cluster.remove()


@contextmanager
def struck_redis(folder: Path, seed: int) -> Iterator[StruckRedis]:
    """Run a Redis server of the loop's own, in an empty folder."""
    server = Server("redis", folder, port=free_port(), fsync="always")
    server.start()
    try:
        with relay_to(server.url, server.port) as relay:
            struck = StruckRedis(server, relay, seed)
            try:
                yield struck
            finally:
                struck.heal(math.inf)
    finally:
        server.kill()


@contextmanager
def struck_cluster(folder: Path, seed: int) -> Iterator[StruckCluster]:
    """Run a server of the loop's own, with an empty schema, in an empty folder."""
    port = port_of_own()
    with server(folder, port) as cluster:
        migrate(cluster.url)
        with relay_to(cluster.url, port) as relay:
            struck = StruckCluster(cluster, relay, seed)
            try:
                yield struck
            finally:
                struck.heal(math.inf)
