"""Repeated inserts.

Two processes insert the same job, up to twice each, without a response. An insert may arrive at
any later time. The row moves within its lane and ends meanwhile.

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
    """A producer: its next step, its key, and how often it may still send."""

    at: str = "begin"
    key: Key | None = None
    sends: int = SENDS


class State(NamedTuple):
    """The record of the key, the index, live and deleted rows, and the producers."""

    record: Key | None
    noted: frozenset[Key]
    rows: frozenset[Key]
    dead: frozenset[Key]
    sent: frozenset[Key]
    producers: tuple[Producer, ...]
    hops: int
    ended: bool = False


@dataclass(frozen=True)
class Inserts:
    """Rules; a mutant leaves out one."""

    fixes_the_key_in_a_record: bool = True  # rule B2
    keeps_the_key: bool = True  # rule E1
    deleted_keys_stay_deleted: bool = True  # rule B1
    raises_the_hop: bool = True  # rule B1

    def start(self) -> State:
        """Return an empty state."""
        nothing: frozenset[Key] = frozenset()
        return State(None, nothing, nothing, nothing, nothing, (Producer(),) * 2, 2)

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
                    there = left._replace(hops=state.hops - 1, noted=left.noted | {to})
                    yield f"the row moves to {pos}", self._inserted(there, to)
        for number, producer in enumerate(state.producers):
            for words, there, after in self._produce(state, producer, number):
                producers = put(there.producers, number, after)
                yield f"producer {number + 1} {words}", there._replace(producers=producers)

    def fault(self, state: State) -> str:
        """Count the rows of the job."""
        if len(state.rows) > 1:
            return "a job has two rows"
        if state.rows and state.ended:
            return "a job exists again after its end"
        if state.dead and not state.rows and not state.ended:
            return "a job has disappeared"
        return ""

    def _produce(
        self, state: State, one: Producer, number: int
    ) -> Iterator[tuple[str, State, Producer]]:
        own = Key(number + 1, 0)
        match one.at:
            case "begin" if self.fixes_the_key_in_a_record:
                key = state.record or own
                fixed = state._replace(record=key)
                yield f"fixes the key {tuple(key)}", fixed, one._replace(at="send", key=key)
            case "begin":
                key = min(state.noted, default=own)
                yield f"looks up the key {tuple(key)}", state, one._replace(at="note", key=key)
            case "note":
                assert one.key
                noted = state._replace(noted=state.noted | {one.key})
                yield "notes the key", noted, one._replace(at="send")
            case "send" if one.sends:
                assert one.key
                sent = state._replace(sent=state.sent | {one.key})
                again = one.key if self.keeps_the_key else Key(one.key.pos + 10, 0)
                after = one._replace(key=again, sends=one.sends - 1)
                yield "sends an insert, without a response", sent, after

    def _inserted(self, state: State, key: Key) -> State:
        """Insert a row, unless its key was deleted before."""
        if key in state.dead and self.deleted_keys_stay_deleted:
            return state
        return state._replace(rows=state.rows | {key}, dead=state.dead - {key})


MODELS = {"two producers": Inserts()}
MUTANTS = {
    "a lookup decides": Inserts(fixes_the_key_in_a_record=False),
    "a repeat has another position": Inserts(keeps_the_key=False),
    "a deleted key is inserted again": Inserts(deleted_keys_stay_deleted=False),
    "a hop keeps its number": Inserts(raises_the_hop=False),
}
