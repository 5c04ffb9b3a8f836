"""Rules about the ends of jobs. Each rule yields the faults of one job."""

from collections.abc import Iterator
from itertools import pairwise

from checker.journal import Event
from checker.timeline import Fault, JobEvents, RunFacts, began, is_ok

ENDED = ("done", "dead", "cancelled", "expired", "lost")


def lost(life: JobEvents, state: str | None) -> Fault | None:
    """Return the fault of a job that was acknowledged and has not ended."""
    if not life.is_acknowledged():
        return None
    if state is None and any(event.type == "ok" for event in life.settle):
        return None
    if state in ENDED:
        return None
    return f"was acknowledged, and is {state or 'missing'}", life.all()


def stale(life: JobEvents, seen: RunFacts) -> Iterator[Fault]:
    """Yield outcomes that were accepted although their token was no longer the row's."""
    if not life.release and len({event.attempt for event in (*life.claim, *life.start)}) < 2:  # noqa: PLR2004
        return
    attempts = {event.token: event.attempt for event in life.claim if event.token}
    taken = [event for event in (*life.claim, *life.start) if is_ok(event)]
    for given in (life.settle, life.release, life.extend, life.carry):
        for verdict in filter(is_ok, given):
            attempt = attempts.get(verdict.token, verdict.attempt)
            began_us = began(verdict, given, seen)
            for later in taken:
                if later.attempt > attempt and (
                    later.t <= began_us or _is_passed(verdict, life, began_us, later)
                ):
                    words = f"accepted an outcome ({verdict.f}) of claim {attempt} after claim"
                    yield f"{words} {later.attempt}", life.all()
                    break
            else:
                # A row that is inserted again has the token of an insert again.
                if verdict.token in attempts and _is_released(verdict, life, began_us):
                    words = (
                        f"accepted an outcome ({verdict.f}) of claim {attempt} after its release"
                    )
                    yield words, life.all()


def _is_passed(verdict: Event, life: JobEvents, began_us: int, later: Event) -> bool:
    """Return whether a job started again before the answer to its end.

    A redriven job may: it had ended, and the answer came late.
    """
    is_in_between = verdict.f == "settle" and later.f == "start" and later.t < verdict.t
    return is_in_between and not life.is_revived(began_us, later.t)


def _is_released(verdict: Event, life: JobEvents, began_us: int) -> bool:
    return any(
        is_ok(event) and event.token == verdict.token and event.t <= began_us
        for event in life.release
        if event is not verdict
    )


def finished_twice(life: JobEvents, seen: RunFacts) -> Iterator[Fault]:
    """Yield ends after an end."""
    # In the order of their claims and requests: the first may be answered after the second ended.
    ends = sorted(
        filter(is_ok, life.settle),
        key=lambda event: (event.attempt, began(event, life.settle, seen)),
    )
    for first, second in pairwise(ends):
        if not life.is_revived(began(first, life.settle, seen), second.t):
            yield f"ended under claim {first.attempt} and under {second.attempt}", life.all()


def refenced(life: JobEvents, seen: RunFacts) -> Iterator[Fault]:
    """Yield claims whose fence is not above those before."""
    if len(life.claim) < 2:  # noqa: PLR2004
        return
    claims = sorted(filter(is_ok, life.claim), key=lambda event: (event.attempt, event.t))
    for first, second in pairwise(claims):
        if first.attempt == second.attempt:
            yield f"was claimed twice with the fence {first.attempt}", [first, second]
        elif second.t < seen.asked.get(first.token, first.t):
            yield f"was claimed with the fence {second.attempt}, then {first.attempt}", claims
