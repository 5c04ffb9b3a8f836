"""The PostgreSQL server that the loop strikes."""

import itertools
import math
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.harness.postgres import port_of_own, server, statement
from tests.harness.relay import Relay, relay_to
from tests.harness.servers import migrate
from tests.kills.processes import children_of, signal_all
from tests.kills.ring import Over
from tools.postgres import Cluster, PostgresError

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

KINDS: Final = (
    *("killed", "restarted", "backend killed", "paused", "sessions ended"),
    *(*MUTES, "mute to all", "slow", "cut after COMMIT"),
)


class StruckCluster:
    """A server whose processes are killed, stopped, or made to stand still.

    Clients reach it by a relay, which swallows, delays or cuts what passes.
    """

    def __init__(self, cluster: Cluster, relay: Relay, seed: int) -> None:
        """Take a server that runs, the relay to it, and the seed of what happens to them."""
        self._cluster = cluster
        self._relay = relay
        self._choice = random.Random(seed)
        self._kinds: Iterator[str] = itertools.cycle(self._choice.sample(KINDS, len(KINDS)))
        self._struck: Counter[str] = Counter()
        self._over: list[Over] = []
        self.url = cluster.url
        self.urls = [relay.url(cluster.url)]

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
            case "restarted":
                self._cluster.stop(self._choice.choice(["fast", "immediate"]))
                self._later(self._start)
            case "backend killed":  # the server ends all others, and recovers
                with suppress(ProcessLookupError):
                    os.kill(self._choice.choice(children_of(pid)), signal.SIGKILL)
            case "paused":
                some = [pid, *children_of(pid)]
                signal_all(some, signal.SIGSTOP)
                self._later(lambda: signal_all(some, signal.SIGCONT))
            case "mute to all":
                self._relay.mute(new=True)
                self._later(self._relay.heal)
            case "slow":
                self._relay.delay_s = SLOW_S
                self._later(self._relay.heal)
            case "cut after COMMIT":
                self._relay.cut_after(b"COMMIT")
            case _ if kind in MUTES:
                requests, answers = MUTES[kind]
                self._relay.mute(requests=requests, answers=answers)
                self._later(self._relay.heal)
            case "sessions ended":
                statement(
                    self.url,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'dueline'",
                )

    def heal(self, now_s: float) -> None:
        """End what is over."""
        over = [one for one in self._over if one.at_s <= now_s]
        self._over = [one for one in self._over if one.at_s > now_s]
        for one in over:
            one.mend()

    def wait_ready(self) -> None:
        """Let everything be over, and wait until the server answers."""
        self.heal(math.inf)
        give_up_s = time.monotonic() + START_S_MAX
        while not self._cluster.is_ready():
            assert time.monotonic() < give_up_s, f"the server does not answer: {self._cluster.log}"
            time.sleep(0.1)

    def _later(self, mend: Callable[[], None]) -> None:
        self._over.append(Over(time.monotonic() + self._choice.uniform(*SILENT_S), mend))

    def _start(self) -> None:
        give_up_s = time.monotonic() + START_S_MAX
        while True:
            try:
                return self._cluster.start()
            except PostgresError:  # other processes of the killed server have not ended yet
                if time.monotonic() > give_up_s:
                    raise
                time.sleep(0.1)


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
