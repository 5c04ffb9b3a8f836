"""Search for an order that explains the responses to a job's claims and outcomes.

A row is a register: a claim writes its token, and an outcome takes effect while its own token is
there. Two calls that overlap in time may have taken effect in either order, and one without a
response at any time after the request, or never. If no order makes every response true, a response
was wrong. The rules of `ends` and `starts` compare two events; this rule uses all of them.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from checker.journal import Event
from checker.timeline import Fault, JobEvents, RunFacts, is_ok

SEARCHED_MAX = 20_000
"""Maximum number of states for one job; a longer search is abandoned, and counted."""


class Call(NamedTuple):
    """A call that took effect between two times; without a response, perhaps never."""

    f: str
    fence: int
    token: str
    began_us: float
    over_us: float


class Row(NamedTuple):
    """State of a job's row. token: empty if no claim wrote it."""

    fence: int
    token: str
    has_ended: bool


def unexplained(life: JobEvents, seen: RunFacts) -> Iterator[Fault]:
    """Yield a fault if no order explains the job's claims and outcomes."""
    few = len(life.claim) < 2 and len(life.settle) < 3  # noqa: PLR2004
    if few and not (life.release or life.extend or life.carry):
        return
    explained = _search(_calls(life, seen))
    if explained is None:
        seen.given_up += 1
    elif not explained:
        yield "has responses that no order of its claims and outcomes explains", life.all()


def _calls(life: JobEvents, seen: RunFacts) -> list[Call]:
    """Return the calls that may have taken effect, by the time of their responses."""
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
    for event in chain(*verdicts):  # of a claim without a recorded response
        if event.token in seen.asked and event.token not in fences:
            fences[event.token] = event.attempt
            asked_us = seen.asked[event.token]
            calls.append(Call("claim", event.attempt, event.token, asked_us, math.inf))
    for given in verdicts:
        for call in _answered(given):
            if call.token in fences:
                calls.append(call)
            elif call.f == "carry":  # it may have been redriven
                calls.append(call._replace(token="", over_us=math.inf))
    return sorted(calls, key=lambda call: (call.over_us, call.began_us))


def _answered(given: Iterable[Event]) -> Iterator[Call]:
    """Pair requests with responses of one process, for one token and one time."""
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
    """Return the row after a call, or None if the call would be rejected."""
    if call.f == "claim":
        # An ended row may also be claimed, to be cleaned up.
        return row._replace(fence=call.fence, token=call.token) if call.fence > row.fence else None
    is_mine = call.token == row.token
    if call.f == "carry":
        if not call.token:
            return row._replace(has_ended=False)
        return Row(row.fence, "", has_ended=False) if is_mine or row.has_ended else None
    if not is_mine:
        return None
    return row if call.f == "extend" else Row(row.fence, "", has_ended=call.f == "settle")
