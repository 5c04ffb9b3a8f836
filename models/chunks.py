"""Partial results of one job (rules T1 and T2).

The handler of a claim emits chunks. Its worker stores them in records, one after the other, and the
outcome last. A write may have no response: it is stored, now or later, or lost. The worker may be
killed at any time; then another claim runs the job anew, and the old worker may go on for a while.
A reader reads what lies after the last chunk that it has, and stops when the job has ended and
nothing is left.

Guarantees: a reader that has stopped was given all chunks of the last claim, in order, once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

CHUNKS = 3
CLAIMS = 2

Record = tuple[int, int, tuple[int, ...]]
"""A record: the claim and the number that its key has, and the numbers of its chunks."""


class Writer(NamedTuple):
    """The worker of a claim.

    emitted, stored: how many chunks. sealed: the record that is under way.
    """

    emitted: int = 0
    stored: int = 0
    sealed: Record | None = None


class State(NamedTuple):
    """Records, the worker of each claim, how the job stands, and the reader.

    late: a write without a response. unknowns: how many more there may be. ended: the claim that
    ended the job; 0 for none. read: what the reader was given: all that is there, or a part, before
    it is replaced by another one. has_found_nothing: in its last read. has_seen_end: before it.
    """

    records: frozenset[Record] = frozenset()
    writers: tuple[Writer, ...] = (Writer(),)
    late: Record | None = None
    unknowns: int = 1
    ended: int = 0
    read: tuple[tuple[int, int], ...] = ()
    has_found_nothing: bool = False
    has_seen_end: bool = False
    has_stopped: bool = False


@dataclass(frozen=True)
class Chunks:
    """Rules, of which a mutant leaves out one."""

    outcome_is_last: bool = True  # rule T1
    reads_again_after_the_end: bool = True  # rule T1
    repeats_as_it_was: bool = True  # rule T2
    keys_name_the_last: bool = True  # rule T2
    one_at_a_time: bool = True  # rule T2

    def start(self) -> State:
        """Return a job that runs."""
        return State()

    def fault(self, state: State) -> str:
        """Find a chunk that is missing or doubled."""
        last = max((claim for claim, _ in state.read), default=0)
        numbers = [number for claim, number in state.read if claim == last]
        if numbers != list(range(1, len(numbers) + 1)):
            return "a chunk was missed or given twice"
        if state.has_stopped and (last, len(numbers)) != (state.ended, CHUNKS):
            return "the reader has stopped before the last chunk"
        return ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a late write arrive, a worker go on, another claim begin, or the reader read."""
        if state.late is not None:
            stored = state._replace(records=state.records | {state.late}, late=None)
            yield "a late write arrives", stored
            yield "a late write is lost", state._replace(late=None)
        if len(state.writers) < CLAIMS and not state.ended:
            yield "the claim ends", state._replace(writers=(*state.writers, Writer()))
        for claim, writer in enumerate(state.writers, 1):
            yield from self._work(state, claim, writer)
        if not state.has_stopped:
            yield from self._read(state)

    def _work(self, state: State, claim: int, writer: Writer) -> Iterator[tuple[str, State]]:
        if writer.emitted < CHUNKS:
            emits = writer._replace(emitted=writer.emitted + 1)
            yield f"claim {claim} emits", self._with(state, claim, emits)
        sealed = writer.sealed
        if writer.stored < writer.emitted:
            if sealed is None or not self.repeats_as_it_was:
                sealed = self._sealed(claim, writer)
            done = writer._replace(stored=sealed[2][-1], sealed=None)
            there = self._with(state, claim, done)
            yield f"claim {claim} stores", there._replace(records=self._stored(state, sealed))
            if state.unknowns and state.late is None:
                unsure = writer._replace(sealed=sealed) if self.one_at_a_time else done
                there = self._with(state, claim, unsure)
                yield "a write has no response", there._replace(late=sealed, unknowns=0)
        is_whole = writer.emitted == CHUNKS
        is_stored = writer.stored == CHUNKS or not self.outcome_is_last
        if is_whole and is_stored and claim == len(state.writers) and not state.ended:
            yield f"claim {claim} ends the job", state._replace(ended=claim)

    def _read(self, state: State) -> Iterator[tuple[str, State]]:
        last = state.read[-1] if state.read else (0, 0)
        later = sorted(record for record in state.records if record[:2] > last)
        newest = max((record[0] for record in later), default=0)
        given = [(newest, number) for claim, _, numbers in later if claim == newest
                 for number in numbers if (newest, number) > last]  # fmt: skip
        for count in {1, len(given)} if given else ():
            more = (*state.read, *given[:count])
            yield f"the reader reads {count}", state._replace(read=more, has_found_nothing=False)
        if not given and state.has_seen_end:
            yield "the reader stops", state._replace(has_stopped=True)
        elif not given and not state.has_found_nothing:
            yield "the reader finds nothing", state._replace(has_found_nothing=True)
        if state.has_found_nothing and state.ended and not state.has_seen_end:
            is_over = not self.reads_again_after_the_end
            yield "the reader sees the end", state._replace(has_seen_end=True, has_stopped=is_over)

    def _sealed(self, claim: int, writer: Writer) -> Record:
        numbers = tuple(range(writer.stored + 1, writer.emitted + 1))
        return (claim, numbers[-1] if self.keys_name_the_last else numbers[0], numbers)

    @staticmethod
    def _stored(state: State, record: Record) -> frozenset[Record]:
        return frozenset(r for r in state.records if r[:2] != record[:2]) | {record}

    @staticmethod
    def _with(state: State, claim: int, writer: Writer) -> State:
        writers = (*state.writers[: claim - 1], writer, *state.writers[claim:])
        return state._replace(writers=writers)


MODELS = {"two claims": Chunks()}
MUTANTS = {
    "the outcome is stored first": Chunks(outcome_is_last=False),
    "a reader stops when it sees the end": Chunks(reads_again_after_the_end=False),
    "a write without a response is taken as stored": Chunks(one_at_a_time=False),
    "a repeat has more chunks": Chunks(repeats_as_it_was=False),
    "keys name the first chunk": Chunks(keys_name_the_last=False),
}
