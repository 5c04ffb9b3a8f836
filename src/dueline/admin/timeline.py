"""When waiting jobs are due: their numbers by time and priority."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.job import JobId
from dueline.core.job_status import status_of
from dueline.core.lane import Lane, bucket_of
from dueline.foresight.hours import expected, hours_of

BACK_US = 3600 * SECOND_US
AHEAD_US = 24 * 3600 * SECOND_US
SLOT_US = 1800 * SECOND_US
BANDS = ("high", "normal", "low")
"""Priorities above 0, 0, and below 0."""

READ_US_MAX = 100_000
"""Maximum time of reading, in microseconds."""

SLOT_MAX = 500
"""Number of jobs of one lane in one slot after which the next slot is read."""

_PAGE = 250
_LAST_ID = JobId(b"\xff" * 16)


@dataclass(slots=True)
class Slot:
    """The jobs that are due in one period.

    Attributes:
      at_us: Its begin. The first slot has all jobs that are due earlier, too.
      counts: Number of jobs in each of BANDS.
      is_capped: There are more jobs than were counted.
      expected: Between which numbers of jobs start in it, with 80 %, by the weeks before; None for
          the past, and without such a history.
    """

    at_us: int
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BANDS, 0))
    is_capped: bool = False
    expected: tuple[int, int] | None = None

    @property
    def total(self) -> int:
        """Number of jobs."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is due, slot by slot. is_capped: not all lanes were read."""

    now_us: int
    slots: Sequence[Slot]
    is_capped: bool = False


def timeline(engine: Engine, *, read_us_max: int = READ_US_MAX) -> Timeline:
    """Count waiting jobs by due time, from one hour ago to 24 hours ahead.

    Reading is bounded: where many jobs of a lane are in one slot, the rest of the slot is skipped.
    """
    now_us = engine.time.latest_us()
    begin_us = (now_us - BACK_US) // SLOT_US * SLOT_US
    slots = [Slot(at_us) for at_us in range(begin_us, now_us + AHEAD_US, SLOT_US)]
    hours = hours_of(engine)
    for slot in slots:
        if slot.at_us + SLOT_US > now_us:
            slot.expected = expected(hours, slot.at_us, SLOT_US)
    end_us = slots[-1].at_us + SLOT_US - 1
    stop_us = engine.clock.monotonic_us() + read_us_max
    for lane in _lanes(engine, end_us):
        if engine.clock.monotonic_us() > stop_us:
            return Timeline(now_us, slots, is_capped=True)
        _count(engine, lane, slots, now_us, end_us)
    return Timeline(now_us, slots)


def _lanes(engine: Engine, end_us: int) -> Iterator[Lane]:
    for name in engine.catalog.names():
        until = bucket_of(end_us, engine.catalog.settings(name).width_us)
        seen: set[Lane] = set()
        for page in engine.pages_of(name, until):
            for _, lane in page.pointers:
                head_us = page.heads.get(lane, 0)
                if lane not in seen and head_us is not None and head_us <= end_us:
                    seen.add(lane)
                    yield lane


def _count(engine: Engine, lane: Lane, slots: Sequence[Slot], now_us: int, end_us: int) -> None:
    """Count the jobs of a lane, at most SLOT_MAX and a page of each slot."""
    priority = lane.priority
    band = BANDS[0] if priority > 0 else BANDS[1] if priority == 0 else BANDS[2]
    begin_us = slots[0].at_us
    after: tuple[int, JobId] | None = None
    last, in_last = -1, 0
    while True:
        page = engine.store.scan(lane, after=after, until_us=end_us, limit=_PAGE)
        for job in page.jobs:
            place = max(0, (job.at_us - begin_us) // SLOT_US)
            if place != last:
                last, in_last = place, 0
            if not job.outcome and status_of(job, now_us) != "running":
                slots[place].counts[band] += 1
            in_last += 1
        after = page.after
        if after is None:
            return
        if in_last >= SLOT_MAX:
            slots[last].is_capped = True
            after = (slots[last].at_us + SLOT_US - 1, _LAST_ID)
