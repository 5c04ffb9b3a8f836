"""When a call recurs, what of it was missed.

Times are nominal: those that a cron expression or an interval names, whenever they are seen to.
Cron expressions mean what Debian's cron makes of them, where clocks are set forward and back too
(cronsim): what names an hour runs once a day, what recurs within the hour runs in every hour.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice, takewhile
from typing import Final, Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from dueline.core.clock import SECOND_US, to_datetime, to_us
from dueline.core.codec import decode, encode
from dueline.core.errors import BadInput
from dueline.core.ids import derived
from dueline.core.job import JobId
from dueline.core.pagination import record_at
from dueline.core.readable_records import readable
from dueline.core.store import Commit, Delete, Put, Records

CatchUp = Literal["skip", "last", "all"]
Overlap = Literal["allow", "skip", "wait", "replace"]
OVERLAPS: Final[tuple[Overlap, ...]] = get_args(Overlap)

PARTITION: Final = "schedules"

AHEAD_US: Final = 60 * SECOND_US
"""Jobs are stored so long before their time: as many seconds may nobody see to schedules."""

LATE_US: Final = 60 * SECOND_US
"""What is no later than this was not missed."""

EVERY_US_MIN: Final = SECOND_US
JOBS_A_STEP: Final = 500
CATCH_UP: Final = 100
"""How many missed times are made up for where nobody says how many."""

CATCH_UP_MAX: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_COUNTED_MAX: Final = 1000
_FOLD_US: Final = 2 * 3600 * SECOND_US
"""More than any clock is set back by."""


@dataclass(frozen=True, slots=True)
class Template:
    """What is called each time. expires_us: so long after its time it is not run; 0: always."""

    task: str
    queue: str
    codec: int
    body: bytes
    priority: int = 0
    tenant: str = ""
    tags: tuple[str, ...] = ()
    expires_us: int = 0
    window_us: int = 0
    limits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Timing:
    """When it is: by a cron expression in a time zone, or every so many microseconds.

    start_us: intervals count from here. catch_up: which of the times that were missed are made
    up for: none, the last one, or all, of which there are `catch_up_max` at most. overlap: what
    becomes of a time that comes while the job before it waits or runs: a job all the same (allow),
    none (skip), one when that has ended (wait; for one time only), or that is ended for it
    (replace; once it has ended, the last such time makes a job).
    """

    cron: str = ""
    zone: str = "UTC"
    every_us: int = 0
    start_us: int = 0
    catch_up: CatchUp = "skip"
    catch_up_max: int = CATCH_UP
    overlap: Overlap = "allow"


class PlannedJob(NamedTuple):
    """The key that the job of a time was given: a repeat comes to the same row."""

    nominal_us: int
    pos_us: int
    shard: int
    bucket: int


class Skip(NamedTuple):
    """Times that made no job, one after the other: why, how many, the first and the last."""

    why: str
    times: int
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is stored, and how far it has come.

    seed: what the ids of its jobs come from; another after each change. through_us: all times up
    to here are seen to. births: jobs that are on their way into a store without transactions,
    since `sent_us`. recalled: ids of stored jobs that are to be cancelled. stored, skipped: how
    many times there were so far. is_leaving: it goes when that is done. last: id of the job that
    was stored last, where its jobs must not overlap. untold: what was left out, and is to be told.
    held_us: the time that waits for that job to end; 0: none. ended: id of a job that is to end
    for it, even where it runs.
    """

    template: Template
    timing: Timing
    seed: bytes
    through_us: int
    is_paused: bool = False
    is_leaving: bool = False
    births: tuple[PlannedJob, ...] = ()
    sent_us: int = 0
    recalled: tuple[bytes, ...] = ()
    stored: int = 0
    skipped: int = 0
    last: bytes = b""
    untold: tuple[Skip, ...] = ()
    held_us: int = 0
    ended: bytes = b""

    def is_sending(self) -> bool:
        """Tell whether something is on its way into a store without transactions."""
        return bool(self.births or self.untold)


class Stored(NamedTuple):
    """A schedule as it lies in the store."""

    name: str
    schedule: Schedule
    version: bytes


class Step(NamedTuple):
    """What is to be done now: the times to store jobs for, and the schedule after that."""

    times_us: list[int]
    schedule: Schedule


# Times


def check_name(name: object) -> str:
    """Let a schedule's name pass, or say what is wrong with it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInput(
            f"{name!r:.150} is no name of a schedule.",
            hint="Use a letter or digit, then up to 127 of letters, digits, and _ . : -",
        )
    return name


def check(timing: Timing) -> None:
    """Let a timing pass, or say what is wrong with it.

    Raises: BadInput.
    """
    if bool(timing.cron) == bool(timing.every_us):
        raise BadInput("A schedule has either a cron expression or an interval.")
    if timing.every_us and timing.every_us < EVERY_US_MIN:
        raise BadInput("An interval is at least one second.")
    if timing.catch_up not in ("skip", "last", "all"):
        raise BadInput(f"catch_up={timing.catch_up!r} is none of skip, last, all.")
    if timing.overlap not in OVERLAPS:
        raise BadInput(f"overlap={timing.overlap!r} is none of {', '.join(OVERLAPS)}.")
    if not 1 <= timing.catch_up_max <= CATCH_UP_MAX:
        raise BadInput(f"At most {CATCH_UP_MAX} missed times are made up for, and at least 1.")
    try:
        zone = ZoneInfo(timing.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadInput(
            f"There is no time zone {timing.zone!r:.80}.", hint="Name it as in Europe/Vilnius."
        ) from error
    if timing.cron:
        try:
            next(CronSim(timing.cron, to_datetime(timing.start_us).astimezone(zone)))
        except (CronSimError, StopIteration) as error:
            raise BadInput(
                f"{timing.cron!r:.80} is no cron expression that ever comes true: {error}.",
                hint='Write "30 3 * * mon-fri": minute, hour, day, month, day of the week.',
            ) from error


def times_after(timing: Timing, after_us: int) -> Iterator[int]:
    """Name the times behind an instant, in order."""
    if timing.every_us:
        number = max(0, (after_us - timing.start_us) // timing.every_us + 1)
        while True:
            yield timing.start_us + number * timing.every_us
            number += 1
    begin = to_datetime(after_us).astimezone(ZoneInfo(timing.zone))
    # Begun inside an hour that comes twice, the first answer may lie before the beginning.
    yield from (us for us in map(to_us, CronSim(timing.cron, begin)) if us > after_us)


def last_times(timing: Timing, after_us: int, until_us: int, most: int) -> list[int]:
    """Name the last times of a stretch, in order: behind `after_us`, up to `until_us`."""
    if timing.every_us:
        last = (until_us - timing.start_us) // timing.every_us
        first = max(0, (after_us - timing.start_us) // timing.every_us + 1, last - most + 1)
        return [timing.start_us + n * timing.every_us for n in range(first, last + 1)]
    end = to_datetime(until_us).astimezone(ZoneInfo(timing.zone))
    back = map(to_us, CronSim(timing.cron, end + timedelta(microseconds=1), reverse=True))
    earlier = list(islice(takewhile(lambda us: us > after_us, back), most))
    # Backwards, the days on which clocks are set may read otherwise: forwards is what counts.
    begin_us = max(after_us, min(earlier, default=until_us) - _FOLD_US)
    times = takewhile(lambda us: us <= until_us, times_after(timing, begin_us))
    return list(times)[-most:]


def step(schedule: Schedule, now_us: int, lives: Callable[[bytes], bool] = bool) -> Step:
    """Tell which times to store jobs for now; none where nothing is to be done.

    Args: lives: tells of the job with an id whether it waits or runs, and is asked where that
      counts; by default it does.
    """
    timing, through_us = schedule.timing, schedule.through_us
    if schedule.is_paused or schedule.is_leaving:
        return Step([], schedule)
    times: list[int] = []
    skips: list[Skip] = []
    if through_us < now_us - LATE_US:
        missed = last_times(timing, through_us, now_us - LATE_US, _COUNTED_MAX)
        kept = {"skip": 0, "last": 1, "all": timing.catch_up_max}[timing.catch_up]
        left_out = len(missed) - min(kept, len(missed))
        times = missed[left_out:]
        skips += _left_out("missed", missed[:left_out])
        through_us = now_us - LATE_US
    until_us = now_us + AHEAD_US
    coming = takewhile(lambda us: us <= until_us, times_after(timing, through_us))
    ahead = list(islice(coming, JOBS_A_STEP))
    through_us = ahead[-1] if len(ahead) == JOBS_A_STEP else until_us
    times += ahead
    last, held_us, ended = schedule.last, 0, b""
    if schedule.held_us:
        times.insert(0, schedule.held_us)
    if timing.overlap != "allow":
        now_us = max(now_us, schedule.held_us)  # which has come, by another's clock at least
        through_us = max(now_us, schedule.through_us)
        is_free = not (last and times and lives(last))
        times, held_us, overlapping = _alone(timing.overlap, times, now_us, is_free=is_free)
        skips += _left_out("overlap", overlapping)
        if times:
            through_us, last = max(through_us, times[0]), job_id(schedule, times[0])
        elif timing.overlap == "replace" and held_us != schedule.held_us:
            ended = last
    if not (times or skips) and held_us == schedule.held_us:
        return Step([], schedule)
    after = replace(
        schedule,
        through_us=through_us,
        stored=schedule.stored + len(times),
        skipped=schedule.skipped + sum(skip.times for skip in skips),
        last=last,
        untold=tuple(skips),
        held_us=held_us,
        ended=ended,
    )
    return Step(times, after)


def _alone(
    overlap: Overlap, times: list[int], now_us: int, *, is_free: bool
) -> tuple[list[int], int, list[int]]:
    """Of times in order, pick the one that makes a job, the one that waits, those of no job.

    A time that is still to come is left open while the job before it lives (rule Z4).
    """
    come = [us for us in times if us <= now_us]
    if overlap == "replace" and come:  # the last takes the place of all before
        return (come[-1:], 0, come[:-1]) if is_free else ([], come[-1], come[:-1])
    made = times[:1] if is_free else []
    rest = come[len(made) :]
    kept = 1 if overlap == "wait" else 0
    return made, rest[0] if kept and rest else 0, rest[kept:]


def _left_out(why: str, times: list[int]) -> list[Skip]:
    return [Skip(why, len(times), times[0], times[-1])] if times else []


def next_decision_us(schedule: Schedule, now_us: int) -> int | None:
    """Tell when it is decided whether a time makes a job; None where that does not wait for it."""
    if schedule.timing.overlap == "allow" or schedule.is_paused or schedule.is_leaving:
        return None
    if schedule.held_us:
        return now_us
    return max(now_us, next(times_after(schedule.timing, schedule.through_us)))


def without_held(schedule: Schedule) -> Schedule:
    """Leave out the time that waits, if there is one."""
    if not schedule.held_us:
        return schedule
    held = tuple(_left_out("overlap", [schedule.held_us]))
    return replace(schedule, held_us=0, ended=b"", skipped=schedule.skipped + 1, untold=held)


def job_id(schedule: Schedule, nominal_us: int) -> JobId:
    """Name the job of a time: always the same, whoever stores it."""
    return JobId(derived(schedule.seed, nominal_us))


def coming(schedule: Schedule, now_us: int, count: int) -> list[int]:
    """Name the next times; none while it is paused."""
    if schedule.is_paused:
        return []
    return list(islice(times_after(schedule.timing, now_us), count))


def withdrawn(schedule: Schedule, now_us: int) -> tuple[bytes, ...]:
    """Name the jobs that are not to be any more once it changes: those of times to come."""
    if schedule.is_paused:
        return schedule.recalled
    times = takewhile(lambda us: us <= schedule.through_us, times_after(schedule.timing, now_us))
    return (*schedule.recalled, *(job_id(schedule, us) for us in times))


def before_change(schedule: Schedule, now_us: int) -> bytes:
    """Name the job that comes before the first one of a schedule that is changed."""
    if schedule.timing.overlap != "allow":
        return schedule.last
    former = last_times(schedule.timing, 0, now_us, 1)
    return job_id(schedule, former[0]) if former else schedule.last


# Records


def stored(records: Records, name: str) -> Stored | None:
    """Read a schedule; None where there is none of the name."""
    record = record_at(records, PARTITION, name)
    return None if record is None else _read(name, record.value, record.version)


def all_stored(records: Records) -> list[Stored]:
    """Read all schedules, by name; damaged ones are left out."""
    return [
        Stored(record.key, schedule, record.version)
        for record, schedule in readable(records, PARTITION, Schedule)
    ]


def _read(name: str, value: bytes, version: bytes) -> Stored:
    return Stored(name, decode(value, Schedule), version)


def put(name: str, schedule: Schedule, *, version: bytes, expect: bytes) -> Commit:
    """Make the write of a schedule where it still is what was read, or is not there yet."""
    return Commit(PARTITION, (Put(name, version, encode(schedule), expect=expect),))


def remove(found: Stored) -> Commit:
    """Make the write that takes a schedule away where it still is what was read."""
    return Commit(PARTITION, (Delete(found.name, expect=found.version),))
