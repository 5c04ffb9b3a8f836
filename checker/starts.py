"""Rules about the starts of jobs. Each rule yields the faults of one job."""

from collections.abc import Iterator

from checker.journal import Event
from checker.timeline import Fault, JobEvents, RunFacts, began, claim_of, is_ok, is_refused, may_be

EARLY_US_MAX = 1000
"""Maximum error of a process's estimate of the store's time, for a start or a lease's end."""


def illegitimate(life: JobEvents, seen: RunFacts) -> Iterator[Fault]:
    """Yield starts while another claim was valid, or after the job's end."""
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
                words = (f"was started under claim {start.attempt} although nothing ended"
                        f" claim {before.attempt}")  # fmt: skip
                yield words, life.all()
            else:
                seen.again[reason] += 1


def repeated(life: JobEvents, seen: RunFacts) -> Iterator[Fault]:  # noqa: ARG001  (a rule)
    """Yield what ran again after a section that must not repeat (rules P14, P15).

    A body that raised may be repeated. After one without a response the job does not start again,
    and after one that ended no later claim begins another, unless the job was redriven.
    """
    begun = [event for event in life.section if event.type == "invoke"]
    responses = {event.attempt: event.type for event in life.section if event.type != "invoke"}
    for first in begun:
        response = responses.get(first.attempt, "unknown")
        again = {"unknown": life.start, "ok": begun}.get(response, [])
        for later in again:
            if later.attempt > first.attempt and not life.is_revived(first.t, later.t):
                words = f"ran again under claim {later.attempt} after a section of claim"
                yield f"{words} {first.attempt}", [first, later]
                break


def _end_before(start: Event, life: JobEvents, seen: RunFacts) -> Event | None:
    """Return the end of the job before a later claim was taken and started, or None."""
    for end in life.settle:
        if end.type == "ok" and end.attempt < start.attempt and end.t <= start.t:
            claim = claim_of(life, start.attempt)
            is_stale = claim is not None and claim.t <= began(end, life.settle, seen)
            if not is_stale and not life.is_revived(began(end, life.settle, seen), start.t):
                return end
    return None


def _reason(before: Event, start: Event, life: JobEvents, seen: RunFacts) -> str | None:
    """Return what ended the claim of one start before the next, or None."""
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
        return "claimed without a response"
    following = claim_of(life, start.attempt)
    taken_us = following.t if following and following.type == "ok" else start.t
    return "expired" if 0 < _lease_end(claim, life) <= taken_us + EARLY_US_MAX else None


def _lease_end(claim: Event, life: JobEvents) -> int:
    ends = [event.at for event in life.extend if event.attempt == claim.attempt and is_ok(event)]
    return max([claim.at, *ends])


def early(life: JobEvents, seen: RunFacts) -> Iterator[Fault]:  # noqa: ARG001  (a rule)
    """Yield starts before the due time of the job or of its retry."""
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
            elif is_ok(move):  # moved while it waited
                asked_us = least_us = move.at
            else:
                asked_us, least_us = min(asked_us, move.at), min(least_us, move.at)
        if start.t < least_us - EARLY_US_MAX:
            yield f"was started {least_us - start.t} µs before its due time", life.all()


def _moves(life: JobEvents) -> list[tuple[int, int, Event]]:
    """Return the calls that moved the job, or may have: attempt, time of the request, last event.

    They are in the order in which they took effect: each names the token that the previous one
    wrote, and so was sent after it.
    """
    last: dict[tuple[str, str, str, int], list[tuple[int, int, Event]]] = {}
    for event in (*life.release, *life.carry):
        calls = last.setdefault((event.f, event.proc, event.token, event.at), [])
        if event.type == "invoke" or not calls:  # or it repeats a call that had no answer
            calls.append((event.attempt, event.t, event))
        else:
            calls[-1] = (event.attempt, calls[-1][1], event)
    known = (move for calls in last.values() for move in calls if may_be(move[2]))
    return sorted(known, key=lambda move: move[:2])
