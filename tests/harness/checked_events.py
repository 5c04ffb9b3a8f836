"""Events of one job, for histories that the checker reads."""

from dataclasses import replace
from typing import Literal

from checker.journal import Event

S = 1_000_000


LEASE = 2 * S


DONE = {"a": "done"}


ASK = Event(1 * S, "p", "invoke", "enqueue", "a", at=1 * S)


ACK = replace(ASK, t=ASK.t + 10, type="ok")


def claim(attempt: int, t: int, proc: str = "w1", *, by: str = "") -> Event:
    return Event(t, proc, "ok", "claim", "a", attempt, by or f"t{attempt}", at=t + LEASE)


def start(attempt: int, t: int, proc: str = "w1") -> Event:
    return Event(t, proc, "ok", "start", "a", attempt)


def verdict(
    f: str,
    attempt: int,
    t: int,
    proc: str = "w1",
    *,
    at: int = 0,
    by: str = "",
    answer: Literal["ok", "no", "unknown"] = "ok",
) -> list[Event]:
    """Make a verdict that is asked for at t and answered a little later."""
    asked = Event(t, proc, "invoke", f, "a", attempt, by or f"t{attempt}", at=at)  # type: ignore[arg-type]  # one of Event.f
    return [asked, replace(asked, t=t + 10, type=answer)]


BORN = [ASK, ACK]


CLAIM, START = claim(1, 2 * S), start(1, 2 * S + 100)


RUN = [*BORN, CLAIM, START]


END = verdict("settle", 1, 3 * S)


GOOD = [*RUN, *END]


LATER, AGAIN = claim(2, 5 * S, "w2"), start(2, 5 * S + 100, "w2")


AGAIN_END = verdict("settle", 2, 6 * S, "w2")


RELEASE = verdict("release", 1, 2 * S + 500, at=2 * S + 600)
