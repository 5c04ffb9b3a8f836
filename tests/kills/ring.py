"""The Cassandra ring that the loop strikes.

Processes that are killed or stand still, and lines that are cut: to a node alone, or to one of
three, of which a quorum then goes on, or to two or all, when nothing can go on until they are back.
"""

import itertools
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.harness.servers import migrate
from tools.cassandra.config import REQUEST_THREADS
from tools.cassandra.jars import CASSANDRA_VERSION, CassandraError
from tools.cassandra.line import Line
from tools.cassandra.node import Node
from tools.cassandra.ring import Ring

FIRST: Final = 81  # the address 127.0.0.81, beside a developer's own ring and that of the tests
KEYSPACE: Final = "kills"

TIMEOUT_S: Final = 4.0
"""How long the loop's processes wait for an answer: what stands still for longer is met."""

SILENT_S: Final = 2.0, 15.0
"""How long a node is away, or a line is cut: both sides of the time until it is held to be down."""

RAGGED_S: Final = 0.05, 0.4
"""How long a ragged line is cut, and is whole, in turn."""

ALONE: Final = ("killed", "paused")
OF_THREE: Final = ("killed", "paused", "two paused", "all killed")
OF_LINES: Final = ("cut off", "ragged line")
"""What may happen to a node alone, to three, and to their lines where these can be cut."""


class Silence(NamedTuple):
    """How nodes are struck.

    least_s, most_s: how long a node is away, or a line is cut. timeout_s: how long the loop's
    processes wait for an answer. version: of the server. threads: how many requests a node
    serves at once; others wait in its queue. kinds: what happens; empty for everything. in_turn:
    what happens lasts its time, before the next thing does.
    """

    least_s: float = SILENT_S[0]
    most_s: float = SILENT_S[1]
    timeout_s: float = TIMEOUT_S
    version: str = CASSANDRA_VERSION
    threads: int = REQUEST_THREADS
    kinds: Sequence[str] = ()
    in_turn: bool = False


class Over(NamedTuple):
    """When something is over (monotonic), and what ends it."""

    at_s: float
    mend: Callable[[], object]


class StruckRing:
    """A ring of one or three nodes whose commit log is synced before a write is acknowledged."""

    def __init__(self, ring: Ring, seed: int, silence: Silence) -> None:
        """Take a ring that runs, the seed of what happens to it, and how."""
        assert ring.commitlog == "batch"
        self._nodes: Sequence[Node] = ring.nodes
        self._lines = {node.host: Line(node.host) for node in ring.nodes}
        self._choice = random.Random(seed)
        kinds = silence.kinds or (ALONE if len(ring.nodes) == 1 else OF_THREE + _of_lines())
        self._kinds: Iterator[str] = itertools.cycle(self._choice.sample(kinds, len(kinds)))
        self._silence = silence
        self._struck: Counter[str] = Counter()
        self._over: list[Over] = []
        self._ragged: tuple[Line, float] | None = None
        self.urls = [
            f"{ring.url(KEYSPACE, node=node.settings.number)}&timeout={silence.timeout_s:g}s"
            for node in ring.nodes
        ]
        self.url = self.urls[0]

    @property
    def counts(self) -> Mapping[str, int]:
        """How often what happened to the server."""
        return {f"server {kind}": times for kind, times in sorted(self._struck.items())}

    def may_strike(self) -> bool:
        """Tell whether the next thing may happen."""
        return not (self._silence.in_turn and self._over)

    def strike(self) -> None:
        """Let the next thing happen, and what has happened before be over."""
        self.heal(math.inf)
        kind = next(self._kinds)
        self._struck[kind] += 1
        for_s = self._choice.uniform(self._silence.least_s, self._silence.most_s)
        first, *others = self._choice.sample(self._nodes, len(self._nodes))
        match kind:
            case "killed":
                self._kill(first, for_s=for_s if len(self._nodes) > 1 else 0.0)
            case "all killed":
                for node in self._nodes:
                    self._kill(node, for_s=0.0)
            case "paused":
                self._pause(first, for_s)
            case "two paused":
                self._pause(first, for_s)
                self._pause(others[0], for_s)
            case "cut off":
                self._cut(first, for_s)
            case "ragged line":
                self._cut(first, for_s)
                self._ragged = (self._lines[first.host], 0.0)

    def heal(self, now_s: float) -> None:
        """End what is over; go on with a line that is ragged."""
        over = [strike for strike in self._over if strike.at_s <= now_s]
        self._over = [strike for strike in self._over if strike.at_s > now_s]
        for strike in over:
            strike.mend()
        if self._ragged is not None and self._over:
            line, flips_s = self._ragged
            if flips_s <= now_s:
                line.turn()
                self._ragged = (line, now_s + self._choice.uniform(*RAGGED_S))
        elif self._ragged is not None:
            self._ragged = None

    def wait_ready(self) -> None:
        """Let everything be over, and wait until all nodes answer."""
        self.heal(math.inf)
        for node in self._nodes:
            node.wait_ready()

    def _kill(self, node: Node, *, for_s: float) -> None:
        assert node.is_alive(), node.explain("ended by itself")
        node.kill()
        self._over.append(Over(time.monotonic() + for_s, node.start))

    def _pause(self, node: Node, for_s: float) -> None:
        node.pause()
        self._over.append(Over(time.monotonic() + for_s, node.resume))

    def _cut(self, node: Node, for_s: float) -> None:
        node.wait_ready()  # one that is starting could not listen on an address that is cut
        line = self._lines[node.host]
        line.cut()
        self._over.append(Over(time.monotonic() + for_s, line.mend))


def _of_lines() -> tuple[str, ...]:
    """Give what may happen to lines; nothing, and the reason is told, where none can be cut."""
    line = Line(f"127.0.0.{FIRST - 1}")
    try:
        line.cut()
    except CassandraError as error:
        print(f"SKIPPED: no line is cut: {error}")  # noqa: T201
        return ()
    line.mend()
    return OF_LINES


@contextmanager
def struck_ring(
    folder: Path, *, nodes: int, seed: int, centres: bool, silence: Silence
) -> Iterator[StruckRing]:
    """Run a ring of the loop's own, with an empty keyspace, in an empty folder.

    Args: centres: each node stands in a data centre of its own.
    """
    ring = Ring(
        folder,
        nodes=nodes,
        first=FIRST,
        fast_start=True,
        centres=centres,
        version=silence.version,
        threads=silence.threads,
    )
    with ring:
        struck = StruckRing(ring, seed, silence)
        migrate(struck.url)
        try:
            yield struck
        finally:
            struck.heal(math.inf)
