"""Rules about watermarks, leases and polls."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from checker.journal import Event


def late_of(poll: Sequence[Event]) -> list[Event]:
    """Return the jobs of a poll that came after less urgent ones."""
    late: list[Event] = []
    least = poll[0].priority
    for event in poll:
        if event.priority > least:
            late.append(event)
        least = min(least, event.priority)
    return late


def fallen(readings: Sequence[Event]) -> Iterator[tuple[str, Sequence[Event]]]:
    """Yield reads of a watermark below an earlier, completed read."""
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


SWEPT, CLOSED = "swept ", "closed "
"""Prefixes of the names of a lane list's watermarks."""


def crossed(
    marks: Mapping[str, Sequence[Event]],
) -> Iterator[tuple[str, tuple[str, Sequence[Event]]]]:
    """Yield reads of `closed` below an earlier `swept`."""
    for name, readings in marks.items():
        if not name.startswith(SWEPT):
            continue
        swept = sorted((one for one in readings if one.type == "ok"), key=lambda one: one.t)
        other = CLOSED + name.removeprefix(SWEPT)
        asked: dict[str, int] = {}
        for event in marks.get(other, ()):
            if event.type == "invoke":
                asked[event.proc] = event.t
                continue
            began_us = asked.pop(event.proc, event.t)
            for before in swept:
                is_before = before.t <= began_us or (before.proc, before.t) == (event.proc, event.t)
                if is_before and event.type == "ok" and before.epoch > event.epoch:
                    words = f"is {event.epoch}, and {name} was {before.epoch}"
                    yield other, (words, [before, event])
                    break


def regranted(grants: Sequence[Event]) -> Iterator[tuple[str, Sequence[Event]]]:
    """Yield epochs of a lease that were granted more than once."""
    first: dict[int, Event] = {}
    for event in grants:
        if event.type == "ok" and first.setdefault(event.epoch, event) is not event:
            yield f"was granted twice with the epoch {event.epoch}", [first[event.epoch], event]
