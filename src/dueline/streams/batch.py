"""Batches of events that a consumer handles."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from dueline.core.clock import SECOND_US
from dueline.core.errors import LeaseLost
from dueline.core.store import Row
from dueline.jobs.transaction import Transaction, expect_transaction
from dueline.log import checkpoint
from dueline.log.checkpoint import Checkpoint, Place
from dueline.log.reader import ShardReader
from dueline.streams.dead_letters import Note
from dueline.streams.event import Event, Position

BATCH: Final = 500
TTL_US: Final = 10 * SECOND_US


class ConsumerOptions(NamedTuple):
    """How a group consumes.

    batch: maximum number of events that are handled at once. ttl_us: how long a shard stays held
    without a heartbeat. park_after: how often an event may fail before it is parked; None: it is
    retried for ever, and its shard waits. pattern: of the topics whose events are handled; None:
    all events of the stream are. is_trusted: the handler cannot kill its process, so that no
    trials are recorded.
    """

    batch: int = BATCH
    ttl_us: int = TTL_US
    park_after: int | None = None
    pattern: str | None = None
    is_trusted: bool = False


@dataclass(slots=True)
class HeldShard:
    """A shard that is held, and how far it was read.

    handed: rows that were read and are past the checkpoint. careful_until: events up to here are
    handled one by one, since one of them failed. tries: how often the first one has failed.
    again_us: when it is retried, on the machine's clock. skipped: rows that were read since the
    last batch and are of other topics. skipped_us: when the first of them was, on that clock.
    """

    epoch: int
    present: Checkpoint
    note: Note
    reader: ShardReader
    handed: list[Row] = field(default_factory=list)
    careful_until: Place | None = None
    tries: int = 0
    again_us: int = 0
    noted: tuple[Place, str] | None = None
    skipped: list[Row] = field(default_factory=list)
    skipped_us: int = 0


class BatchOwner(Protocol):
    """What a batch needs from the consumer that holds it."""

    owner: object

    def is_sure(self, shard: int, epoch: int) -> bool:
        """Return whether a shard is certainly still held under an epoch."""
        ...

    def wanted(self, batch: "Batch") -> Checkpoint:
        """Return the checkpoint to write once a batch is handled."""
        ...


class Batch:
    """Events of one shard, in order, for the handler of a group.

    shard: of all events. attempt: 1 for the first. epoch: of the lease under which they are
    handled; larger than the epoch of every earlier holder, so it fences writes to other systems.

    key: the parked key of these events, None for new ones.
    """

    def __init__(
        self, owner: BatchOwner, rows: Sequence[Row], hold: HeldShard, *, key: str | None
    ) -> None:
        self.events = [Event(row) for row in rows]
        self.shard = rows[0].shard
        self.epoch = hold.epoch
        self.attempt = hold.tries + 1
        self.rows = rows
        self.hold = hold
        self.key = key
        self.tx: Transaction | None = None
        self.wanted: Checkpoint | None = None
        self._owner = owner

    def __repr__(self) -> str:
        return f"<Batch of {len(self.events)} in shard {self.shard}>"

    @property
    def position(self) -> Position:
        """The position of the last event: store it with what the batch produces."""
        return self.events[-1].position

    @property
    def is_held(self) -> bool:
        """Whether the shard is certainly held."""
        return self._owner.is_sure(self.shard, self.epoch)

    def check(self) -> None:
        """Raise if another member may hold the shard by now.

        Raises: LeaseLost: it may be; the result of the batch would not count.
        """
        if not self.is_held:
            raise LeaseLost(f"The lease on shard {self.shard} is no longer certain.")

    def commit(self, tx: object) -> None:
        """Move the checkpoint in your transaction, with its writes: exactly-once processing.

        Raises: LeaseLost: another member holds the shard; do not commit the transaction.
        """
        self.check()
        open_tx = expect_transaction(tx)
        store = open_tx.queues_of(self._owner.owner).engine.store
        self.wanted = self._owner.wanted(self)
        commit = checkpoint.commit_of(self.hold.present, self.wanted)
        if not store.commit(commit.partition, commit.writes):
            raise LeaseLost(f"Another member holds shard {self.shard}; do not commit.")
        self.tx = open_tx
