"""Checks of the tokens that workers take of rates."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from checker import EARLY_US_MAX
from checker.journal import Event
from dueline.core.clock import SECOND_US
from dueline.core.job import Claim
from dueline.core.lane import limits_of
from dueline.core.limit_names import semaphore_of
from dueline.core.store import Claimed, Store
from dueline.limits.rate import Rate
from simulation.link import Link
from simulation.world import Process, World

RATES: Final[Mapping[str, Rate]] = {
    "steady": Rate(3, SECOND_US),
    "per": Rate(1, SECOND_US // 2),
    "bucket": Rate(4, SECOND_US, burst=2),
}
"""A window, a window for each key, and a token bucket."""

BEHIND_US: Final = 12 * SECOND_US
"""So long a process may go by the time that it was before its machine slept: until it asks the
store for the time again, after ten seconds, and a little more."""

UNDER_WAY_US: Final = 2 * SECOND_US
"""Maximum time until a write arrives."""

NOT_JUDGED: Final = -1
_METERS: Final = "meters/"


class Taken(NamedTuple):
    """A claim of jobs with a rate. at_us: time for which the tokens were taken."""

    at_us: int
    limit: str
    worker: str
    jobs: int


class Watch:
    """Sees what processes write of rates, and what their claims bring then.

    taken: tokens of acknowledged claims; others start nothing. blurred: times at which a process
    with a late clock wrote which limits; it may then return tokens that another process has taken
    since.
    """

    def __init__(self, world: World, reach: Callable[[Link], Store]) -> None:
        """Take the world, and the function that connects to the store."""
        self.taken: list[Taken] = []
        self.blurred: list[tuple[int, str]] = []
        self._world = world
        self._reach = reach

    def reach(self, link: Link) -> Store:
        """Connect to a store, observed by this watch."""
        store: Any = self._reach(link)
        commit, claim, worker = store.commit, store.claim, link.process.name
        written_us: dict[str, int] = {}

        def watched_commit(partition: str, writes: Sequence[Any]) -> bool:
            asked_us = self._world.now_us
            is_behind = self._is_behind(link.process)
            is_written: bool = commit(partition, writes)
            if is_written and partition.startswith(_METERS):
                for put in writes:
                    written_us[put.key] = NOT_JUDGED if is_behind else asked_us
                self.blurred += [(asked_us, put.key) for put in writes if is_behind]
            return is_written

        def watched_claim(wants: Sequence[Any], **terms: Any) -> Claimed:  # noqa: ANN401
            claimed: Claimed = claim(wants, **terms)
            counts: dict[str, int] = {}
            for job in claimed.jobs:
                for name in limits_of(job.lane):
                    if semaphore_of(name) in RATES:
                        counts[name] = counts.get(name, 0) + 1
            taken = [Taken(written_us[name], name, worker, n) for name, n in counts.items()]
            self.taken += [take for take in taken if take.at_us != NOT_JUDGED]
            return claimed

        store.commit, store.claim = watched_commit, watched_claim
        return cast("Store", store)

    def _is_behind(self, process: Process) -> bool:
        """Return whether a process may not know yet how long its machine was suspended."""
        return process.stood_us > 0 and self._world.now_us < process.asleep_us + BEHIND_US


def over_rate(taken: Sequence[Taken], blurred: Sequence[tuple[int, str]] = ()) -> list[str]:
    """Tell where more was taken in a span than its rate allows (rule N5).

    Not of what was taken while a process that was behind wrote of a limit, nor of both what was
    taken before and after.
    """
    faults: list[str] = []
    for name in sorted({take.limit for take in taken}):
        clear = sorted(take for take in taken if take.limit == name)
        for at_us in sorted(us for us, limit in blurred if limit == name):
            faults += _over_in([take for take in clear if take.at_us < at_us - UNDER_WAY_US])
            clear = [take for take in clear if take.at_us > at_us + UNDER_WAY_US]
        faults += _over_in(clear)
    return faults


def _over_in(taken: Sequence[Taken]) -> Iterator[str]:
    """Return where one limit was exceeded; `taken` is in order."""
    for place, first in enumerate(taken):
        rate = RATES[semaphore_of(first.limit)]
        jobs = 0
        for take in taken[place:]:
            span_us = take.at_us - first.at_us
            if not rate.burst and span_us >= rate.per_us:
                break
            jobs += take.jobs
            most = rate.count
            if rate.burst:
                most = rate.burst + span_us * rate.count // rate.per_us
            if jobs > most:
                yield f"{first.limit}: {jobs} jobs from {first} to {take}"
                break


class Closing(NamedTuple):
    """A handler's closing of limits: the claim, the time when it is known, and its end."""

    limits: Sequence[str]
    since_us: int
    until_us: int


def closings(events: Sequence[Event], said: Mapping[Claim, Sequence[str]]) -> list[Closing]:
    """Return when limits were closed. said: limits of the claims that closed them.

    A limit is closed before its worker releases the job. If the outcome is unknown, nothing is
    checked. Moving the job after its worker has decided closes nothing.
    """
    named = {(claim.job_id.hex(), claim.fence): limits for claim, limits in said.items()}
    decided: dict[tuple[str, int], Event] = {}
    closings = []
    for event in events:
        claim = (event.id, event.attempt)
        if claim not in named or event.f not in {"release", "settle"}:
            continue
        first = decided.setdefault(claim, event)
        if event.type == "ok" and (event.f, event.at) == ("release", first.at):
            closings.append(Closing(named[claim], event.t, event.at))
    return closings


def too_soon(taken: Sequence[Taken], closed: Sequence[Closing]) -> list[str]:
    """Tell where something was taken of a rate that was closed.

    Not of what was taken when its worker may have taken the time for that of the opening.
    """
    return [
        f"{take} though it was closed: {closing}"
        for closing in closed
        for take in taken
        if take.limit in closing.limits
        and closing.since_us < take.at_us < closing.until_us - EARLY_US_MAX
    ]
