"""The list of durable functions that have records, by the minute in which they were listed.

A function is listed before its first record is written: by the claim that begins its log, or by
the process that signals or cancels it before that. Its entry is deleted last (rule D15). A minute
has four slices; another list names the minutes of each day, and a third the days.

`listed` yields what `dueline flows list` shows. Functions that were never claimed are not listed:
they are jobs of their queue.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.codec import Cells, decode, encode
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt
from dueline.core.features import FUNCTIONS
from dueline.core.job import Job, JobId
from dueline.core.pagination import records_in
from dueline.core.readable_records import Unreadable
from dueline.core.store import Commit, Delete, Group, Put, Record, Records

_DAYS: Final = "functions"
_MINUTE_US: Final = 60 * SECOND_US
_SLICES: Final = 4
_DIGITS: Final = 10  # of a minute
_MINUTES_A_DAY: Final = DAY_US // _MINUTE_US
_PAGE: Final = 500
_NO_JOB: Final = JobId(b"")
_ADVICE: Final = "The function counts as just listed. Delete the record if its key is not an id."


class Listed(Cells, frozen=True, gc=False, omit_defaults=True):
    """A function in the list. removed_us: when its records were deleted first; 0: not yet."""

    task: str
    removed_us: int = 0


_NEW: Final = Listed("")


class Place(NamedTuple):
    """The place of an entry: the minute, the slice, and the function."""

    minute: str
    slice: int
    job_id: JobId

    @property
    def partition(self) -> str:
        """Partition of the entry."""
        return f"{_DAYS}/minute/{self.minute}/{self.slice}"

    def begun_us(self) -> int:
        """Return the beginning of the minute."""
        return int(self.minute) * _MINUTE_US

    def to_text(self) -> str:
        """Return the place as a string that sorts as the list does."""
        return f"{self.minute}/{self.slice}/{self.job_id.hex()}"


def inbox_of(job_id: JobId) -> str:
    """Return the partition of what a durable function receives, whatever its generation."""
    return f"durable/{job_id.hex()}"


def partition_of(job_id: JobId, generation: int) -> str:
    """Return the partition of a log."""
    return f"{inbox_of(job_id)}/{generation}"


def values_of(job_id: JobId, generation: int) -> str:
    """Return the partition of the large values of a log."""
    return f"{partition_of(job_id, generation)}/values"


def add(engine: Engine, row: Job) -> None:
    """List a function, before its first record.

    Raises: StoreUnavailable: it is not known to be listed.
    """
    engine.store.together([listing(engine, row)])


def listing(engine: Engine, row: Job) -> Group:
    """Return the writes that list a function. It may be listed twice, which is harmless."""
    engine.catalog.adopt(FUNCTIONS)
    now_us = engine.time.latest_us()
    minute = f"{now_us // _MINUTE_US:0{_DIGITS}}"
    day_us = now_us // DAY_US * DAY_US
    place, token = Place(minute, row.id[-1] % _SLICES, row.id), engine.ids.token()
    minute_us = now_us // _MINUTE_US * _MINUTE_US
    commits = [
        Commit(_DAYS, (Put(_day_of(minute), token, b"", at_us=day_us),)),
        Commit(_minutes_in(_day_of(minute)), (Put(minute, token, b"", at_us=minute_us),)),
        Commit(place.partition, (_entry(place, token, Listed(row.task), now_us),)),
    ]
    return Group(commits=commits)


def mark_removed(engine: Engine, place: Place, entry: Listed) -> None:
    """Note that the records of a function were deleted, for the first time."""
    now_us = engine.time.latest_us()
    marked = Listed(entry.task, now_us)
    put = _entry(place, engine.ids.token(), marked, now_us)
    engine.store.commit(place.partition, (put,))


def remove(records: Records, place: Place) -> None:
    """Delete an entry."""
    records.commit(place.partition, (Delete(place.job_id.hex()),))


def remove_minute(records: Records, minute: str) -> None:
    """Delete a minute of the list if it is empty; nothing is listed in it any more."""
    for number in range(_SLICES):
        if records.read(Place(minute, number, _NO_JOB).partition, after=None, limit=1):
            return
    day = _day_of(minute)
    records.commit(_minutes_in(day), (Delete(minute),))
    if not records.read(_minutes_in(day), after=None, limit=1):
        records.commit(_DAYS, (Delete(day),))


def listed(records: Records) -> Iterator[tuple[JobId, str]]:
    """Yield the functions that have records and the names of their tasks, the newest minute first.

    A function that was listed twice is yielded twice.
    """
    for day in reversed(_numbers_in(records, _DAYS)):
        for minute in reversed(_numbers_in(records, _minutes_in(day))):
            entries = [
                (place.job_id, entry.task)
                for place, entry in _entries_in(records, minute, 0, None)
                if not entry.removed_us
            ]
            yield from sorted(entries, reverse=True)


def entries_after(records: Records, after: str) -> Iterator[tuple[Place, Listed | None]]:
    """Yield the entries after a place, the oldest first; None at the end of each minute.

    A damaged entry counts as if the function had just been listed. after: `Place.to_text`; empty
    for all.
    """
    first, _, rest = after.partition("/")
    number, _, digits = rest.partition("/")
    for day in _numbers_in(records, _DAYS):
        if day < (_day_of(first) if first else ""):
            continue
        for minute in _numbers_in(records, _minutes_in(day)):
            if minute < first:
                continue
            is_first = minute == first
            yield from _entries_in(
                records, minute, int(number) if is_first else 0, digits if is_first else None
            )
            yield Place(minute, _SLICES, _NO_JOB), None


def _entries_in(
    records: Records, minute: str, first: int, after: str | None
) -> Iterator[tuple[Place, Listed]]:
    """Yield the entries of a minute from a slice on, and in this slice after a key."""
    for number in range(first, _SLICES):
        partition = Place(minute, number, _NO_JOB).partition
        start = after if number == first else None
        for record in records_in(records, partition, after=start, page_size=_PAGE):
            job_id, entry = _read(record)
            if job_id is not None:
                yield Place(minute, number, job_id), entry or _NEW


def unreadable_in(records: Records, *, most: int) -> Iterator[Unreadable]:
    """Yield damaged entries of the list, of up to `most` that are read."""
    days = _numbers_in(records, _DAYS)
    minutes = (minute for day in days for minute in _numbers_in(records, _minutes_in(day)))
    partitions = (Place(minute, n, _NO_JOB).partition for minute in minutes for n in range(_SLICES))
    entries = ((part, record) for part in partitions for record in records_in(records, part))
    for partition, record in islice(entries, most):
        if None in _read(record):
            yield Unreadable(f"record {partition}/{record.key}", "It is no entry.", _ADVICE)


def _read(record: Record) -> tuple[JobId | None, Listed | None]:
    """Return the function and the entry of a record; each is None if it is damaged."""
    job_id, entry = None, None
    with suppress(ValueError):
        job_id = JobId(bytes.fromhex(record.key))
    with suppress(StoreCorrupt):
        entry = decode(record.value, Listed)
    return job_id, entry


def _numbers_in(records: Records, partition: str) -> list[str]:
    """Return the days, or the minutes of a day, in their order."""
    keys = [record.key for record in records_in(records, partition)]
    return sorted(key for key in keys if key.isdecimal())


def _entry(place: Place, token: bytes, entry: Listed, at_us: int) -> Put:
    return Put(place.job_id.hex(), token, encode(entry), at_us=at_us)


def _day_of(minute: str) -> str:
    return f"{int(minute) // _MINUTES_A_DAY:06}"


def _minutes_in(day: str) -> str:
    return f"{_DAYS}/day/{day}"
