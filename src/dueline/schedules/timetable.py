"""Store the jobs of schedules if no maintenance leader does.

The leader stores them first. Every worker checks them a little later, and stores what is missing
(rule Z6). So a schedule needs no leader, and does not wait for an election.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from dueline.coordination import worker_registry
from dueline.core.clock import SECOND_US
from dueline.jobs.queue import Queues
from dueline.schedules import schedule as definition
from dueline.schedules import scheduler
from dueline.schedules.schedule import Schedule, Stored

OVERDUE_US: Final = SECOND_US // 2
"""How long the leader has for an occurrence that is decided at its time."""

SPARE_US: Final = definition.AHEAD_US // 2
"""A job that is stored ahead of its time is overdue if it is missing this long before."""

CHECK_US: Final = SECOND_US
"""Minimum time between checks of the first two workers; the n-th waits n - 1 times as long."""

REST_US: Final = 10 * SECOND_US
"""Maximum time between checks, likewise: a schedule may be new, or have changed."""

RANK_MAX: Final = 10
"""Maximum of that factor: the first workers may all die at once."""


class Checked(NamedTuple):
    """What a check did: when to check again, and the skews of the jobs that it stored."""

    rest_us: int
    skews_us: Sequence[int]


class Timetable:
    """One worker's view of all schedules; in steps, without a thread."""

    def __init__(self, queues: Queues, worker: str) -> None:
        self._queues = queues
        self._worker = worker
        self._rank = 1
        self._ranked_us: int | None = None
        self._left: dict[str, bytes] = {}

    def step(self) -> Checked:
        """Store the jobs of schedules that are overdue."""
        queues = self._queues
        schedules = definition.all_stored(queues.engine.store)
        if not schedules and self._ranked_us is not None:  # the store's clock need not be read
            self._left.clear()
            return Checked(REST_US * self._rank, [])
        now_us = queues.engine.time.latest_us()
        self._left = {name: self._left[name] for name, *_ in schedules if name in self._left}
        next_us: int | None = None
        skews_us: list[int] = []
        for stored in schedules:
            at_us: int | None = self._overdue_us(stored)
            if at_us is not None and at_us <= now_us:
                at_us, stored_us = self._advance(stored.name)
                skews_us += stored_us
            if at_us is not None:
                next_us = at_us if next_us is None else min(next_us, at_us)
        self._rank_again(now_us)
        rest_us = REST_US * self._rank
        if next_us is None:
            return Checked(rest_us, skews_us)
        wait_us = max(next_us - queues.engine.time.earliest_us(), CHECK_US * self._rank)
        return Checked(min(wait_us, rest_us), skews_us)

    def _advance(self, name: str) -> tuple[int | None, list[int]]:
        """Advance one schedule; return when it is next overdue, and the skews of its jobs."""
        before = definition.stored(self._queues.engine.store, name)
        skews_us = scheduler.advance(self._queues, name)
        after = definition.stored(self._queues.engine.store, name)
        if after is None:
            return None, skews_us
        if before is None or after.version != before.version:
            self._left[name] = after.version
        return self._overdue_us(after), skews_us

    def _overdue_us(self, stored: Stored) -> int | None:
        """Return when a schedule needs this worker; None if nothing is to come.

        A schedule that no other process changed since has no leader: it is advanced in time.
        """
        schedule = stored.schedule
        if has_remains(schedule):
            return 0
        if schedule.is_paused:
            return None
        next_us = definition.next_time(schedule)
        if next_us is None:
            return None
        if schedule.timing.overlap == "allow":
            return next_us - SPARE_US
        return next_us if self._left.get(stored.name) == stored.version else next_us + OVERDUE_US

    def _rank_again(self, now_us: int) -> None:
        """Read periodically how many workers come before this one."""
        if self._ranked_us is None or not 0 <= now_us - self._ranked_us < REST_US:
            mine = _order_of(self._worker)
            before = sum(
                _order_of(name) < mine for name in worker_registry.names(self._queues.engine.store)
            )
            self._rank, self._ranked_us = min(max(1, before), RANK_MAX), now_us


def _order_of(worker: str) -> bytes:
    """Return the sort key of a worker: workers of one machine are spread out."""
    return blake2b(worker.encode(), digest_size=8).digest()


def has_remains(schedule: Schedule) -> bool:
    """Return whether a process left work on a schedule unfinished."""
    return bool(
        schedule.is_sending()
        or schedule.recalled
        or schedule.ended
        or schedule.is_leaving
        or schedule.held_us
    )
