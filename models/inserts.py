"""Repeated inserts.

A record carries the insert of a job (`carried.py`). Two processes complete it: each reads the key
and inserts the job, up to twice, without a response. An insert may arrive at any later time. The
row moves within its lane and ends meanwhile.

Guarantees: a job is one row, does not exist again after its end, and does not disappear.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

SENDS = 2


class Key(NamedTuple):
    """Key of a row: position and hop."""

    pos: int
    hop: int


class Producer(NamedTuple):
    """A process: the key that it has read, and how often it may still send."""

    key: Key = Key(0, 0)
    sends: int = SENDS


class State(NamedTuple):
    """Live and deleted rows, pending inserts, and the producers."""

    rows: frozenset[Key]
    dead: frozenset[Key]
    sent: frozenset[Key]
    producers: tuple[Producer, ...]
    hops: int
    ended: bool = False


@dataclass(frozen=True)
class Inserts:
    """Rules; a mutant leaves out one."""

    keeps_the_key: bool = True  # rules E1, B3, C2
    deleted_keys_stay_deleted: bool = True  # rule B1
    raises_the_hop: bool = True  # rule B1

    def start(self) -> State:
        """Return an empty state."""
        nothing: frozenset[Key] = frozenset()
        return State(nothing, nothing, nothing, (Producer(),) * 2, 2)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let an insert arrive, the row change, or a producer continue."""
        for key in state.sent:
            there = state._replace(sent=state.sent - {key})
            yield f"an insert of {tuple(key)} arrives", self._inserted(there, key)
        for key in state.rows:
            left = state._replace(rows=state.rows - {key}, dead=state.dead | {key})
            yield "the row ends", left._replace(ended=True)
            for pos in (1, 2):
                if state.hops:
                    to = Key(pos, key.hop + 1 if self.raises_the_hop else key.hop)
                    there = left._replace(hops=state.hops - 1)
                    yield f"the row moves to {pos}", self._inserted(there, to)
        for number, producer in enumerate(state.producers):
            if producer.sends:
                after = producer._replace(sends=producer.sends - 1)
                if not self.keeps_the_key:
                    after = after._replace(key=Key(producer.key.pos + 10, 0))
                there = state._replace(
                    sent=state.sent | {producer.key}, producers=put(state.producers, number, after)
                )
                yield f"process {number + 1} sends an insert, without a response", there

    def fault(self, state: State) -> str:
        """Count the rows of the job."""
        if len(state.rows) > 1:
            return "a job has two rows"
        if state.rows and state.ended:
            return "a job exists again after its end"
        if state.dead and not state.rows and not state.ended:
            return "a job has disappeared"
        return ""

    def _inserted(self, state: State, key: Key) -> State:
        """Insert a row, unless its key was deleted before."""
        if key in state.dead and self.deleted_keys_stay_deleted:
            return state
        return state._replace(rows=state.rows | {key}, dead=state.dead - {key})


MODELS = {"two producers": Inserts()}
MUTANTS = {
    "a repeat has another position": Inserts(keeps_the_key=False),
    "a deleted key is inserted again": Inserts(deleted_keys_stay_deleted=False),
    "a hop keeps its number": Inserts(raises_the_hop=False),
}
