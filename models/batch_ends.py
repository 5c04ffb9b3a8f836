"""Ends of the jobs of a batch, as bits that readers join (rules I3 and I4).

Two jobs of one slice end. The first one died, is retried by hand, and ends again. The process that
ends a job stores its bit, and may do so once more later. Two readers read the records of the slice,
and replace those that they read by one that says what all of them say. A reader may stop anywhere,
and a write of a worker, of the operator or of a reader may arrive at any later time.

Guarantees: what was recorded stays known; the last end of each job is the one that counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

ENDS = ("dead", "again", "done")
"""What is recorded of the first job, with the `hop` 0, 1 and 2."""

Kind = tuple[int, str]
Known = frozenset[tuple[Kind, int]]
"""Bits: the hop and the state, and the position of the job."""


class Entry(NamedTuple):
    """A record: its key, and what it says; bits of one kind."""

    key: str
    bits: Known


class Commit(NamedTuple):
    """A write of a reader: what it stores, and the keys that it deletes."""

    puts: frozenset[Entry]
    deletes: frozenset[str]


class Reader(NamedTuple):
    """A reader: its next step, and what it has read or still has to write."""

    at: str = "idle"
    read: frozenset[Entry] = frozenset()
    joins: int = 1


class State(NamedTuple):
    """Records, writes under way, readers, and how far the two jobs are.

    written: all that was stored. first: number of ends of the first job that were written or sent.
    """

    entries: frozenset[Entry] = frozenset()
    written: Known = frozenset()
    first: int = 0
    second: int = 0
    unsent: frozenset[Entry] = frozenset()
    readers: tuple[Reader, ...] = (Reader(), Reader())
    late: Commit | None = None
    unknowns: int = 1
    repeats: int = 1


@dataclass(frozen=True)
class Ends:
    """Rules, of which a mutant leaves out one. is_together: both jobs end in one settlement."""

    is_together: bool = False
    named_by_content: bool = True  # rule I3
    deletes_only_what_it_read: bool = True  # rule I3
    keeps_what_it_writes: bool = True  # rule I3: a record that says all is not deleted
    writes_first: bool = True  # rule I3: the joined record is stored with the deletions
    joins_all: bool = True  # rule I3
    highest_hop_counts: bool = True  # rule I4

    def start(self) -> State:
        """Return a batch of which no job has ended."""
        return State()

    def fault(self, state: State) -> str:
        """Find what is not known any more, and a job whose last end does not count."""
        known = frozenset(bit for entry in state.entries for bit in entry.bits)
        if state.written - known:
            return "a recorded end is not known any more"
        if state.unsent or state.late is not None:
            return ""
        ends = sorted(kind for kind, job in known if job == 0)
        if not self.highest_hop_counts:
            ends.sort(key=lambda kind: kind[1], reverse=True)
        if state.first and ends[-1][1] != ENDS[state.first - 1]:
            return f"the job is {ENDS[state.first - 1]}, and counts as {ends[-1][1]}"
        return ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a job end, a write arrive, or a reader go on."""
        if state.first < len(ENDS):
            kind = (state.first, ENDS[state.first])
            bits = {(kind, 0)}
            with_both = self.is_together and state.first == 0
            if with_both:
                bits.add((kind, 1))
            there = state._replace(first=state.first + 1, second=state.second or with_both)
            yield from self._record(there, kind, frozenset(bits))
        if not state.second and not self.is_together:
            kind = (0, "dead")
            yield from self._record(state._replace(second=1), kind, frozenset({(kind, 1)}))
        for entry in state.unsent:
            there = self._stored(state, entry)
            yield "a record arrives", there._replace(unsent=state.unsent - {entry})
            if state.repeats:
                yield "a record arrives, and will again", there._replace(repeats=0)
        if state.late is not None:
            there = self._committed(state, state.late)
            yield "a late join arrives", there._replace(late=None)
            yield "a late join is lost", state._replace(late=None)
        for number, reader in enumerate(state.readers):
            for words, there in self._read(state, number, reader):
                yield f"reader {number + 1} {words}", there

    def _record(self, state: State, kind: Kind, bits: Known) -> Iterator[tuple[str, State]]:
        entry = self._entry(kind, bits)
        yield f"jobs end: {kind[1]}", state._replace(unsent=state.unsent | {entry})

    def _entry(self, kind: Kind, bits: Known) -> Entry:
        digest = sorted(job for _, job in bits) if self.named_by_content else ""
        return Entry(f"{kind[0]}/{kind[1]}/{digest}", bits)

    def _stored(self, state: State, entry: Entry) -> State:
        others = frozenset(other for other in state.entries if other.key != entry.key)
        return state._replace(entries=others | {entry}, written=state.written | entry.bits)

    def _read(self, state: State, number: int, reader: Reader) -> Iterator[tuple[str, State]]:
        match reader.at:
            case "idle" if reader.joins and len(state.entries) > 1:
                after = Reader("commit", state.entries, reader.joins - 1)
                yield "reads", self._at(state, number, after)
            case "commit":
                commit = self._join(reader.read, state)
                done = self._at(state, number, reader._replace(at="idle", read=frozenset()))
                if self.writes_first:
                    yield "joins", self._committed(done, commit)
                else:
                    deleted = self._committed(state, commit._replace(puts=frozenset()))
                    yield "deletes", self._at(deleted, number, reader._replace(at="write"))
                if state.unknowns:
                    yield "sends a join", done._replace(late=commit, unknowns=0)
            case "write":
                commit = self._join(reader.read, state)._replace(deletes=frozenset())
                done = self._at(state, number, reader._replace(at="idle", read=frozenset()))
                yield "writes", self._committed(done, commit)

    def _join(self, read: frozenset[Entry], state: State) -> Commit:
        """Return what replaces records by one for each kind."""
        kinds = {kind for entry in read for kind, _ in entry.bits}
        puts = frozenset(
            self._entry(kind, frozenset(bit for entry in read for bit in entry.bits
                                        if bit[0] == kind))
            for kind in (kinds if self.joins_all else {max(kinds)})
        )  # fmt: skip
        there = read if self.deletes_only_what_it_read else state.entries
        kept = {entry.key for entry in puts} if self.keeps_what_it_writes else set()
        return Commit(puts, frozenset(entry.key for entry in there if entry.key not in kept))

    def _committed(self, state: State, commit: Commit) -> State:
        """Store and delete; a key that is in both is deleted."""
        put_keys = {entry.key for entry in commit.puts}
        entries = frozenset(entry for entry in state.entries if entry.key not in put_keys)
        entries |= commit.puts
        left = frozenset(entry for entry in entries if entry.key not in commit.deletes)
        return state._replace(entries=left)

    def _at(self, state: State, number: int, reader: Reader) -> State:
        return state._replace(readers=put(state.readers, number, reader))


MODELS = {"two settlements": Ends(), "one settlement": Ends(is_together=True)}
MUTANTS = {
    "records are named by their kind": Ends(named_by_content=False),
    "a reader deletes all that is there": Ends(deletes_only_what_it_read=False),
    "a whole record is deleted": Ends(keeps_what_it_writes=False),
    "records are deleted before they are joined": Ends(writes_first=False),
    "one kind is joined, and all are deleted": Ends(joins_all=False),
    "the first end counts": Ends(highest_hop_counts=False),
}
