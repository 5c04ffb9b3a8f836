"""Readings of marks, jobs of polls.

What many processes saw of one thing: whether a value that only grows ever fell, and which jobs
of a poll came after less urgent ones.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from dueline.diary import Event


def late_of(poll: Sequence[Event]) -> list[Event]:
    """Pick the jobs of a poll that came after less urgent ones."""
    late: list[Event] = []
    least = poll[0].priority
    for event in poll:
        if event.priority > least:
            late.append(event)
        least = min(least, event.priority)
    return late


def fallen(readings: Sequence[Event]) -> Iterator[tuple[str, Sequence[Event]]]:
    """Find the readings of a mark that are below one that had been over when they began."""
    asked: dict[str, int] = {}
    known: list[Event] = []
    highest: list[Event] = []
    for event in sorted(readings, key=lambda event: (event.t, event.type != "invoke")):
        if event.type == "invoke":
            asked[event.proc] = event.t
        elif event.type == "ok":
            began_us = asked.pop(event.proc, event.t)
            place = bisect_left(known, began_us, key=lambda one: one.t)
            if place and highest[place - 1].epoch > event.epoch:
                before = highest[place - 1]
                words = f"was {before.epoch}, then {event.epoch}"
                yield words, [before, event]
            known.append(event)
            highest.append(max([event, *highest[-1:]], key=lambda one: one.epoch))
