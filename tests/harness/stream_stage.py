"""A stream, its members, a clock that is moved by hand."""

from collections.abc import Iterator, Mapping
from typing import Any

from dueline.core.clock import SECOND_US
from dueline.core.queue_settings import StreamSettings
from dueline.core.store import Store
from dueline.streams.batch import Batch, ConsumerOptions
from dueline.streams.consumer import Consumer
from dueline.streams.stream import Stream
from dueline.tasks.handler import Handler
from tests.harness.clocks import HandClock
from tests.harness.queues import queues_on

TTL_US = 8 * SECOND_US
BEAT_S = TTL_US / SECOND_US / 4
GUARD_S = 0.3


class Stage:
    """One store, as one process sees it; the host of its streams."""

    tasks: Mapping[str, Handler] = {}

    def __init__(self, store: Store, clock: HandClock) -> None:
        """Take the store, and the clock that it reads."""
        self.store = store
        self.clock = clock
        self.queues = queues_on(store, clock)
        self._made = 0

    def stream(self, shards: int | None = 3, *, keep_us: int | None = None) -> Stream:
        """Make a handle on the stream."""
        return Stream(
            lambda: self.queues.engine, "orders", owner=self, shards=shards, keep_us=keep_us
        )

    def member(
        self,
        name: str = "",
        *,
        shards: int | None = 3,
        group: str = "billing",
        batch: int = 10,
        park_after: int | None = None,
        from_us: int = 0,
    ) -> Consumer:
        """Make a member that has not looked yet."""
        self._made += 1
        return Consumer(
            self.queues.engine,
            self.clock,
            name or f"member {self._made}",
            stream="orders",
            settings=self.stream(None).look if shards is None else lambda: StreamSettings(shards),
            group=group,
            terms=ConsumerOptions(batch, TTL_US, park_after),
            owner=self,
            from_us=from_us,
        )

    def settle_down(self, *members: Consumer, beats: int = 12) -> None:
        """Let members beat for a while."""
        for _ in range(beats):
            for member in members:
                member.balance()
            self.clock.advance(BEAT_S)

    def later(self) -> None:
        """Let the guard pass, so that all there is can be read."""
        self.clock.advance(GUARD_S)


def batches(member: Consumer) -> Iterator[Batch]:
    """Read and commit all there is in the shards of a member."""
    for shard in member.held:
        while (batch := member.poll(shard)) is not None:
            yield batch
            member.commit(batch)


def values(member: Consumer) -> list[Any]:
    """Read the values of all there is, and commit."""
    return [event.value for batch in batches(member) for event in batch.events]


def run(stage: Stage, member: Consumer, bad: set[Any], *, rounds: int = 60) -> list[Any]:
    """Handle what comes, but for values that fail; answer what was handled, in order."""
    handled: list[Any] = []
    for _ in range(rounds):
        batch = member.poll(0)
        if batch is None:
            stage.clock.advance(2)
            member.balance()
            continue
        if any(event.value in bad for event in batch.events):
            member.fail(batch)
        else:
            handled += [event.value for event in batch.events]
            member.commit(batch)
    return handled
