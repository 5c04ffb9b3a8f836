"""Events in a consumer's hands."""

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

    batch: how many events at most are handled at once. ttl_us: how long a shard stays held
    without a beat. park_after: how often an event may fail before it is set aside; None: it is
    tried for ever, and its shard waits.
    """

    batch: int = BATCH
    ttl_us: int = TTL_US
    park_after: int | None = None


@dataclass(slots=True)
class HeldShard:
    """A shard that is held, and how far it was read.

    handed: what was read and is not yet behind the checkpoint. careful_until: up to there events
    are handled one by one, since one of them failed. tries: how often the first one has failed.
    again_us: when it is tried again, on the machine's clock.
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


class BatchOwner(Protocol):
    """What a batch asks of the member that has it."""

    owner: object

    def is_sure(self, shard: int, epoch: int) -> bool:
        """Tell whether a shard is still held under an epoch, beyond doubt."""
        ...

    def wanted(self, batch: "Batch") -> Checkpoint:
        """Tell what the checkpoint is to be once a batch is handled."""
        ...


class Batch:
    """Events of one shard, in order, handed to a group's handler.

    shard: theirs. attempt: 1 at first. epoch: of the lease under which they are handled; larger
    than that of whoever held the shard before, so it fences writes to outside systems.
    """

    def __init__(
        self, owner: BatchOwner, rows: Sequence[Row], hold: HeldShard, *, key: str | None
    ) -> None:
        """Take what was read. key: whose parked events these are, None for new ones."""
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
        """The place of the last event: what a product of the batch is stored with."""
        return self.events[-1].position

    @property
    def is_held(self) -> bool:
        """Tell whether the shard is held beyond doubt."""
        return self._owner.is_sure(self.shard, self.epoch)

    def check(self) -> None:
        """Stop here if the shard may be another member's by now.

        Raises: LeaseLost: it may be; nothing that follows would count.
        """
        if not self.is_held:
            raise LeaseLost(f"The lease on shard {self.shard} is in doubt.")

    def commit(self, tx: object) -> None:
        """Move the checkpoint in a transaction of the application, with the product: exactly once.

        Raises: LeaseLost: another member holds the shard; the transaction must not be committed.
        """
        self.check()
        open_tx = expect_transaction(tx)
        store = open_tx.queues_of(self._owner.owner).engine.store
        self.wanted = self._owner.wanted(self)
        commit = checkpoint.commit_of(self.hold.present, self.wanted)
        if not store.commit(commit.partition, commit.writes):
            raise LeaseLost(f"Shard {self.shard} is another member's; nothing may be committed.")
        self.tx = open_tx
