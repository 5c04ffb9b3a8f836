"""Schedules: their occurrences, which of them were missed, and their records.

Occurrences have nominal times, given by a cron expression (`dueline.schedules.cron`) or an
interval.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Final, Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dueline.core.call_options import Carried
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import encode
from dueline.core.errors import BadInput
from dueline.core.ids import derived
from dueline.core.job import JobId
from dueline.core.readable_records import readable, value_at
from dueline.core.store import Commit, Delete, Put, Records
from dueline.schedules.cron import cron_of

CatchUp = Literal["skip", "last", "all"]
Overlap = Literal["allow", "skip", "wait", "replace"]
OVERLAPS: Final[tuple[Overlap, ...]] = get_args(Overlap)

PARTITION: Final = "schedules"

AHEAD_US: Final = 60 * SECOND_US
"""How long jobs are stored ahead of their time; no process is needed for that long."""

LATE_US: Final = 60 * SECOND_US
"""An occurrence counts as missed when it is later than this."""

EVERY_US_MIN: Final = SECOND_US
NICKNAMES: Final[Mapping[str, str]] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
"""The cron expressions that have names."""

CATCH_UP: Final = 100
"""Default maximum number of missed occurrences that run with catch_up="all"."""

CATCH_UP_MAX: Final = 1000
TIMES_MAX: Final = 10_000
ENDED_KEEP_US: Final = 7 * DAY_US
"""How long a schedule that no code declares is listed after its end."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_COUNTED_MAX: Final = 1000


class Template(Carried, frozen=True, gc=False):
    """The call of each occurrence.

    expires_us: how long after its time it may start; 0: always.
    """

    task: str
    queue: str
    codec: int
    body: bytes
    priority: int = 0
    tenant: str = ""
    expires_us: int = 0
    window_us: int = 0
    limits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Timing:
    """When occurrences are: a cron expression in a time zone, an interval, or one timestamp.

    start_us: intervals count from here. at_us: the only occurrence. until_us, times: no occurrence
    is later than this, and there are up to `times` of them; 0: no end. last_us: none is later,
    because of both; see `anchored`. catch_up: which missed occurrences run: none, the last, or
    all, up to `catch_up_max`. overlap: what happens to an occurrence while the job before it waits
    or runs: it makes a job anyway (allow); it makes none (skip); one occurrence waits until the job
    has ended (wait); the job is cancelled, and then the last occurrence makes a job (replace).
    """

    cron: str = ""
    zone: str = "UTC"
    every_us: int = 0
    start_us: int = 0
    catch_up: CatchUp = "skip"
    catch_up_max: int = CATCH_UP
    overlap: Overlap = "allow"
    at_us: int = 0
    until_us: int = 0
    times: int = 0
    last_us: int = 0

    def has_end(self) -> bool:
        """Return whether there is a last occurrence."""
        return bool(self.at_us or self.until_us or self.times)

    @property
    def end_us(self) -> int:
        """Until when there may be occurrences; 0: without an end."""
        return self.at_us or self.last_us


class PlannedJob(NamedTuple):
    """The key of an occurrence's job: a repeated insert writes the same row."""

    nominal_us: int
    pos_us: int
    shard: int
    bucket: int


class Skip(NamedTuple):
    """Consecutive occurrences without a job: the reason, how many, the first and the last."""

    why: str
    times: int
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is stored, with its progress.

    seed: of the ids of its jobs; changes with the schedule. through_us: all occurrences up to here
    are handled. births: jobs that are being inserted into a store without transactions, since
    `sent_us`. recalled, recalled_us: ids of stored jobs to cancel, and their occurrences. stored,
    skipped: numbers of occurrences so far. is_leaving: it is deleted once these are done. last: id
    of the last stored job, if jobs must not overlap. untold: skipped occurrences to record in the
    history. held_us: the occurrence that waits for the last job to end; 0: none. ended: id of a job
    to cancel for it, also if it runs. is_dynamic: no code declares it, so it is deleted
    ENDED_KEEP_US after its last occurrence. taken_us: occurrences after `through_us` that are
    handled: a worker had their jobs before a change could cancel them (rule Z7).
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
    is_dynamic: bool = False
    recalled_us: tuple[int, ...] = ()
    taken_us: tuple[int, ...] = ()

    def is_sending(self) -> bool:
        """Return whether inserts into a store without transactions are unfinished."""
        return bool(self.births or self.untold)

    def has_ended(self, by_us: int) -> bool:
        """Return whether all of its occurrences are before a timestamp."""
        ends = self.timing.has_end() and not self.held_us
        return ends and next(times_after(self.timing, by_us), None) is None


class Stored(NamedTuple):
    """A schedule as it was read from the store."""

    name: str
    schedule: Schedule
    version: bytes


class Step(NamedTuple):
    """What to do now: the occurrences to store jobs for, and the schedule after that."""

    times_us: list[int]
    schedule: Schedule


# Times


def check_name(name: object) -> str:
    """Return the name of a schedule; raise BadInput if it is invalid."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInput(
            f"{name!r:.150} is not a valid schedule name.",
            hint="Use a letter or digit, then up to 127 of letters, digits, and _ . : -",
        )
    return name


def check(timing: Timing) -> None:
    """Check a timing.

    Raises: BadInput: a value is out of range.
    """
    if [bool(timing.cron), bool(timing.every_us), bool(timing.at_us)].count(True) != 1:
        raise BadInput("A schedule has either a cron expression, an interval or one time.")
    if timing.at_us and (timing.until_us or timing.times):
        raise BadInput("`at` is one occurrence: `until` and `count` do not apply.")
    if timing.every_us and timing.every_us < EVERY_US_MIN:
        raise BadInput("The interval must be at least one second.")
    if timing.catch_up not in ("skip", "last", "all"):
        raise BadInput(f"`catch_up` must be skip, last or all (got {timing.catch_up!r}).")
    if timing.overlap not in OVERLAPS:
        raise BadInput(f"`overlap` must be one of {', '.join(OVERLAPS)} (got {timing.overlap!r}).")
    if not 1 <= timing.catch_up_max <= CATCH_UP_MAX:
        raise BadInput(f"`catch_up_max` must be 1 to {CATCH_UP_MAX} (got {timing.catch_up_max}).")
    try:
        zone = ZoneInfo(timing.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadInput(
            f"There is no time zone {timing.zone!r:.80}.", hint="Name it as in Europe/Vilnius."
        ) from error
    if timing.cron:
        try:
            next(cron_of(timing.cron).after(timing.start_us, zone))
        except (ValueError, StopIteration) as error:
            raise BadInput(
                f"{timing.cron!r:.80} is not a cron expression with any occurrence: {error}.",
                hint='Write "30 3 * * mon-fri": minute, hour, day, month, day of the week.',
            ) from error


def anchored(timing: Timing, now_us: int, old: Timing | None) -> Timing:
    """Return the timing as it is stored: from when intervals count, and when it ends.

    Args:
        timing: As it was asked for.
        now_us: The current time.
        old: The stored one. If nothing about it changes, its occurrences still count.
    """
    if old is not None:
        start_us = timing.start_us or old.start_us
        if replace(timing, start_us=start_us, last_us=old.last_us) == old:
            return old
    timing = replace(timing, start_us=timing.start_us or now_us)
    last_us = timing.until_us
    if timing.times:
        nth_us = _nth(timing, now_us)
        last_us = min(nth_us, last_us or nth_us)
    return replace(timing, last_us=last_us)


def _nth(timing: Timing, now_us: int) -> int:
    """Return the last one of the occurrences that a timing counts, from now on."""
    with suppress(OverflowError, StopIteration):
        return next(islice(times_after(timing, now_us), timing.times - 1, None))
    raise BadInput(
        f"`count` is too large: {timing.times} occurrences do not end before the year 9999.",
        hint="Use a smaller one, or none.",
    )


def times_after(timing: Timing, after_us: int) -> Iterator[int]:
    """Yield the occurrences after a timestamp, in order."""
    if timing.last_us:
        return takewhile(timing.last_us.__ge__, _times_after(timing, after_us))
    return _times_after(timing, after_us)


def _times_after(timing: Timing, after_us: int) -> Iterator[int]:
    if timing.at_us:
        yield from (us for us in (timing.at_us,) if us > after_us)
        return
    if timing.every_us:
        number = max(0, (after_us - timing.start_us) // timing.every_us + 1)
        while True:
            yield timing.start_us + number * timing.every_us
            number += 1
    yield from cron_of(timing.cron).after(after_us, ZoneInfo(timing.zone))


def last_times(timing: Timing, after_us: int, until_us: int, most: int) -> list[int]:
    """Return the last occurrences in a period, in order: after `after_us`, up to `until_us`."""
    until_us = min(until_us, timing.last_us or until_us)
    if timing.at_us:
        return [us for us in times_after(timing, after_us) if us <= until_us]
    if timing.every_us:
        last = (until_us - timing.start_us) // timing.every_us
        first = max(0, (after_us - timing.start_us) // timing.every_us + 1, last - most + 1)
        return [timing.start_us + n * timing.every_us for n in range(first, last + 1)]
    return cron_of(timing.cron).last(after_us, until_us, most, ZoneInfo(timing.zone))


def step(schedule: Schedule, now_us: int, lives: Callable[[bytes], bool] = bool) -> Step:
    """Return which occurrences to store jobs for now, and the schedule after that.

    Args: lives: returns whether the job with an id waits or runs; called where that matters. By
      default each job does.
    """
    timing, through_us = schedule.timing, schedule.through_us
    if schedule.is_paused or schedule.is_leaving:
        return Step([], schedule)
    times: list[int] = []
    skips: list[Skip] = []
    if through_us < now_us - LATE_US:
        missed = last_times(timing, through_us, now_us - LATE_US, _COUNTED_MAX)
        missed = [us for us in missed if us not in schedule.taken_us]
        kept = {"skip": 0, "last": 1, "all": timing.catch_up_max}[timing.catch_up]
        left_out = len(missed) - min(kept, len(missed))
        times = missed[left_out:]
        skips += _left_out("missed", missed[:left_out])
        through_us = now_us - LATE_US
    until_us = now_us + AHEAD_US
    ahead = takewhile(lambda us: us <= until_us, times_after(timing, through_us))
    times += [us for us in ahead if us not in schedule.taken_us]
    through_us = until_us
    last, held_us, ended = schedule.last, 0, b""
    if schedule.held_us:
        times.insert(0, schedule.held_us)
    if timing.overlap != "allow":
        now_us = max(now_us, schedule.held_us)  # it has come, by another process's clock at least
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
        taken_us=tuple(us for us in schedule.taken_us if us > through_us),
    )
    return Step(times, after)


def _alone(
    overlap: Overlap, times: list[int], now_us: int, *, is_free: bool
) -> tuple[list[int], int, list[int]]:
    """Return the occurrence that makes a job, the one that waits, and those that are skipped.

    A future occurrence is left open while the job before it is alive (rule Z4).
    """
    come = [us for us in times if us <= now_us]
    if overlap == "replace" and come:  # the last one replaces all earlier ones
        return (come[-1:], 0, come[:-1]) if is_free else ([], come[-1], come[:-1])
    made = times[:1] if is_free else []
    rest = come[len(made) :]
    kept = 1 if overlap == "wait" else 0
    return made, rest[0] if kept and rest else 0, rest[kept:]


def _left_out(why: str, times: list[int]) -> list[Skip]:
    return [Skip(why, len(times), times[0], times[-1])] if times else []


def next_decision_us(schedule: Schedule, now_us: int) -> int | None:
    """Return when to decide whether the next occurrence makes a job; None: it always does."""
    if schedule.timing.overlap == "allow" or schedule.is_paused or schedule.is_leaving:
        return None
    if schedule.held_us:
        return now_us
    next_us = next_time(schedule)
    return None if next_us is None else max(now_us, next_us)


def next_time(schedule: Schedule) -> int | None:
    """Return the first occurrence that is not handled yet; None after the last one."""
    times = times_after(schedule.timing, schedule.through_us)
    return next((us for us in times if us not in schedule.taken_us), None)


def without_held(schedule: Schedule) -> Schedule:
    """Return the schedule with the waiting occurrence skipped, if there is one."""
    if not schedule.held_us:
        return schedule
    held = tuple(_left_out("overlap", [schedule.held_us]))
    return replace(schedule, held_us=0, ended=b"", skipped=schedule.skipped + 1, untold=held)


def job_id(schedule: Schedule, nominal_us: int) -> JobId:
    """Return the job id of an occurrence: the same in every process."""
    return JobId(derived(schedule.seed, nominal_us))


def coming(schedule: Schedule, now_us: int, count: int) -> list[int]:
    """Return the next occurrences; none while the schedule is paused."""
    if schedule.is_paused:
        return []
    return list(islice(times_after(schedule.timing, now_us), count))


def withdrawn(schedule: Schedule, now_us: int) -> dict[bytes, int]:
    """Return the jobs to cancel when a schedule changes: those of future occurrences.

    Returns: their ids with the times of their occurrences.
    """
    jobs = recalled_jobs(schedule)
    if schedule.is_paused or schedule.is_leaving:
        return jobs
    times = takewhile(lambda us: us <= schedule.through_us, times_after(schedule.timing, now_us))
    return jobs | {job_id(schedule, us): us for us in times}


def recalled_jobs(schedule: Schedule) -> dict[bytes, int]:
    """Return the ids of the jobs to cancel, with the times of their occurrences."""
    return dict(zip(schedule.recalled, schedule.recalled_us, strict=True))


def with_withdrawn(schedule: Schedule, old: Schedule, now_us: int) -> Schedule:
    """Return a changed schedule that cancels the future jobs of the old one (rules Z3 and Z7)."""
    jobs = withdrawn(old, now_us)
    return replace(
        schedule,
        recalled=tuple(jobs),
        recalled_us=tuple(jobs.values()),
        taken_us=old.taken_us,
    )


def after_recall(schedule: Schedule, kept: Mapping[bytes, int], last: bytes) -> Schedule:
    """Return the schedule after its recalled jobs were cancelled, but for some (rule Z7).

    Args:
        schedule: The schedule.
        kept: Ids of those that a worker had before, with the times of their occurrences.
        last: Id of the last one that still waits or runs; empty for none.
    """
    taken_us = tuple(sorted({*schedule.taken_us, *kept.values()}))
    last = last or schedule.last
    return replace(schedule, recalled=(), recalled_us=(), ended=b"", taken_us=taken_us, last=last)


def is_needed(schedule: Schedule, now_us: int) -> bool:
    """Return whether a removed schedule still says which occurrences are handled (rule Z7)."""
    return any(us > now_us - LATE_US for us in schedule.taken_us)


def has_same_times(timing: Timing, old: Timing) -> bool:
    """Return whether two timings have the same occurrences, but for where they end."""
    return _times_of(timing) == _times_of(old)


def _times_of(timing: Timing) -> tuple[object, ...]:
    zone, start_us = timing.cron and timing.zone, timing.every_us and timing.start_us
    return timing.cron, zone, timing.every_us, start_us, timing.at_us


def before_change(schedule: Schedule, now_us: int) -> bytes:
    """Return the id of the last job before a schedule changes."""
    if schedule.timing.overlap != "allow":
        return schedule.last
    former = last_times(schedule.timing, 0, now_us, 1)
    return job_id(schedule, former[0]) if former else schedule.last


# Records


def stored(records: Records, name: str) -> Stored | None:
    """Read a schedule; None if it does not exist."""
    schedule, version = value_at(records, PARTITION, name, Schedule)
    return None if schedule is None else Stored(name, schedule, version)


def all_stored(records: Records) -> list[Stored]:
    """Read all schedules, by name; damaged ones are omitted."""
    return [
        Stored(record.key, schedule, record.version)
        for record, schedule in readable(records, PARTITION, Schedule)
    ]


def put(name: str, schedule: Schedule, *, version: bytes, expect: bytes) -> Commit:
    """Return the write of a schedule, if it is unchanged since it was read, or new."""
    return Commit(PARTITION, (Put(name, version, encode(schedule), expect=expect),))


def remove(record: Stored) -> Commit:
    """Return the write that deletes a schedule, if it is unchanged since it was read."""
    return Commit(PARTITION, (Delete(record.name, expect=record.version),))
