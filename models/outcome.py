"""The outcome comes first.

Two workers claim a row, run it, write its outcome under their token, then the effects of the
stored outcome, then delete the row. An operator cancels the same way. Any conditional write may
have no response: then it arrives at any later time, or never. A worker without a response reads
back, or cannot, and writes the outcome again.

Guarantees: one outcome is recorded, its effects are written once, the row is deleted after them,
no handler starts after an outcome, and no outcome is reported as rejected while the row has its
token.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from models.explore import put

NOW_MAX = 2
LEASE = 1
OPERATOR = 2
EFFECTS = ("result", "successor")


class Row(NamedTuple):
    """The stored row of a job; outcome: empty before there is one."""

    fence: int
    at: int
    token: int
    outcome: str


class Write(NamedTuple):
    """A conditional write; seen: row that a claim read; token: the one that others name."""

    what: str
    token: int
    seen: Row | None = None
    fresh: int = 0
    outcome: str = ""
    at: int = 0


class Actor(NamedTuple):
    """A worker or the operator: its next step, token, outcome, remaining claims and repeats."""

    at: str = "idle"
    token: int = 0
    seen: Row | None = None
    outcome: str = ""
    claims: int = 0
    repeats: int = 0


class State(NamedTuple):
    """The time, row, processes, recorded outcomes, written effects and pending writes."""

    now: int
    row: Row | None
    actors: tuple[Actor, ...]
    recorded: tuple[str, ...]
    effects: frozenset[tuple[str, str, int]]
    sent: frozenset[Write]
    unknowns: int
    wrong: str = ""


@dataclass(frozen=True)
class Outcomes:
    """Rules; a mutant leaves out one."""

    outcome_before_effects: bool = True  # rule P5
    drop_after_effects: bool = True  # rule P5
    replays_without_running: bool = True  # rule P5
    sees_outcomes_at_read_back: bool = True  # rules P5, U2
    claims_by_token: bool = True  # rule P1
    moves_to_a_fresh_token: bool = True  # rule P2
    cancels_only_the_open: bool = True  # rules P5, P6
    derives_ids: bool = True  # rules E1, P5
    derives_tokens: bool = True  # rule U5
    knows_its_own: bool = True  # rule U5

    def start(self) -> State:
        """Return a state with one due row."""
        actors = (Actor(claims=2), Actor(claims=1), Actor())
        nothing: frozenset[tuple[str, str, int]] = frozenset()
        return State(0, Row(0, 0, 1, ""), actors, (), nothing, frozenset(), 1)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Let time pass, a write arrive, or a process continue."""
        if state.now < NOW_MAX:
            yield "time passes", state._replace(now=state.now + 1)
        for write in state.sent:
            held, there = self._apply(state._replace(sent=state.sent - {write}), write)
            if held:
                yield f"a late {write.what} arrives", there
        for number, actor in enumerate(state.actors):
            name = "the operator" if number == OPERATOR else f"worker {number + 1}"
            for words, there, after in self._act(state, actor, number):
                yield f"{name} {words}", there._replace(actors=put(there.actors, number, after))

    def fault(self, state: State) -> str:
        """Compare recorded outcomes with written effects."""
        if state.wrong:
            return state.wrong
        if len(state.recorded) > 1:
            return "two outcomes are recorded"
        written = {(outcome, name) for outcome, name, _ in state.effects}
        if any(outcome not in state.recorded for outcome, _ in written):
            return "effects of an outcome that is not recorded"
        if len(written) < len(state.effects):
            return "an effect exists twice"
        if state.row is None and any(
            (outcome, name) not in written for outcome in state.recorded for name in EFFECTS
        ):
            return "the row is deleted before its effects"
        return "" if state.row or state.recorded else "the row is deleted without an outcome"

    def _act(  # noqa: PLR0912  (one branch for each step of the protocol)
        self, state: State, one: Actor, number: int
    ) -> Iterator[tuple[str, State, Actor]]:
        idle = Actor(claims=one.claims)
        match one.at:
            case "idle" if number == OPERATOR:
                if state.row and not (state.row.outcome and self.cancels_only_the_open):
                    yield "reads the row", state, Actor("decide", state.row.token, None, "cancel")
            case "idle":
                if state.row and state.row.at <= state.now and one.claims:
                    token = 10 * (number + 1) + one.claims
                    read = Actor("claim", token, state.row, "", one.claims - 1)
                    yield "reads the row", state, read
            case "claim":
                yield from self._claim(state, one, idle)
            case "ask whose":
                row = state.row
                if row and row.token == one.token:
                    outcome = row.outcome if self.sees_outcomes_at_read_back else ""
                    yield "reads back: mine", *self._held(state, one, row, outcome)
                else:
                    yield "reads back: not mine", state, idle
            case "decide":
                yield from self._decide(state, one, idle)
            case "ask whether":
                row = state.row
                if row is not None and row.token == _fresh(one):
                    decided = one._replace(at="result", token=_fresh(one), repeats=0)
                    yield "reads back its outcome", state, decided
                elif row is not None and row.token == one.token:
                    yield "reads back that it has none", state, one._replace(at="decide")
                else:
                    yield "reads back another outcome", state, idle
                repeats = 0 if self.derives_tokens else 1
                unread = one._replace(at="decide", repeats=repeats)
                yield "cannot read back", state, unread
            case "result" | "successor" | "drop":
                yield from self._follow(state, one, idle, number)

    def _claim(self, state: State, one: Actor, idle: Actor) -> Iterator[tuple[str, State, Actor]]:
        assert one.seen
        claim = Write("claim", one.token, one.seen, at=state.now + LEASE)
        held, there = self._apply(state, claim)
        if held:
            assert state.row
            yield "claims it", *self._held(there, one, state.row, one.seen.outcome)
        else:
            yield "is rejected", state, idle
        if state.unknowns:
            yield (
                "claims it, without a response",
                _send(state, claim),
                one._replace(at="ask whose", seen=None),
            )

    def _held(self, state: State, one: Actor, row: Row, outcome: str) -> tuple[State, Actor]:
        """Run the handler, or repeat the effects of the outcome that was seen."""
        if outcome and self.replays_without_running:
            return state, one._replace(at="result", seen=None, outcome=outcome)
        if row.outcome:
            state = state._replace(wrong="a handler starts after an outcome")
        first = "decide" if self.outcome_before_effects else "result"
        return state, one._replace(at=first, seen=None, outcome=f"done {one.token}")

    def _decide(self, state: State, one: Actor, idle: Actor) -> Iterator[tuple[str, State, Actor]]:
        fresh = _fresh(one) if self.moves_to_a_fresh_token else one.token
        write = Write("outcome", one.token, fresh=fresh, outcome=one.outcome, at=state.now + LEASE)
        held, there = self._apply(state, write)
        first = "result" if self.outcome_before_effects and self.drop_after_effects else "drop"
        decided = one._replace(at=first, token=fresh, repeats=0)
        row = state.row
        if held:
            yield "writes its outcome", there, decided
        elif row is not None and row.token == fresh and self.knows_its_own:
            yield "is rejected because of itself", state, decided
        else:
            if row is not None and row.token == _fresh(one._replace(repeats=0)):
                state = state._replace(wrong="a recorded outcome is reported as rejected")
            yield "is rejected", state, idle
        if state.unknowns:
            yield (
                "writes its outcome, without a response",
                _send(state, write),
                one._replace(at="ask whether"),
            )

    def _follow(
        self, state: State, one: Actor, idle: Actor, number: int
    ) -> Iterator[tuple[str, State, Actor]]:
        """Write the effects, and delete the row."""
        if one.at == "drop":
            drop = Write("drop", one.token)
            after = one._replace(at="result") if not self.drop_after_effects else idle
            if number == OPERATOR:
                after = after._replace(at="end") if self.drop_after_effects else after
            yield "deletes the row", self._apply(state, drop)[1], after
            if state.unknowns:
                yield "deletes the row, without a response", _send(state, drop), after
            return
        effect = (one.outcome, one.at, 0 if self.derives_ids else number)
        there = state._replace(effects=state.effects | {effect})
        after = one._replace(at="successor")
        if one.at == "successor":
            last = "drop" if self.outcome_before_effects else "decide"
            after = one._replace(at=last if self.drop_after_effects else "end")
        yield f"writes the {one.at}", there, after

    def _apply(self, state: State, write: Write) -> tuple[bool, State]:
        """Apply a write if its condition holds; return whether it did."""
        row = state.row
        if row is None:
            return False, state
        if write.what == "claim":
            assert write.seen
            same = row.token == write.seen.token
            if not self.claims_by_token:
                same = row.fence == write.seen.fence
            if not same or row.at != write.seen.at:
                return False, state
            return True, state._replace(row=Row(row.fence + 1, write.at, write.token, row.outcome))
        if row.token != write.token:
            return False, state
        if write.what == "drop":
            return True, state._replace(row=None)
        at = max(row.at, write.at) if write.outcome != "cancel" else row.at
        new = Row(row.fence, at, write.fresh, write.outcome)
        return True, state._replace(row=new, recorded=(*state.recorded, write.outcome))


def _fresh(one: Actor) -> int:
    """Return the token that an outcome is written with."""
    return one.token + (200 if one.outcome == "cancel" else 100) + 300 * one.repeats


def _send(state: State, write: Write) -> State:
    return state._replace(sent=state.sent | {write}, unknowns=state.unknowns - 1)


MODELS = {"two workers and an operator": Outcomes()}
MUTANTS = {
    "effects before the outcome": Outcomes(outcome_before_effects=False),
    "the row is deleted before its effects": Outcomes(drop_after_effects=False),
    "the handler runs after an outcome": Outcomes(replays_without_running=False),
    "a read back ignores the outcome": Outcomes(sees_outcomes_at_read_back=False),
    "a claim by the fence": Outcomes(claims_by_token=False),
    "an outcome keeps the token": Outcomes(moves_to_a_fresh_token=False),
    "a cancel after an outcome": Outcomes(cancels_only_the_open=False),
    "effects under new ids": Outcomes(derives_ids=False),
    "each outcome write has another token": Outcomes(derives_tokens=False),
    "a rejection is not verified": Outcomes(knows_its_own=False),
}
