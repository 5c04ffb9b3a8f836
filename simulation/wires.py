"""Stores as one process reaches them: whole calls on a wire, or each step of them."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from dueline.clock import Clock
from dueline.frontier import Frontier
from dueline.marks import LaneList
from dueline.store import Store
from dueline.stores.memory_cluster import Cluster, Node
from dueline.stores.memory_steps import SteppedMemoryStore, nothing
from simulation.link import Link

READS = frozenset({"find", "scan", "lanes", "read", "tail", "clock_us"})
WRITES = frozenset(
    {
        "add", "claim", "claim_ahead", "settle", "sweep", "commit", "append", "together",
        "close_until", "expire",
    }
)  # fmt: skip
LANDING = WRITES - {"add", "together"}
"""Births may not happen once their callers gave up: where there are transactions a key that went
may be born again, so what was sent has to be known to be over before it is sent again."""

READ_STEPS = frozenset(
    {"page", "some", "places", "marks", "pointers", "read", "tail", "mark_of", "lanes_held"}
)
WRITE_STEPS = frozenset(
    {
        "index", "insert", "decide", "raise_marks", "put_pointer", "remove_pointer", "commit",
        "append", "raise_mark", "expire",
    }
)  # fmt: skip


class Wire:
    """A store at the other end of a link: each call is one, as with a database of one machine."""

    def __init__(self, store: Store, link: Link) -> None:
        """Take the store, and the way to it."""
        self.transactional = store.transactional
        self.scope = store.scope
        for name in READS | WRITES:
            setattr(self, name, partial(_carried, link, name, getattr(store, name)))


def _carried(
    link: Link, name: str, method: Callable[..., object], *args: object, **terms: object
) -> object:
    return link.call(name, partial(method, *args, **terms), lands=name in LANDING)


def wired(store: Store, link: Link) -> Store:
    """Reach a store by a link."""
    return cast("Store", Wire(store, link))


class SteppedNode(Node):
    """A cluster's primitives, each a call of its own on a link."""

    def __init__(self, cluster: Cluster, link: Link) -> None:
        """Take the data, and the way to it."""
        super().__init__(cluster, nothing)
        for name in READ_STEPS | WRITE_STEPS:
            setattr(self, name, partial(_stepped, link, name, getattr(self, name)))


def _stepped(
    link: Link, name: str, method: Callable[..., object], *args: object, **terms: object
) -> object:
    return link.call(name, partial(method, *args, **terms), lands=name in WRITE_STEPS)


class SteppedClient(SteppedMemoryStore):
    """A client of a cluster: each step of each of its calls is a call on a link."""

    def __init__(self, cluster: Cluster, link: Link, clock: Clock) -> None:
        """Take the data, the way to it, and the store's clock."""
        super().__init__(clock, cluster=cluster)
        self._node = SteppedNode(cluster, link)
        self._lists = LaneList(self._node)
        self._frontier = Frontier(self._node)


class _Timed:
    """A stepped client whose clock is asked for on the link, too, by whoever stands above it."""

    def __init__(self, store: SteppedClient, link: Link) -> None:
        self._store = store
        self._link = link

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever else a store has)
        return getattr(self._store, name)

    def clock_us(self) -> int:
        return self._link.call("clock_us", self._store.clock_us, lands=False)


def stepped(cluster: Cluster, link: Link, clock: Clock) -> Store:
    """Reach a cluster by a link, step by step."""
    return cast("Store", _Timed(SteppedClient(cluster, link, clock), link))
