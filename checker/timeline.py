"""The events of a job."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from checker.journal import Event

Fault = tuple[str, Sequence[Event]]
"""A description of a fault, and the events that show it."""


@dataclass(slots=True)
class JobEvents:
    """A job's events by kind; the lists have the names of `Event.f`."""

    enqueue: list[Event] = field(default_factory=list)
    claim: list[Event] = field(default_factory=list)
    start: list[Event] = field(default_factory=list)
    section: list[Event] = field(default_factory=list)
    settle: list[Event] = field(default_factory=list)
    release: list[Event] = field(default_factory=list)
    extend: list[Event] = field(default_factory=list)
    carry: list[Event] = field(default_factory=list)

    def all(self) -> list[Event]:
        """Return all events."""
        return [
            *self.enqueue, *self.claim, *self.start, *self.section, *self.settle, *self.release,
            *self.extend, *self.carry,
        ]  # fmt: skip

    def is_acknowledged(self) -> bool:
        """Return whether an enqueue of the job was acknowledged."""
        return any(map(is_ok, self.enqueue))

    def is_attempted(self) -> bool:
        """Return whether the job may have been stored."""
        types = [event.type for event in self.enqueue]
        return "ok" in types or "unknown" in types or types.count("invoke") > types.count("no")

    def is_revived(self, after_us: int, before_us: int) -> bool:
        """Return whether the job was redriven in between."""
        return any(after_us <= event.t <= before_us and may_be(event) for event in self.carry)


@dataclass(slots=True)
class RunFacts:
    """Deaths of processes, and times of claim requests by token.

    again: reasons for repeated starts. given_up: number of jobs with too many calls to order.
    """

    crashes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    asked: dict[str, int] = field(default_factory=dict)
    again: Counter[str] = field(default_factory=Counter)
    given_up: int = 0


def claim_of(life: JobEvents, attempt: int) -> Event | None:
    """Return the claim that may have had a fence, or None."""
    for event in life.claim:
        if event.attempt == attempt and may_be(event):
            return event
    return None


def began(answer: Event, given: Sequence[Event], seen: RunFacts) -> int:
    """Return the earliest time of the request for a response."""
    if answer.f == "claim":
        return seen.asked.get(answer.token, answer.t)
    asked = [
        event.t
        for event in given
        if event.type == "invoke"
        and event.t <= answer.t
        and (event.proc, event.token, event.at) == (answer.proc, answer.token, answer.at)
    ]
    return max(asked, default=answer.t)


def is_refused(event: Event, given: Sequence[Event]) -> bool:
    """Return whether a request had no effect, according to its response."""
    if event.type != "invoke":
        return event.type == "no"
    place = given.index(event)
    for other in given[place + 1 :]:
        if (other.proc, other.token) == (event.proc, event.token):
            return other.type == "no"
    return False


def is_ok(event: Event) -> bool:
    """Return whether a call certainly took effect."""
    return event.type == "ok"


def may_be(event: Event) -> bool:
    """Return whether a call may have taken effect."""
    return event.type != "no"
