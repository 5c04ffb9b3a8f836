"""Stores as one process reaches them: complete calls, or each step of them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from dueline.core.clock import Clock
from dueline.core.job import JobId, Token
from dueline.core.readback import WriteStatus
from dueline.core.store import Claimed, Lease, Move, Store, Verdict, Want, Write
from dueline.core.watermark import StreamWatermarks
from dueline.stores.lane_index import LaneIndex
from simulation.link import Link
from tests.harness.cluster import Cluster, Node
from tests.harness.row_changes import Change, Found
from tests.harness.stepped_store import SteppedMemoryStore, nothing

READS = frozenset({"find", "scan", "walk", "lanes", "read", "tail", "clock_us"})
WRITES = frozenset(
    {
        "add", "claim", "prefetch", "settle", "sweep", "commit", "append", "together",
        "close_until", "expire",
    }
)  # fmt: skip
DECIDING = frozenset({"claim", "prefetch", "settle", "commit"})
LANDING = WRITES - {"add", "together"}
"""Births may not happen once their callers gave up: where there are transactions a key that went
may be born again, so what was sent has to be known to be over before it is sent again."""

READ_STEPS = frozenset(
    {
        "page", "some", "places", "marks", "pointers", "read", "partitions", "tail", "mark_of",
        "lanes_with_rows",
    }
)  # fmt: skip
WRITE_STEPS = frozenset(
    {
        "index", "insert", "decide", "raise_marks", "put_pointer", "remove_pointer", "commit",
        "append", "raise_mark", "expire", "erase",
    }
)  # fmt: skip
DECIDING_STEPS = frozenset({"decide", "commit"})


class Wire:
    """A store behind a link, where each call is atomic, as with a database on one machine."""

    def __init__(self, store: Store, link: Link) -> None:
        """Take the store, and the link to it."""
        self.transactional = store.transactional
        self.scope = store.scope
        for name in READS | WRITES:
            setattr(self, name, partial(_carried, link, name, getattr(store, name)))


def _carried(
    link: Link, name: str, method: Callable[..., object], *args: object, **terms: object
) -> object:
    return link.call(
        name, partial(method, *args, **terms), lands=name in LANDING, decides=name in DECIDING
    )


def wired(store: Store, link: Link) -> Store:
    """Connect to a store by a link."""
    return cast("Store", Wire(store, link))


class SteppedNode(Node):
    """A cluster's primitives, each a call of its own on a link.

    written: the writes of each commit that was applied. Their versions do not say whose they
    are: that of a unique key is a job's id, whoever writes it.
    """

    def __init__(self, cluster: Cluster, link: Link) -> None:
        """Take the data, and the link to it."""
        super().__init__(cluster, nothing)
        self.written: list[Sequence[Write]] = []
        for name in READ_STEPS | WRITE_STEPS:
            setattr(self, name, partial(_stepped, link, name, getattr(self, name)))

    def commit(self, partition: str, writes: Sequence[Write], now_us: int) -> bool:
        """Pass on, and record what was applied."""
        held = super().commit(partition, writes, now_us)
        if held:
            self.written.append(writes)
        return held


def _stepped(
    link: Link, name: str, method: Callable[..., object], *args: object, **terms: object
) -> object:
    return link.call(
        name,
        partial(method, *args, **terms),
        lands=name in WRITE_STEPS,
        decides=name in DECIDING_STEPS,
    )


class SteppedClient(SteppedMemoryStore):
    """A client of a cluster: each step of each of its calls is a call on a link.

    It checks that no write that is in the cluster is reported as rejected (rule U5), which no
    client could check. presumed: outcomes, by job and token, that count as applied because their
    rows are deleted.
    """

    def __init__(self, cluster: Cluster, link: Link, clock: Clock) -> None:
        """Take the data, the link to it, and the store's clock."""
        super().__init__(clock, cluster=cluster)
        self._steps = SteppedNode(cluster, link)
        self._node = self._steps
        self._lane_index = LaneIndex(self._node)
        self._watermarks = StreamWatermarks(self._node)
        self._cluster = cluster
        self._link = link
        self.presumed: set[tuple[JobId, Token]] = set()

    def claim(self, wants: Sequence[Want], *, limit: int, lease: Lease) -> Claimed:
        """Pass on; see that every row which bears the token is answered."""
        claimed = super().claim(wants, limit=limit, lease=lease)
        told = {job.id for job in claimed.jobs}
        for want in wants:
            for job, _ in self._cluster.rows.get(want.lane, {}).values():
                if job.token == lease.token and job.id not in told:
                    self._link.deny(f"a claim brought nothing of {job.id.hex()}")
        return claimed

    def settle(self, verdicts: Sequence[Verdict]) -> Sequence[bool]:
        """Pass on; see that no verdict is refused whose token stands in its row."""
        held = super().settle(verdicts)
        for verdict, sure in zip(verdicts, held, strict=True):
            if not sure and isinstance(verdict, Move) and self._bears(verdict):
                self._link.deny(f"a move of {verdict.job.id.hex()} was refused")
        return held

    def commit(self, partition: str, writes: Sequence[Write]) -> bool:
        """Pass on; see that no commit is refused that was applied."""
        held = super().commit(partition, writes)
        mine = [written for written in self._steps.written if written is writes]
        self._steps.written = [written for written in self._steps.written if written is not writes]
        if mine and not held:
            self._link.deny(f"a commit to {partition} was refused")
        return held

    def _bears(self, move: Move) -> bool:
        return any(
            job.id == move.job.id and job.token == move.token
            for lane in {move.job.lane, move.to or move.job.lane}
            for job, _ in self._cluster.rows.get(lane, {}).values()
        )

    def _status(self, change: Change, row: Found | None, *, is_unsure: bool) -> WriteStatus:
        status = super()._status(change, row, is_unsure=is_unsure)
        if status is WriteStatus.HELD and row is None:
            self.presumed.add((change.key[1], change.token))
        return status


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
    """Connect to a cluster by a link, step by step."""
    return cast("Store", _Timed(SteppedClient(cluster, link, clock), link))
