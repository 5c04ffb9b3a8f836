"""Adding again.

Two processes add the same job, each when it likes and maybe twice, and neither hears what became
of it; a birth may land at any later time. The row hops within its lane and ends meanwhile.

Promised: a job is one row, it is not there again once it has ended, and it does not vanish.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

SENDS = 2


class Key(NamedTuple):
    """Where a row lies; both parts are part of what makes it that row."""

    pos: int
    hop: int


class Producer(NamedTuple):
    """Where it is, with which key, and how often it may send."""

    at: str = "begin"
    key: Key | None = None
    sends: int = SENDS


class State(NamedTuple):
    """The record of the key, the index, the rows and what they left; who is where."""

    record: Key | None
    noted: frozenset[Key]
    rows: frozenset[Key]
    dead: frozenset[Key]
    sent: frozenset[Key]
    producers: tuple[Producer, ...]
    hops: int
    ended: bool = False


@dataclass(frozen=True)
class Births:
    """The rules, each of which can be left out."""

    fixes_the_key_in_a_record: bool = True  # rule B2
    keeps_the_key: bool = True  # rule E1
    dead_keys_stay_dead: bool = True  # rule B1
    raises_the_hop: bool = True  # rule B1

    def start(self) -> State:
        """Begin with nothing."""
        nothing: frozenset[Key] = frozenset()
        return State(None, nothing, nothing, nothing, nothing, (Producer(),) * 2, 2)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a birth land, the row change, or a producer go on."""
        for key in state.sent:
            there = state._replace(sent=state.sent - {key})
            yield f"a birth of {tuple(key)} lands", self._born(there, key)
        for key in state.rows:
            left = state._replace(rows=state.rows - {key}, dead=state.dead | {key})
            yield "the row ends", left._replace(ended=True)
            for pos in (1, 2):
                if state.hops:
                    to = Key(pos, key.hop + 1 if self.raises_the_hop else key.hop)
                    there = left._replace(hops=state.hops - 1, noted=left.noted | {to})
                    yield f"the row hops to {pos}", self._born(there, to)
        for number, producer in enumerate(state.producers):
            for words, there, after in self._produce(state, producer, number):
                producers = put(there.producers, number, after)
                yield f"producer {number + 1} {words}", there._replace(producers=producers)

    def fault(self, state: State) -> str:
        """Count rows."""
        if len(state.rows) > 1:
            return "a job has two rows"
        if state.rows and state.ended:
            return "a job is there again after its end"
        if state.dead and not state.rows and not state.ended:
            return "a job has vanished"
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
                yield "sends a birth, and hears nothing", sent, after

    def _born(self, state: State, key: Key) -> State:
        """Let a row be born, unless its key was born before."""
        if key in state.dead and self.dead_keys_stay_dead:
            return state
        return state._replace(rows=state.rows | {key}, dead=state.dead - {key})


MODELS = {"two producers": Births()}
MUTANTS = {
    "a look-up decides": Births(fixes_the_key_in_a_record=False),
    "a repeat has a position of its own": Births(keeps_the_key=False),
    "a dropped key lives again": Births(dead_keys_stay_dead=False),
    "a hop keeps its number": Births(raises_the_hop=False),
}
