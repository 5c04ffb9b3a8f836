"""Moving a job to another store (H16).

Two movers take a row of the old store and insert it in the new one; each may die anywhere, and the
other one continues. A worker of the old store claims and ends the row, or its claim expires; a
worker of the new store does so there. A new store with transactions has one row for an id,
and forgets it when it is deleted (`forgets`). One without inserts each key once (rule B1), and a
row that is taken anew gets another key. There the record of a portion is a decision that carries
the inserts, or none if the portion is sealed (`carried.py`).

Guarantees: the job runs under one valid claim in one store, ends once, and is never lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

TOKENS_MAX = 6
WAITING, CLAIMED, TAKEN = "waiting", "claimed", "taken"


class Row(NamedTuple):
    """A row: its state, and the token of the portion or of the claim."""

    state: str
    token: int = 0


class Mover(NamedTuple):
    """A mover: its next step, the row that it read, and the token of its portion."""

    at: str = "look"
    row: Row | None = None
    token: int = 0


class State(NamedTuple):
    """The rows of both stores, the records of portions in the new one, and the processes.

    new, gone: the keys of rows in the new store, and of deleted ones, by the tokens of their
    portions. records: tokens with a record, each with whether it names the row. old_claims: number
    of claims that workers of the old store will still make.
    """

    old: Row | None
    new: frozenset[int]
    gone: frozenset[int]
    records: tuple[tuple[int, bool], ...]
    movers: tuple[Mover, ...]
    old_claims: int
    token: int
    ended: int = 0
    wrong: str = ""


@dataclass(frozen=True)
class Move:
    """Rules; a mutant leaves out one. forgets: deleted keys can be inserted again."""

    forgets: bool = True
    takes_first: bool = True  # rule X2
    waits_for_claims: bool = True  # rule X2
    takes_by_token: bool = True  # rule X2
    records_with_rows: bool = True  # rules C1, X3
    records_once: bool = True  # rules C1, X3
    inserts_before_deleting: bool = True  # rule X4
    seals: bool = True  # rules C1, X5
    remembers: bool = True  # rule X5
    takes_anew: bool = True  # rule X5

    def start(self) -> State:
        """Return a state with one waiting row."""
        return State(Row(WAITING), frozenset(), frozenset(), (), (Mover(), Mover()), 2, 1)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let a mover or a worker continue; a mover that never does has died."""
        for number, mover in enumerate(state.movers):
            for words, there, after in self._move(state, mover):
                movers = put(there.movers, number, after)
                yield f"mover {number + 1} {words}", there._replace(movers=movers)
        yield from self._work(state)

    def fault(self, state: State) -> str:
        """Check the rows and ends."""
        if state.wrong:
            return state.wrong
        if state.ended > 1:
            return "a job has ended twice"
        if state.ended and (state.new or (state.old and state.old.state != TAKEN)):
            return "a job can run after its end"
        if not (state.ended or state.old or state.new):
            return "a job is lost"
        runnable = (state.old is not None and state.old.state != TAKEN) + len(state.new)
        return "a job has two runnable rows" if runnable > 1 else ""

    def _move(self, state: State, mover: Mover) -> Iterator[tuple[str, State, Mover]]:
        match mover.at:
            case "look" if state.old:
                yield from self._look(state, state.old)
            case "take" if state.token < TOKENS_MAX:
                assert mover.row
                holds = state.old == mover.row or (not self.takes_by_token and state.old)
                taken = Row(TAKEN, state.token)
                there = state._replace(token=state.token + 1)
                if holds:
                    if state.old and state.old.state == CLAIMED:
                        there = there._replace(wrong="a job that runs is moved")
                    after = Mover("insert", taken, taken.token)
                    yield "takes the row", there._replace(old=taken), after
                else:
                    yield "finds it changed", state, Mover()
            case "seal":
                yield from self._seal(state, mover)
            case "insert":
                yield from self._insert(state, mover)
            case "insert again":
                yield (
                    "inserts it again",
                    self._inserted(state, mover.token),
                    mover._replace(at="delete"),
                )
            case "delete":
                yield from self._delete(state, mover)

    def _look(self, state: State, row: Row) -> Iterator[tuple[str, State, Mover]]:
        if row.state == TAKEN:
            yield "finds a portion", state, Mover("seal", row, row.token)
        elif row.state == WAITING or not self.waits_for_claims:
            if self.takes_first:
                yield "reads the row", state, Mover("take", row)
            else:
                read = Mover("insert", row, state.token)
                yield "reads the row", state._replace(token=state.token + 1), read

    def _seal(self, state: State, mover: Mover) -> Iterator[tuple[str, State, Mover]]:
        """Continue with the portion of another mover."""
        names = dict(state.records)
        if mover.token not in names and self.seals:
            records = (*state.records, (mover.token, False))
            yield "seals the portion", state._replace(records=records), mover
        elif names.get(mover.token, False):
            at = "insert again" if not self.forgets else "delete"
            yield "finds it inserted", state, mover._replace(at=at)
        elif self.takes_anew:
            yield "takes it anew", state, mover._replace(at="take")
        else:
            yield "inserts it", state, mover._replace(at="insert")

    def _insert(self, state: State, mover: Mover) -> Iterator[tuple[str, State, Mover]]:
        """Insert the row with its record; without transactions the record comes first."""
        has_record = mover.token in dict(state.records)
        if has_record and self.records_once:
            yield "is refused", state, Mover("end")
            return
        after = mover._replace(at="delete")
        if not self.inserts_before_deleting:
            gone = state._replace(old=None) if state.old == mover.row else state
            yield "deletes the old row first", gone, mover._replace(at="insert again")
            return
        recorded = state
        if self.records_with_rows and not has_record:
            recorded = state._replace(records=(*state.records, (mover.token, True)))
        if self.forgets:
            yield "inserts the row and its record", self._inserted(recorded, mover.token), after
        else:
            yield "stores the record", recorded, mover._replace(at="insert again")

    def _inserted(self, state: State, token: int) -> State:
        if (self.forgets and state.new) or (not self.forgets and token in state.gone):
            return state
        return state._replace(new=state.new | {token})

    def _delete(self, state: State, mover: Mover) -> Iterator[tuple[str, State, Mover]]:
        there = state._replace(old=None) if state.old == mover.row else state
        if not self.remembers:
            there = there._replace(records=())
        yield "deletes the old row", there, Mover()

    def _work(self, state: State) -> Iterator[tuple[str, State]]:
        old, new = state.old, state.new
        if old and old.state == WAITING and state.old_claims:
            claimed = Row(CLAIMED, state.token)
            there = state._replace(token=state.token + 1, old_claims=state.old_claims - 1)
            yield "a worker claims the old row", there._replace(old=claimed)
        if old and old.state == CLAIMED:
            yield "its claim is released", state._replace(old=Row(WAITING, old.token))
            yield "it ends the old row", state._replace(old=None, ended=state.ended + 1)
        for token in new:
            gone = state._replace(new=new - {token}, gone=state.gone | {token})
            yield "a worker ends the new row", gone._replace(ended=state.ended + 1)


MODELS = {
    "two movers, with transactions": Move(),
    "two movers, without transactions": Move(forgets=False),
}
MUTANTS = {
    "a row is copied before it is taken": Move(takes_first=False),
    "a running job is taken": Move(waits_for_claims=False),
    "a row is taken with any token": Move(takes_by_token=False),
    "rows without a record": Move(records_with_rows=False),
    "a portion is inserted twice": Move(records_once=False),
    "deleted before it is inserted": Move(inserts_before_deleting=False),
    "a portion is not sealed": Move(seals=False),
    "records are deleted once the rows have moved": Move(remembers=False),
    "a portion is inserted under its old token": Move(takes_anew=False, records_once=False),
    "without transactions, rows are copied before": Move(forgets=False, takes_first=False),
    "without transactions, a portion is not sealed": Move(forgets=False, seals=False),
}
