"""The observed store of a stream's run, and its transactions."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from dueline.coordination.leases import ELECTIONS
from dueline.core.codec import decode
from dueline.core.errors import StoreUnavailable
from dueline.core.store import (
    NO_VERSION,
    Bindings,
    Commit,
    Group,
    Put,
    Record,
    Store,
    TransactionView,
    Write,
)
from dueline.log import trimming
from dueline.stores.memory.store import MemoryStore
from dueline.streams import groups
from simulation.clocks import StoreClock
from simulation.link import Link
from simulation.streams.ledger import Ledger, Place, Watched
from simulation.streams.scenario import GROUPS, STREAM, TASK_GROUP
from simulation.wires import stepped, wired
from simulation.world import World
from tests.harness.cluster import Cluster
from tests.harness.stepped_store import SteppedMemoryStore


class Data:
    """Stored data that a ledger observes. store: direct access, without a link."""

    def __init__(self, world: World, ledger: Ledger, *, is_stepped: bool) -> None:
        """Start empty."""
        clock = StoreClock(world)
        self.store: Store
        self.reach: Callable[[Link], Store]
        if is_stepped:
            cluster = Cluster()
            cluster.closed = ledger.marks()
            tables: dict[str, Any] = cluster.records
            shards: Mapping[Any, Container[tuple[int, bytes]]] = cluster.streams
            self.store = SteppedMemoryStore(clock, cluster=cluster)
            self.reach = lambda link: stepped(cluster, link, clock)
        else:
            memory = MemoryStore(clock)
            memory._closed = ledger.marks()  # noqa: SLF001  (it is watched where it is stored)
            tables = memory._records  # noqa: SLF001
            shards = memory._streams  # noqa: SLF001
            self.store = memory
            self.reach = lambda link: _transacting(memory, link)
        ledger.lies = lambda place: (
            (place.at_us, bytes.fromhex(place.id)) in shards.get((STREAM, place.shard), ())
        )
        tables[trimming.partition_of(STREAM)] = ledger.going()
        tables[groups.groups_at(STREAM)] = ledger.registered()
        tables[ELECTIONS] = ledger.leases(ELECTIONS)
        for group in (*GROUPS, TASK_GROUP):
            scope = groups.leases_at(STREAM, group)
            tables[scope] = ledger.leases(scope)
            tables[groups.checkpoints_at(STREAM, group)] = ledger.checkpoints(group)
            tables[products_at(group)] = Watched(partial(_produced, ledger, group))


def products_at(group: str) -> str:
    """Return the partition of a group's products, with a key for each position."""
    return f"products/{group}"


def product_key(place: Place) -> str:
    """Return the key of a position's product."""
    return f"{place.shard}/{place.at_us}/{place.id}"


def _produced(ledger: Ledger, group: str, key: str, put: Put) -> None:
    shard, at_us, row_id = key.split("/")
    series, number = decode(put.value, list[Any])
    ledger.produce(group, (series, number), Place(int(shard), int(at_us), row_id))


def _transacting(store: MemoryStore, link: Link) -> Store:
    """Connect to a store by a link, with transactions."""
    wire = wired(store, link)
    vars(wire)["transaction"] = partial(_transaction, store, link)
    return wire


class _Inside:
    """The view of a transaction: its writes take effect together at its end."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.transactional = store.transactional
        self.scope = store.scope
        self.commits: list[Commit] = []

    def commit(self, partition: str, writes: Sequence[Write]) -> bool:
        """Write if all expectations hold; they must also hold at the end."""
        for write in writes:
            if write.expect is not None and write.expect != self._version(partition, write.key):
                return False
        self.commits.append(Commit(partition, writes))
        return True

    def read(self, partition: str, *, after: str | None, limit: int) -> Sequence[Record]:
        """Read what was committed before."""
        return self._store.read(partition, after=after, limit=limit)

    def _version(self, partition: str, key: str) -> bytes:
        for record in self._store.read(partition, after=None, limit=1000):
            if record.key == key:
                return record.version
        return NO_VERSION


def _no_tables(_statement: str, _bindings: Bindings) -> list[tuple[Any, ...]]:
    raise AssertionError("this store has no tables")


def _is_blind(commit: Commit) -> bool:
    """Return whether a write has no expectation; those come last, so that none is undone."""
    return all(write.expect is None for write in commit.writes)


@contextmanager
def _transaction(store: Store, link: Link) -> Iterator[TransactionView]:
    """Begin, and commit at the end: two calls, each of which can fail."""
    link.call("begin", lambda: None, lands=False)
    inside = _Inside(store)
    yield TransactionView(cast("Store", inside), _no_tables)
    group = Group(commits=sorted(inside.commits, key=_is_blind))
    if link.call("commit a transaction", lambda: store.together([group])) != [True]:
        raise StoreUnavailable("another transaction came first; nothing was committed")
