"""When waiting jobs are due: their numbers by time and priority."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.job import JobId
from dueline.core.job_status import status_of
from dueline.core.lane import Lane
from dueline.core.pagination import LANES_AT_ONCE, scan_each
from dueline.core.store import JobPage
from dueline.foresight.hours import expected, hours_of

BACK_US = 3600 * SECOND_US
AHEAD_US = 24 * 3600 * SECOND_US
SLOT_US = 1800 * SECOND_US
BANDS = ("high", "normal", "low")
"""Priorities above 0, 0, and below 0."""

READ_US_MAX = 2 * SECOND_US
"""Maximum time of reading, in microseconds: many times as long as thousands of jobs take."""

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
      is_capped: There may be more jobs than were counted.
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
    """What is due, slot by slot.

    Attributes:
      until_us: From here on, lanes were not read, for lack of time; None: all were read.
    """

    now_us: int
    slots: Sequence[Slot]
    until_us: int | None = None


@dataclass(slots=True)
class _LaneReader:
    """How far a lane was read.

    Attributes:
      at_us: None of its other jobs is due earlier.
      after: Where the next page begins.
      place: The slot of the last job that was read.
      in_place: How many jobs of that slot were read.
    """

    lane: Lane
    at_us: int
    after: tuple[int, JobId] | None = None
    place: int = -1
    in_place: int = 0


def timeline(engine: Engine, *, read_us_max: int = READ_US_MAX) -> Timeline:
    """Count waiting jobs by due time, from one hour ago to 24 hours ahead.

    Reading is bounded: where many jobs of a lane are in one slot, the rest of the slot is skipped.
    Lanes of all priorities are read in the order of time, so what is missing when the time is over
    is what is due last.
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
    readers, is_whole = _readers(engine, now_us, end_us, stop_us - read_us_max // 2)
    until_us = None if is_whole else begin_us
    while readers:
        readers.sort(key=_at_of, reverse=True)
        if engine.clock.monotonic_us() > stop_us:
            until_us = readers[-1].at_us if until_us is None else until_us
            break
        earliest = [readers.pop() for _ in range(min(LANES_AT_ONCE, len(readers)))]
        places = [(reader.lane, reader.after) for reader in earliest]
        pages = scan_each(engine.store, places, until_us=end_us, limit=_PAGE)
        for reader, page in zip(earliest, pages, strict=True):
            _count(reader, page, slots, now_us)
            if reader.after is not None:
                readers.append(reader)
    for slot in slots:
        slot.is_capped |= until_us is not None and slot.at_us + SLOT_US > until_us
    return Timeline(now_us, slots, until_us)


_at_of = attrgetter("at_us")


def _readers(
    engine: Engine, now_us: int, end_us: int, stop_us: int
) -> tuple[list[_LaneReader], bool]:
    """Return a reader of each lane; False: there may be more lanes, but it was `stop_us`."""
    readers: dict[Lane, _LaneReader] = {}
    for name in engine.catalog.names():
        for begins in engine.begins_of(name, now_us=now_us, until_us=end_us):
            for lane, begin_us in begins.items():
                known = readers.get(lane)
                if begin_us <= (known.at_us - 1 if known else end_us):
                    readers[lane] = _LaneReader(lane, begin_us)
            if engine.clock.monotonic_us() > stop_us:
                return list(readers.values()), False
    return list(readers.values()), True


def _count(reader: _LaneReader, page: JobPage, slots: Sequence[Slot], now_us: int) -> None:
    """Count the waiting jobs of a page, and go on after it: after its slot if that is full."""
    priority = reader.lane.priority
    band = BANDS[0] if priority > 0 else BANDS[1] if priority == 0 else BANDS[2]
    begin_us = slots[0].at_us
    for job in page.jobs:
        place = max(0, (job.at_us - begin_us) // SLOT_US)
        if place != reader.place:
            reader.place, reader.in_place = place, 0
        if not job.outcome and status_of(job, now_us) != "running":
            slots[place].counts[band] += 1
        reader.in_place += 1
    reader.after = page.after
    if reader.after is not None:
        if reader.in_place >= SLOT_MAX:
            slots[reader.place].is_capped = True
            reader.after = (slots[reader.place].at_us + SLOT_US - 1, _LAST_ID)
        reader.at_us = reader.after[0]
