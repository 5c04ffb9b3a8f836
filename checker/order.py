"""Whether one order explains what a job's claims and verdicts were answered.

A row is a register: a claim puts its token there, a verdict goes by while its own token is there.
Two calls that overlap in time may have happened in either order, and one without an answer may
have happened at any time after it was asked for, or never. If no order makes every answer true,
something answered that it should not have. The rules of `ends` and `starts` compare two events;
this one takes them all together.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from checker.journal import Event
from checker.timeline import Fault, Life, Seen, is_ok

SEARCHED_MAX = 20_000
"""States of one job; a search beyond them is given up, and counted."""


class Call(NamedTuple):
    """Something that took effect between two instants; one without an answer: or never."""

    f: str
    fence: int
    token: str
    began_us: float
    over_us: float


class Row(NamedTuple):
    """What a job's row holds. token: empty for one that no claim made."""

    fence: int
    token: str
    has_ended: bool


def unexplained(life: Life, seen: Seen) -> Iterator[Fault]:
    """Find a job whose claims and verdicts no order explains."""
    few = len(life.claim) < 2 and len(life.settle) < 3  # noqa: PLR2004
    if few and not (life.release or life.extend or life.carry):
        return
    explained = _search(_calls(life, seen))
    if explained is None:
        seen.given_up += 1
    elif not explained:
        yield "was answered what no order of its claims and verdicts explains", life.all()


def _calls(life: Life, seen: Seen) -> list[Call]:
    """List what may have happened, the first to be over first."""
    verdicts = (life.settle, life.release, life.extend, life.carry)
    claims = [claim for claim in life.claim if claim.token and claim.type != "no"]
    fences = {claim.token: claim.attempt for claim in claims}
    calls = [
        Call(
            "claim", claim.attempt, claim.token, seen.asked.get(claim.token, claim.t),
            claim.t if is_ok(claim) else math.inf,
        )
        for claim in claims
    ]  # fmt: skip
    for event in chain(*verdicts):  # by a claim whose answer nobody wrote down
        if event.token in seen.asked and event.token not in fences:
            fences[event.token] = event.attempt
            asked_us = seen.asked[event.token]
            calls.append(Call("claim", event.attempt, event.token, asked_us, math.inf))
    for given in verdicts:
        for call in _answered(given):
            if call.token in fences:
                calls.append(call)
            elif call.f == "carry":  # it may have come back to life
                calls.append(call._replace(token="", over_us=math.inf))
    return sorted(calls, key=lambda call: (call.over_us, call.began_us))


def _answered(given: Iterable[Event]) -> Iterator[Call]:
    """Pair questions with answers: those of one process, about one token, to one end."""
    asked: dict[tuple[str, str, int], list[Event]] = defaultdict(list)
    for event in given:
        same = asked[event.proc, event.token, event.at]
        if event.type == "invoke":
            same.append(event)
            continue
        first = same.pop(0) if same else event
        if event.type != "no":
            over_us = event.t if is_ok(event) else math.inf
            yield Call(event.f, event.attempt, event.token, first.t, over_us)
    for same in asked.values():
        for event in same:
            yield Call(event.f, event.attempt, event.token, event.t, math.inf)


def _search(calls: Sequence[Call]) -> bool | None:
    """Tell whether some order explains the calls; None where it takes too long to say."""
    sure = sum(1 << place for place, call in enumerate(calls) if call.over_us != math.inf)
    begin = (0, Row(0, "", has_ended=False))
    seen = {begin}
    left = [begin]
    while left:
        taken, row = left.pop()
        if taken & sure == sure:
            return True
        if len(seen) > SEARCHED_MAX:
            return None
        open_ = [place for place in range(len(calls)) if not taken >> place & 1]
        until_us = calls[open_[0]].over_us  # whatever began later comes later
        may_be_next = [
            (calls[place].f, (taken | 1 << place, after))
            for place in open_
            if calls[place].began_us <= until_us and (after := _after(row, calls[place]))
        ]
        extended = [state for f, state in may_be_next if f == "extend"]  # it changes nothing
        for state in extended[:1] or [state for _, state in reversed(may_be_next)]:
            if state not in seen:
                seen.add(state)
                left.append(state)
    return False


def _after(row: Row, call: Call) -> Row | None:
    """Tell what a row holds after a call, None where it would have been refused."""
    if call.f == "claim":
        # What has ended may be claimed, too: to be cleared away.
        return row._replace(fence=call.fence, token=call.token) if call.fence > row.fence else None
    is_mine = call.token == row.token
    if call.f == "carry":
        if not call.token:
            return row._replace(has_ended=False)
        return Row(row.fence, "", has_ended=False) if is_mine or row.has_ended else None
    if not is_mine:
        return None
    return row if call.f == "extend" else Row(row.fence, "", has_ended=call.f == "settle")
