"""Whether jobs were started as often and as late as they may.

Each rule tells of what is wrong with one life.
"""

from collections.abc import Iterator

from checker.journal import Event
from checker.timeline import Fault, Life, Seen, began, claim_of, is_ok, is_refused, may_be

EARLY_US_MAX = 1000
"""How much too early a process may take the store's time to be, for a start or a lease's end."""


def illegitimate(life: Life, seen: Seen) -> Iterator[Fault]:
    """Find starts after which a claim had gone on, or its job had ended."""
    if len(life.start) < 2 and not life.settle:  # noqa: PLR2004
        return
    starts = sorted(life.start, key=lambda event: (event.attempt, event.t))
    for place, start in enumerate(starts):
        end = _end_before(start, life, seen)
        if end is not None:
            yield f"was started under claim {start.attempt} after its end", [end, start]
        elif place:
            before = starts[place - 1]
            if before.attempt == start.attempt:
                yield f"was started twice under claim {start.attempt}", [before, start]
                continue
            reason = _reason(before, start, life, seen)
            if reason is None:
                words = (f"was started under claim {start.attempt} though nothing is known that"
                        f" ended claim {before.attempt}")  # fmt: skip
                yield words, life.all()
            else:
                seen.again[reason] += 1


def _end_before(start: Event, life: Life, seen: Seen) -> Event | None:
    """Find the end of the job that came before a later claim was taken and started."""
    for end in life.settle:
        if end.type == "ok" and end.attempt < start.attempt and end.t <= start.t:
            claim = claim_of(life, start.attempt)
            is_stale = claim is not None and claim.t <= began(end, life.settle, seen)
            if not is_stale and not life.is_revived(began(end, life.settle, seen), start.t):
                return end
    return None


def _reason(before: Event, start: Event, life: Life, seen: Seen) -> str | None:
    """Say what ended the claim of one start before the next, None where nothing is known."""
    attempt = before.attempt
    for given in (life.release, life.carry):
        for event in given:
            if event.attempt == attempt and event.t <= start.t and not is_refused(event, given):
                return "released"
    claim = claim_of(life, attempt)
    since_us = min(before.t, claim.t) if claim else before.t
    for proc in {before.proc, claim.proc if claim else before.proc}:
        if any(since_us <= died_us <= start.t for died_us in seen.crashes.get(proc, ())):
            return "crashed"
    if claim is None:
        return None
    if claim.type == "unknown":
        return "claimed without an answer"
    following = claim_of(life, start.attempt)
    taken_us = following.t if following and following.type == "ok" else start.t
    return "expired" if 0 < _lease_end(claim, life) <= taken_us + EARLY_US_MAX else None


def _lease_end(claim: Event, life: Life) -> int:
    ends = [event.at for event in life.extend if event.attempt == claim.attempt and is_ok(event)]
    return max([claim.at, *ends])


def early(life: Life, seen: Seen) -> Iterator[Fault]:  # noqa: ARG001  (a rule)
    """Find starts before the job was due, or due again."""
    if not life.start:
        return
    due_us = max([event.at for event in life.enqueue], default=0)
    moves = _moves(life)
    claims = {event.token for event in life.claim}
    for start in life.start:
        asked_us = least_us = due_us
        for attempt, _, move in moves:
            if attempt >= start.attempt:
                break
            if move.token in claims:
                least_us = max(asked_us, move.at) if is_ok(move) else least_us
            elif is_ok(move):  # while it waited: it is due at another time
                asked_us = least_us = move.at
            else:
                asked_us, least_us = min(asked_us, move.at), min(least_us, move.at)
        if start.t < least_us - EARLY_US_MAX:
            yield f"was started {least_us - start.t} us before its time", life.all()


def _moves(life: Life) -> list[tuple[int, int, Event]]:
    """List what moved the job, or may have: attempt, when it was asked for, last that is known.

    In the order in which they happened: each names the token that the one before left, and so
    was asked for after that had happened.
    """
    last: dict[tuple[str, str, str, int], tuple[int, int, Event]] = {}
    for event in (*life.release, *life.carry):
        call = (event.f, event.proc, event.token, event.at)
        began_us = event.t if event.type == "invoke" or call not in last else last[call][1]
        last[call] = (event.attempt, began_us, event)
    known = (move for move in last.values() if may_be(move[2]))
    return sorted(known, key=lambda move: move[:2])
