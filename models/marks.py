"""The lane list and its two watermarks (H4).

Producers list a lane, insert their rows and check. Cleanup passes unlist the lane when it appears
empty, and raise the watermarks by arbitrary clocks. Workers delete rows. All rows are inserted
into one lane, whose pointers differ in their bucket. The producers are threads of one process and
share its cache.

Guarantees: an acknowledged live row is listed where every reader looks, above `swept` and at most
at `closed + 1`; and a job is one row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

INSERT = 1
PASSES = 2


class Producer(NamedTuple):
    """A producer of one job. rows: number of its rows."""

    at: str = "list"
    listing: int = 0
    rows: int = 0
    acknowledged: bool = False


class Pass(NamedTuple):
    """One cleanup pass. todo: pointers to check; gone: pointers to unlist."""

    at: str = "begin"
    swept: int = 0
    closed: int = 0
    todo: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    kept: int = 0


class State(NamedTuple):
    """The list, the watermarks, the cache of the producers' process, and the processes."""

    swept: int
    closed: int
    listed: frozenset[int]
    dead: frozenset[int]
    seen: int
    noted: frozenset[int]
    producers: tuple[Producer, ...]
    passes: tuple[Pass, ...]


@dataclass(frozen=True)
class Marks:
    """Rules, of which a mutant leaves out one; number of producers and maximum of clocks."""

    looks: bool = True  # rule E3
    looks_at_the_store: bool = True  # rule E3
    looks_after_the_write: bool = True  # rules E2, E3
    looks_again: bool = True  # rule E4
    relists_above_closed: bool = True  # rule E4
    keeps_the_row: bool = True  # rule E4
    has_two_marks: bool = True  # rule S4
    reads_closed_first: bool = True  # rule S1
    leaves_open_buckets: bool = True  # rule S1
    producers: int = 2
    clock_max: int = 2

    def start(self) -> State:
        """Return an empty list."""
        nothing: frozenset[int] = frozenset()
        producers = (Producer(),) * self.producers
        return State(0, 0, nothing, nothing, 0, nothing, producers, (Pass(),) * PASSES)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let each process continue."""
        for number, producer in enumerate(state.producers):
            for words, there, new in self._produce(state, producer):
                yield f"a producer {words}", _sorted(there, producer=(number, new))
            if producer.rows:
                taken = producer._replace(rows=producer.rows - 1)
                yield "a worker ends a job", _sorted(state, producer=(number, taken))
        for number, sweep in enumerate(state.passes):
            for words, there, after in self._sweep(state, sweep):
                yield f"a pass {words}", _sorted(there, sweep=(number, after))

    def fault(self, state: State) -> str:
        """Find unlisted rows, and jobs with two rows."""
        for producer in state.producers:
            if producer.rows > 1:
                return "a job has two rows"
            if producer.acknowledged and producer.rows and not _is_seen(state):
                return "an acknowledged row is not listed"
        return ""

    def _produce(self, state: State, producer: Producer) -> Iterator[tuple[str, State, Producer]]:
        match producer.at:
            case "list":
                listing = max(INSERT, state.seen + 1)
                after = "write" if self.looks_after_the_write else "look"
                yield (
                    "lists the lane",
                    _listed(state, listing),
                    producer._replace(at=after, listing=listing),
                )
            case "write":
                written = producer._replace(rows=producer.rows + 1)
                if not self.looks or not self.looks_after_the_write:
                    yield (
                        "inserts, acknowledged",
                        state,
                        written._replace(at="end", acknowledged=True),
                    )
                else:
                    yield "inserts", state, written._replace(at="look")
            case "look":
                closed = state.closed if self.looks_at_the_store else state.seen
                looked = _looked(state, closed)
                if producer.listing <= closed:
                    yield "checks: closed", looked, producer._replace(at="again")
                elif self.looks_after_the_write:
                    yield (
                        "checks: open, acknowledged",
                        looked,
                        producer._replace(at="end", listing=0, acknowledged=True),
                    )
                else:
                    yield "checks: open", looked, producer._replace(at="write")
            case "again":
                yield from self._relist(state, producer)

    def _relist(self, state: State, producer: Producer) -> Iterator[tuple[str, State, Producer]]:
        """List the lane under the first bucket that was open at the check."""
        listing = state.seen + (1 if self.relists_above_closed else 2)
        again = producer._replace(at="look", listing=listing)
        if not self.looks_again:
            again = again._replace(at="end", acknowledged=True)
        if not self.keeps_the_row:
            again = again._replace(rows=producer.rows + 1)
        yield "lists the lane again", _listed(state, listing), again

    def _sweep(self, state: State, sweep: Pass) -> Iterator[tuple[str, State, Pass]]:
        match sweep.at:
            case "begin":
                marked = sweep._replace(at="read", swept=state.swept, closed=state.closed)
                yield "reads the watermarks", state, marked
            case "read":
                until = sweep.closed
                if not self.leaves_open_buckets or not self.reads_closed_first:
                    until = self.clock_max + 2
                todo = tuple(sorted(p for p in state.listed if sweep.swept < p <= until))
                kept = sweep.closed + 1
                yield (
                    "reads the list",
                    state,
                    sweep._replace(at="check", swept=0, todo=todo, kept=kept),
                )
            case "check" if sweep.todo:
                pointer, *rest = sweep.todo
                if any(producer.rows for producer in state.producers):
                    kept = min(sweep.kept, pointer)
                    yield "finds rows", state, sweep._replace(todo=tuple(rest), kept=kept)
                else:
                    gone = (*sweep.gone, pointer)
                    yield "finds none", state, sweep._replace(todo=tuple(rest), gone=gone)
            case "check":
                gone = sweep.gone
                if not self.reads_closed_first:
                    gone = tuple(pointer for pointer in gone if pointer <= state.closed)
                yield "has checked", state, sweep._replace(at="unlist", gone=gone)
            case "unlist" if sweep.gone:
                pointer, *rest = sweep.gone
                there = state._replace(listed=state.listed - {pointer}, dead=state.dead | {pointer})
                yield f"unlists {pointer}", there, sweep._replace(gone=tuple(rest))
            case "unlist":
                for clock in range(sweep.closed + 1, self.clock_max + 1):
                    closed = max(state.closed, clock)
                    swept = max(state.swept, sweep.kept - 1) if self.has_two_marks else closed
                    raised = state._replace(swept=swept, closed=closed)
                    yield f"raises the watermarks to {swept}, {closed}", raised, Pass()


def _sorted(
    state: State,
    *,
    producer: tuple[int, Producer] | None = None,
    sweep: tuple[int, Pass] | None = None,
) -> State:
    """Replace a process, and sort equal ones, because their order makes no difference."""
    if producer:
        producers = tuple(sorted(put(state.producers, *producer)))
        return state._replace(producers=producers)
    assert sweep
    return state._replace(passes=tuple(sorted(put(state.passes, *sweep))))


def _is_seen(state: State) -> bool:
    return any(state.swept < pointer <= state.closed + 1 for pointer in state.listed)


def _looked(state: State, closed: int) -> State:
    """Record what was closed: pointers at or below it are no longer cached as listed."""
    noted = frozenset(pointer for pointer in state.noted if pointer > closed)
    return state._replace(seen=max(state.seen, closed), noted=noted)


def _listed(state: State, listing: int) -> State:
    """Insert a pointer, unless this process has; a deleted one stays deleted (S5)."""
    if listing in state.noted:
        return state
    listed = state.listed if listing in state.dead else state.listed | {listing}
    return state._replace(listed=listed, noted=state.noted | {listing})


MODELS = {
    "two producers, two passes": Marks(),
    "one producer, later clocks": Marks(producers=1, clock_max=3),
}
MUTANTS = {
    "no check": Marks(looks=False),
    "a check before the write": Marks(looks_after_the_write=False),
    "a check of the cache": Marks(looks_at_the_store=False),
    "no check after listing again": Marks(looks_again=False, producers=1, clock_max=3),
    "listed again by a clock": Marks(relists_above_closed=False),
    "a second row at E4": Marks(keeps_the_row=False),
    "one watermark": Marks(has_two_marks=False),
    "a late read of closed": Marks(reads_closed_first=False),
    "open buckets are cleaned": Marks(leaves_open_buckets=False),
}
