"""The checker, on random histories: legal ones, and those with one thing wrong."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hypothesis import assume, given
from hypothesis import strategies as st

from checker import ENDED, Verdict, check
from checker.journal import Event, events_of, line_of

LEASE_US = 10_000
STEPS = 60
NONE, OTHER = "", "other"
"""Tokens."""

ANSWERED = 0.8
"""The share of calls whose answer is seen."""


@dataclass(slots=True)
class Row:
    """A job of the model. held: by the claim that its token is of."""

    name: str
    due: int
    at: int
    fence: int = 0
    token: str = ""
    held: bool = False
    ended: bool = False
    stored: bool = True
    acknowledged: bool = False


@dataclass(slots=True)
class Hold:
    """A claim as its worker sees it."""

    row: Row
    attempt: int
    token: str
    proc: str
    started: bool = False


@dataclass(slots=True)
class Model:
    """A queue that obeys the rules, in one thread, and its history."""

    chance: random.Random
    now: int = 1_000_000
    epoch: int = 0
    lives: int = 3
    procs: list[str] = field(default_factory=lambda: ["w0", "w1", "w2"])
    rows: list[Row] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    history: list[Event] = field(default_factory=list)

    def tell(self, event: Event) -> None:
        self.now += self.chance.randint(1, 500)
        self.history.append(replace(event, t=self.now))

    def step(self) -> None:
        self.now += self.chance.choice((0, 0, 100, 3000, LEASE_US))
        act = self.chance.choice(
            (self.enqueue, self.claim, self.claim, self.start, self.start, self.settle,
             self.release, self.extend, self.crash, self.mark)
        )  # fmt: skip
        act()

    def enqueue(self) -> None:
        due = self.now + self.chance.choice((-500, 0, 5000))
        row = Row(f"j{len(self.rows)}", due, due)
        self.rows.append(row)
        asked = Event(0, "p", "invoke", "enqueue", row.name, at=due)
        self.tell(asked)
        if self.chance.random() < ANSWERED:
            row.acknowledged = True
            self.tell(replace(asked, type="ok"))
        else:
            row.stored = self.chance.random() < 0.5
            if self.chance.random() < 0.5:
                self.tell(replace(asked, type="unknown"))

    def claim(self) -> None:
        free = [row for row in self.rows if row.stored and not row.ended and row.at <= self.now]
        if free:
            self.take(self.chance.choice(free))

    def take(self, row: Row) -> Hold:
        row.fence, row.held = row.fence + 1, True
        row.token, row.at = f"{row.name}/{row.fence}", self.now + LEASE_US
        proc = self.chance.choice(self.procs)
        hold = Hold(row, row.fence, row.token, proc)
        self.tell(Event(0, proc, "invoke", "claim", token=row.token))
        told = Event(0, proc, "ok", "claim", row.name, row.fence, row.token, at=row.at)
        if self.chance.random() < ANSWERED:
            self.tell(told)
            self.holds.append(hold)
        elif self.chance.random() < 0.5:
            self.tell(replace(told, type="unknown", at=0))
            self.holds.append(hold)
        return hold

    def start(self) -> None:
        waiting = [hold for hold in self.holds if not hold.started]
        if waiting:  # it may be late: another may have claimed, and ended, the job meanwhile
            hold = self.chance.choice(waiting)
            hold.started = True
            self.now = max(self.now, hold.row.due)
            self.tell(Event(0, hold.proc, "ok", "start", hold.row.name, hold.attempt))

    def settle(self) -> None:
        if hold := self.judged("settle", 0):
            hold.row.ended = True

    def release(self) -> None:
        at = self.now + self.chance.choice((0, 2000))
        if hold := self.judged("release", at):
            hold.row.at, hold.row.held, hold.row.token = at, False, f"{hold.token}!"

    def extend(self) -> None:
        at = self.now + LEASE_US
        if hold := self.judged("extend", at, over=False):
            hold.row.at = at

    def judged(self, f: str, at: int, *, over: bool = True) -> Hold | None:
        """Give a verdict on a claim; answer the claim if it held."""
        if not self.holds:
            return None
        hold = self.chance.choice(self.holds)
        row = hold.row
        if over:
            hold.started = True  # whoever gave a verdict starts no more
        held = row.token == hold.token and not row.ended
        asked = Event(0, hold.proc, "invoke", f, row.name, hold.attempt, hold.token, at=at)  # type: ignore[arg-type]  # one of Event.f
        self.tell(asked)
        if self.chance.random() < ANSWERED:
            self.tell(replace(asked, type="ok" if held else "no"))
        elif f == "extend":
            return None
        return hold if held else None

    def crash(self) -> None:
        place = self.chance.randrange(len(self.procs))
        gone, self.procs[place] = self.procs[place], f"w{self.lives}"
        self.lives += 1
        self.tell(Event(0, gone, "ok", "crash"))
        for hold in [hold for hold in self.holds if hold.proc == gone]:
            self.holds.remove(hold)
            if hold.row.token == hold.token and self.chance.random() < 0.5:
                hold.row.at = self.now  # a chore frees what the dead hold

    def mark(self) -> None:
        self.epoch += self.chance.choice((0, 1))
        self.tell(
            Event(0, self.chance.choice(self.procs), "ok", "mark", "closed", epoch=self.epoch)
        )

    def drain(self) -> dict[str, str]:
        """End what is left; say how each job ended."""
        for row in self.rows:
            while row.stored and not row.ended:
                self.now = max(self.now, row.at)
                hold = self.take(row)
                self.tell(Event(0, hold.proc, "ok", "settle", row.name, hold.attempt, hold.token))
                row.ended = True
        return {row.name: "done" for row in self.rows if row.stored}


def legal(chance: random.Random) -> tuple[list[Event], dict[str, str]]:
    model = Model(chance)
    for _ in range(STEPS):
        model.step()
    return model.history, model.drain()


class Corruption(NamedTuple):
    """A history with one thing wrong, and what the checker has to call it."""

    verdict: Verdict
    history: list[Event]
    final: dict[str, str]


Corrupt = Callable[[list[Event], dict[str, str], random.Random], Corruption | None]


def _chosen(
    history: Sequence[Event], chance: random.Random, f: str, type_: str = "ok"
) -> Event | None:
    some = [event for event in history if (event.f, event.type) == (f, type_)]
    return chance.choice(some) if some else None


def lose(history: list[Event], final: dict[str, str], chance: random.Random) -> Corruption | None:
    acked = _chosen(history, chance, "enqueue")
    state = chance.choice(("gone", "ready", "running", "retrying"))
    return Corruption("lost", history, {**final, acked.id: state}) if acked else None


def forget_the_enqueue(
    history: list[Event], final: dict[str, str], chance: random.Random
) -> Corruption | None:
    start = _chosen(history, chance, "start")
    if start is None:
        return None
    left = [event for event in history if (event.f, event.id) != ("enqueue", start.id)]
    return Corruption("unexpected", left, final)


def start_twice(
    history: list[Event], final: dict[str, str], chance: random.Random
) -> Corruption | None:
    start = _chosen(history, chance, "start")
    return (
        Corruption("illegitimate", [*history, replace(start, t=start.t + 1)], final)
        if start
        else None
    )


def start_after_the_end(
    history: list[Event], final: dict[str, str], chance: random.Random
) -> Corruption | None:
    end = _chosen(history, chance, "settle")
    if end is None:
        return None
    claim = Event(end.t + 10**8, "thief", "ok", "claim", end.id, 999, "stolen", at=end.t + 10**9)
    start = Event(end.t + 10**8 + 1, "thief", "ok", "start", end.id, 999)
    return Corruption("illegitimate", [*history, claim, start], final)


def start_beside_a_living_claim(
    history: list[Event], final: dict[str, str], chance: random.Random
) -> Corruption | None:
    """Let another claim and start a job just after a start, while its claim holds."""
    start = _chosen(history, chance, "start")
    if start is None:
        return None
    same = [one for one in history if (one.id, one.attempt) == (start.id, start.attempt)]
    claims = [one for one in same if one.f == "claim" and one.type == "ok"]
    between = [one for one in history if one.t <= start.t and one.f == "crash"]
    if not claims or claims[0].at <= start.t + 2 or between:
        return None
    if any(one.f == "release" and one.t <= start.t + 2 for one in same):
        return None
    others = [one for one in history if one.id == start.id and one.attempt > start.attempt]
    left = [one for one in history if one not in others]
    claim = replace(claims[0], t=start.t + 1, proc="thief", attempt=start.attempt + 1, token=OTHER)
    again = replace(start, t=start.t + 2, proc="thief", attempt=start.attempt + 1)
    return Corruption("illegitimate", [*left, claim, again], final)


def accept_a_stale_verdict(
    history: list[Event], final: dict[str, str], chance: random.Random
) -> Corruption | None:
    some = [
        event
        for event in history
        if event.type == "no"
        and any(
            one.id == event.id
            and one.type == "ok"
            and one.t < event.t - 600  # before the verdict was asked for
            and (
                (one.f == "claim" and one.attempt > event.attempt)
                or (one.f == "release" and one.token == event.token)
            )
            for one in history
        )
    ]
    if not some:
        return None
    stale = chance.choice(some)
    return Corruption(
        "stale", [replace(one, type="ok") if one is stale else one for one in history], final
    )


def finish_again(
    history: list[Event], final: dict[str, str], chance: random.Random
) -> Corruption | None:
    end = _chosen(history, chance, "settle")
    return (
        Corruption("finished twice", [*history, replace(end, t=end.t + 10**7)], final)
        if end
        else None
    )


def extend_after_the_end(
    history: list[Event], final: dict[str, str], chance: random.Random
) -> Corruption | None:
    end = _chosen(history, chance, "settle")
    if end is None:
        return None
    again = replace(end, t=end.t + 10**7, f="extend", at=end.t + 10**8)
    return Corruption("unexplained", [*history, again], final)


def start_early(
    history: list[Event], final: dict[str, str], chance: random.Random
) -> Corruption | None:
    start = _chosen(history, chance, "start")
    if start is None:
        return None
    at = start.t + 1001
    later = [
        replace(one, at=at) if (one.f, one.id) == ("enqueue", start.id) else one for one in history
    ]
    return Corruption("early", later, final)


def claim_again_with_a_fence(
    history: list[Event], final: dict[str, str], chance: random.Random
) -> Corruption | None:
    claim = _chosen(history, chance, "claim")
    again = claim and replace(claim, t=claim.t + 10**7, proc="thief", token=OTHER)
    return Corruption("backwards", [*history, again], final) if again else None


def claim_with_an_old_fence(
    history: list[Event], final: dict[str, str], chance: random.Random
) -> Corruption | None:
    claim = _chosen(history, chance, "claim")
    again = claim and replace(claim, t=claim.t + 10**7, proc="thief", token=OTHER, attempt=0)
    return Corruption("backwards", [*history, again], final) if again else None


def lower_a_mark(
    history: list[Event], final: dict[str, str], chance: random.Random
) -> Corruption | None:
    mark = _chosen(history, chance, "mark")
    lower = mark and replace(mark, t=mark.t + 10**7, epoch=mark.epoch - 1)
    return Corruption("backwards", [*history, lower], final) if lower else None


def poll_out_of_order(
    history: list[Event], final: dict[str, str], chance: random.Random
) -> Corruption | None:
    claim = _chosen(history, chance, "claim")
    late = claim and replace(claim, t=claim.t + 1, id="more urgent", attempt=1, priority=7)
    return Corruption("order", [*history, late], final) if late else None


CORRUPT: tuple[Corrupt, ...] = (
    lose, forget_the_enqueue, start_twice, start_after_the_end, start_beside_a_living_claim,
    accept_a_stale_verdict, finish_again, extend_after_the_end, start_early,
    claim_again_with_a_fence, claim_with_an_old_fence, lower_a_mark, poll_out_of_order,
)  # fmt: skip


@given(st.integers(0, 2**32))
def test_a_legal_history_is_passed(seed: int) -> None:
    chance = random.Random(seed)
    history, final = legal(chance)
    told = events_of(b"".join(map(line_of, history)))
    assert told == history
    told.sort(key=lambda event: event.proc)  # as files are read, one after the other
    report = check(told, final, prefetch=0)
    assert [finding.story() for finding in report.findings] == []
    assert sum(report.counts.get(state, 0) for state in ENDED) == len(final)


@given(st.integers(0, 2**32), st.sampled_from(CORRUPT))
def test_one_thing_that_is_wrong_is_found(seed: int, corrupt: Corrupt) -> None:
    chance = random.Random(seed)
    corrupted = corrupt(*legal(chance), chance)
    assume(corrupted is not None)
    assert corrupted is not None
    verdict, history, final = corrupted
    report = check(history, final, prefetch=0)
    assert verdict in {finding.verdict for finding in report.findings}
