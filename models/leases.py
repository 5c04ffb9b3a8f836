"""A lease in a record, and a checkpoint that only moves forward.

Two consumers share a record with the holder of the shard, its epoch and its checkpoint. A consumer
that believes that the holder is gone takes over (clocks and pauses allow this at any time). A
holder reads two rows after the checkpoint, handles them in any order, and stores product and
checkpoint together. A commit may have no response: then it arrives later, or never.

Guarantees: an epoch has one holder, the checkpoint never moves back, each row's product exists
once, and no row is skipped.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

ROWS = 2
GRANTS_MAX = 3


class Record(NamedTuple):
    """Holder of the shard; version: the last writer, and the number of its write."""

    epoch: int = 0
    holder: int = -1
    checkpoint: int = 0
    version: tuple[int, int] = (-1, 0)


class Commit(NamedTuple):
    """A conditional write; done: rows whose products are stored with it."""

    expect: tuple[int, int]
    record: Record
    done: tuple[int, ...] = ()


class Consumer(NamedTuple):
    """A consumer: its next step, its copy of the record, handled rows, number of writes."""

    at: str = "idle"
    known: Record | None = None
    handled: frozenset[int] = frozenset()
    asked: Commit | None = None
    writes: int = 0


class State(NamedTuple):
    """The record, the consumers, a pending commit, products by row, holders by epoch."""

    record: Record
    consumers: tuple[Consumer, ...]
    sent: Commit | None
    products: tuple[int, ...]
    granted: tuple[tuple[int, int], ...]
    unknowns: int
    expiries: int
    wrong: str = ""


@dataclass(frozen=True)
class Leases:
    """Rules; a mutant leaves out one."""

    grants_raise_the_epoch: bool = True  # rule L1
    epochs_never_expire: bool = True  # rule L1
    grants_by_version: bool = True  # rule L1
    checkpoints_by_epoch: bool = True  # rule L2
    never_sends_again: bool = True  # rule U1
    waits_for_lower_rows: bool = True  # rule L5
    stores_products_with_it: bool = True  # rule L5

    def start(self) -> State:
        """Return a shard without a holder."""
        return State(Record(), (Consumer(),) * 2, None, (0,) * ROWS, (), 1, 1)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a commit arrive, the record expire, or a consumer continue."""
        if state.sent:
            held, there = self._apply(state._replace(sent=None), state.sent)
            if held:
                yield "a late commit arrives", there
        if not self.epochs_never_expire and state.expiries and state.record.epoch:
            expired = Record(checkpoint=state.record.checkpoint)
            yield "the record expires", state._replace(record=expired, expiries=0)
        for number, consumer in enumerate(state.consumers):
            for words, there, after in self._consume(state, consumer, number):
                consumers = put(there.consumers, number, after)
                yield f"consumer {number + 1} {words}", there._replace(consumers=consumers)

    def fault(self, state: State) -> str:
        """Check products, epochs and the checkpoint."""
        if state.wrong:
            return state.wrong
        if any(count > 1 for count in state.products):
            return "a product exists twice"
        if any(not count for count in state.products[: state.record.checkpoint]):
            return "a row is skipped"
        if len({epoch for epoch, _ in state.granted}) < len(state.granted):
            return "an epoch has two holders"
        return ""

    def _consume(
        self, state: State, consumer: Consumer, number: int
    ) -> Iterator[tuple[str, State, Consumer]]:
        idle = Consumer(writes=consumer.writes)
        match consumer.at:
            case "idle":
                read = consumer._replace(at="take", known=state.record)
                yield "reads the record", state, read
            case "take" if len(state.granted) < GRANTS_MAX:
                yield from self._send(
                    state, consumer, self._grant(consumer, number), "takes the shard"
                )
            case "ask":
                assert consumer.asked
                if state.record.version == consumer.asked.record.version:
                    held = consumer._replace(at="hold", known=consumer.asked.record, asked=None)
                    yield "reads back: it is mine", state, held
                elif self.never_sends_again:
                    yield "reads back: it is not mine", state, idle
                else:
                    version = state.record.version
                    again = consumer.asked._replace(expect=version)
                    yield from self._send(state, consumer, again, "sends it again")
            case "hold":
                yield from self._hold(state, consumer, number)

    def _grant(self, consumer: Consumer, number: int) -> Commit:
        assert consumer.known
        known = consumer.known
        epoch = known.epoch + self.grants_raise_the_epoch
        version = (number, consumer.writes)
        return Commit(known.version, Record(epoch, number, known.checkpoint, version))

    def _hold(
        self, state: State, consumer: Consumer, number: int
    ) -> Iterator[tuple[str, State, Consumer]]:
        """Handle a row, or store the checkpoint."""
        assert consumer.known
        known = consumer.known
        for row in range(known.checkpoint, ROWS):
            if row not in consumer.handled:
                yield (
                    f"handles row {row}",
                    state,
                    consumer._replace(handled=consumer.handled | {row}),
                )
        reached = known.checkpoint
        while reached in consumer.handled:
            reached += 1
        if not self.waits_for_lower_rows:
            reached = max(consumer.handled, default=reached - 1) + 1
        if reached > known.checkpoint:
            done = tuple(
                row for row in sorted(consumer.handled) if known.checkpoint <= row < reached
            )
            record = known._replace(checkpoint=reached, version=(number, consumer.writes))
            if not self.stores_products_with_it:
                state = _stored(state, done)
                done = ()
            commit = Commit(known.version, record, done)
            yield from self._send(state, consumer, commit, f"stores checkpoint {reached}")

    def _send(
        self, state: State, consumer: Consumer, commit: Commit, words: str
    ) -> Iterator[tuple[str, State, Consumer]]:
        written = consumer._replace(writes=consumer.writes + 1)
        held, there = self._apply(state, commit)
        after = Consumer(writes=written.writes)
        if held:
            left = frozenset(row for row in consumer.handled if row >= commit.record.checkpoint)
            after = written._replace(at="hold", known=commit.record, handled=left, asked=None)
        yield words, there, after
        if state.unknowns and not state.sent:
            sent = state._replace(sent=commit, unknowns=0)
            asks = written._replace(at="ask", asked=commit)
            yield f"{words}, without a response", sent, asks

    def _apply(self, state: State, commit: Commit) -> tuple[bool, State]:
        """Apply a commit if the record is as expected; record faults."""
        before, after = state.record, commit.record
        is_grant = not commit.done and after.checkpoint == before.checkpoint
        is_same = before.version == commit.expect
        by_version = self.grants_by_version if is_grant else self.checkpoints_by_epoch
        if by_version and not is_same:
            return False, state
        there = _stored(state._replace(record=after), commit.done)
        if (after.epoch, after.holder) not in state.granted or is_grant:
            there = there._replace(granted=(*state.granted, (after.epoch, after.holder)))
        if after.checkpoint < before.checkpoint:
            there = there._replace(wrong="the checkpoint moves back")
        elif after.epoch < before.epoch:
            there = there._replace(wrong="an epoch decreases")
        return True, there


def _stored(state: State, rows: tuple[int, ...]) -> State:
    products = list(state.products)
    for row in rows:
        products[row] += 1
    return state._replace(products=tuple(products))


MODELS = {"two consumers": Leases()}
MUTANTS = {
    "a grant keeps the epoch": Leases(grants_raise_the_epoch=False),
    "the epoch expires": Leases(epochs_never_expire=False),
    "an unconditional grant": Leases(grants_by_version=False),
    "an unconditional checkpoint": Leases(checkpoints_by_epoch=False),
    "a conditional commit is sent again": Leases(never_sends_again=False),
    "the checkpoint passes unfinished rows": Leases(waits_for_lower_rows=False),
    "products are stored before the checkpoint": Leases(stores_products_with_it=False),
}
