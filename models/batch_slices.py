"""Producers that store the items of one batch, slice by slice (rules I1 and I2).

Two programs map the same items under one name, on a store without transactions. Each item is a
slice of its own. A producer reads the head, completes the slice that the head may still carry, and
replaces the head that it has read by one that carries the next row. Then it stores the key and the
row, and closes the head. Workers run what is stored. A producer may be killed and run again, a
write may have no response and arrive at any later time, and days may pass, after which the store
has forgotten which rows it deleted (C5).

With keys, the programs have the items in different orders, and skip those whose keys are stored.

Guarantees: each item is one job, runs once, and is there once a program was answered.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

ITEMS = 2
STARTS = frozenset({"start", "done"})
"""Steps before which a producer has nothing under way that depends on what it has read."""


class Head(NamedTuple):
    """The head: the items that it counts, its version, and whether it carries the last of them."""

    items: tuple[int, ...] = ()
    version: tuple[int, ...] = ()
    is_open: bool = False


class Row(NamedTuple):
    """The row of a position: "none", "there", "over" (ended) or "gone".

    has_end: its end is recorded. is_known: the store knows that it deleted the row. runs: how often
    it ran. by: the process that inserted it, if ids are not positions.
    """

    at: str = "none"
    has_end: bool = False
    is_known: bool = False
    runs: int = 0
    by: int = -1


class Producer(NamedTuple):
    """A producer: its next step, the head that it read or wrote, and the version that it read."""

    at: str = "start"
    head: Head = Head()
    read: tuple[int, ...] = ()


class Write(NamedTuple):
    """A write without a response: "open", "insert" or "close"."""

    kind: str
    number: int
    expect: tuple[int, ...]
    head: Head


class State(NamedTuple):
    """The head, rows and keys by position, producers, and the write that has no response.

    faults: how often the first producer may be killed, or get no response. The other one differs
    from it in nothing.
    """

    head: Head = Head()
    rows: tuple[Row, ...] = (Row(),) * ITEMS
    keys: tuple[int, ...] = (-1,) * ITEMS
    producers: tuple[Producer, ...] = (Producer(), Producer())
    sent: Write | None = None
    faults: int = 1
    days: int = 1


@dataclass(frozen=True)
class Slices:
    """Rules, of which a mutant leaves out one."""

    has_keys: bool = False
    head_is_conditional: bool = True  # rule I1
    ids_are_positions: bool = True  # rule I1
    completes_what_is_left: bool = True  # rule I2
    closes_last: bool = True  # rule I2
    skips_what_has_ended: bool = True  # rule I2
    keys_are_those_of_the_head: bool = True  # rule I2: not of a slice that is not whole yet
    ends_come_first: bool = True  # rule I3: the end is stored before the row goes
    deleted_rows_stay_deleted: bool = True  # rule B1

    def start(self) -> State:
        """Return a batch without items."""
        return State()

    def fault(self, state: State) -> str:
        """Find an item that is lost, or is more than one job."""
        if any(row.runs > 1 for row in state.rows):
            return "an item ran twice"
        if len(set(state.head.items)) < len(state.head.items):
            return "an item has two positions"
        if any(producer.at == "done" for producer in state.producers):
            if len(state.head.items) < ITEMS:
                return "the head counts too few items"
            if any(row.at == "none" for row in state.rows):
                return "an item was acknowledged and is lost"
        return ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a write arrive, days pass, a worker run a job, or a producer go on."""
        if state.sent is not None:
            kind = state.sent.kind
            there, _ = self._written(state._replace(sent=None), state.sent)
            yield f"a late {kind} arrives", there
            yield f"a late {kind} is lost", state._replace(sent=None)
        is_quiet = state.sent is None and all(each.at in STARTS for each in state.producers)
        if is_quiet and state.days:  # no insert is sent, or on its way, for days
            rows = tuple(row._replace(is_known=False) for row in state.rows)
            yield "days pass", state._replace(rows=rows, days=state.days - 1)
        for words, after in self._run(state.rows[0]):  # the other one waits
            yield words, state._replace(rows=put(state.rows, 0, after))
        for number, producer in enumerate(state.producers):
            name = f"producer {number + 1}"
            if state.faults and number == 0 and producer.at not in STARTS:
                there = self._at(state, number, Producer())
                yield f"{name} is killed, and run again", there._replace(faults=state.faults - 1)
            for words, there in self._produce(state, number, producer):
                yield f"{name} {words}", there

    def _run(self, row: Row) -> Iterator[tuple[str, Row]]:
        """Run a job, and drop its row."""
        gone = row._replace(at="gone", is_known=True)
        if row.at == "there":
            ended = row._replace(at="over", runs=row.runs + 1, has_end=self.ends_come_first)
            yield "a worker ends the job", ended
        elif row.at == "over":
            yield "a worker drops the row", gone
        elif row.at == "gone" and not row.has_end:
            yield "a worker records the end", row._replace(has_end=True)

    def _produce(
        self, state: State, number: int, producer: Producer
    ) -> Iterator[tuple[str, State]]:
        head = state.head
        place = len(producer.head.items) - 1
        go = producer._replace
        first = "key" if self.has_keys else "insert"
        match producer.at:
            case "start" if head.is_open and self.completes_what_is_left:
                after = Producer("find", head)
                yield "reads a head that carries a row", self._at(state, number, after)
            case "start" if self.has_keys:
                yield "reads the head", self._at(state, number, Producer("choose", head))
            case "start":
                after = self._chosen(state, number, head)
                yield "reads the head", self._at(state, number, after)
            case "choose":
                after = self._chosen(state, number, producer.head)
                yield "reads the keys", self._at(state, number, after)
            case "open":
                write = Write("open", number, producer.read, producer.head)
                after = Producer(first if self.closes_last else "close", producer.head)
                yield from self._send(state, write, after)
            case "find":
                is_there = state.rows[place].at in ("there", "over")
                at = "found" if is_there else "ends" if self.skips_what_has_ended else first
                yield "reads the row", self._at(state, number, go(at=at))
            case "ends":
                at = "found" if state.rows[place].has_end else first
                yield "reads the ends", self._at(state, number, go(at=at))
            case "key" | "found":
                keys = put(state.keys, place, producer.head.items[-1])
                at = "insert" if producer.at == "key" else "close"
                yield "stores the key", self._at(state._replace(keys=keys), number, go(at=at))
            case "insert":
                write = Write("insert", number, (), producer.head)
                after = go(at="close") if self.closes_last else Producer()
                yield from self._send(state, write, after)
            case "close":
                write = Write("close", number, producer.head.version, producer.head)
                after = Producer() if self.closes_last else go(at=first)
                yield from self._send(state, write, after)

    def _chosen(self, state: State, number: int, head: Head) -> Producer:
        """Return a producer that stores its next item, if one is left."""
        items = list(range(ITEMS))[len(head.items) :]
        if self.has_keys:
            many = len(head.items) if self.keys_are_those_of_the_head else ITEMS
            own = range(ITEMS - 1, -1, -1) if number else range(ITEMS)
            items = [item for item in own if item not in state.keys[:many]]
        if not items:
            return Producer("done")
        version = (len(head.items) + 1, number, state.faults)
        opened = Head((*head.items, items[0]), version, is_open=True)
        return Producer("open", opened, head.version)

    def _send(self, state: State, write: Write, following: Producer) -> Iterator[tuple[str, State]]:
        """Send a write, with a response or without; then the producer reads the head again."""
        there, is_held = self._written(state, write)
        after = following if is_held else Producer()
        yield f"sends: {write.kind}", self._at(there, write.number, after)
        if state.faults and write.number == 0:
            lost = self._at(state, write.number, Producer())
            lost = lost._replace(sent=write, faults=state.faults - 1)
            yield f"sends: {write.kind}, without a response", lost

    def _written(self, state: State, write: Write) -> tuple[State, bool]:
        """Return the state after a write has arrived, and whether it was accepted."""
        head = write.head
        match write.kind:
            case "open":
                is_as_read = state.head.version == write.expect
                if self.head_is_conditional and not is_as_read:
                    return state, False
                return state._replace(head=head), True
            case "close":
                is_as_read = state.head == head
                closed = head._replace(is_open=False)
                return (state._replace(head=closed), True) if is_as_read else (state, False)
        place = len(head.items) - 1
        row = state.rows[place]
        by = -1 if self.ids_are_positions else write.number
        if row.at in ("there", "over") and row.by == by:
            return state, True
        if row.at == "gone" and row.by == by and row.is_known and self.deleted_rows_stay_deleted:
            return state, True
        rows = put(state.rows, place, row._replace(at="there", is_known=False, by=by))
        if row.at in ("there", "over"):  # another row of the same item
            rows = put(rows, place, row._replace(at="there", runs=row.runs + 1, by=by))
        return state._replace(rows=rows), True

    def _at(self, state: State, number: int, producer: Producer) -> State:
        return state._replace(producers=put(state.producers, number, producer))


MODELS = {"positions": Slices(), "keys": Slices(has_keys=True)}
MUTANTS = {
    "keys of a slice count that is not whole": Slices(
        has_keys=True, keys_are_those_of_the_head=False
    ),
    "a slice replaces any head": Slices(head_is_conditional=False),
    "a slice replaces any head, with keys": Slices(has_keys=True, head_is_conditional=False),
    "each process has its own ids": Slices(ids_are_positions=False),
    "a slice that was left stays so": Slices(completes_what_is_left=False),
    "the head is closed before rows are stored": Slices(closes_last=False),
    "what has ended is inserted again": Slices(skips_what_has_ended=False),
    "rows go before their ends are recorded": Slices(ends_come_first=False),
    "a deleted row is inserted again": Slices(deleted_rows_stay_deleted=False),
}
