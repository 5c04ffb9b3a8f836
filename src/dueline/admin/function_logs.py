"""Damaged logs of durable functions."""

from collections.abc import Iterator
from typing import Final

from dueline.core.attempt import DurablePlace
from dueline.core.call_options import durable_place
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Job, JobId, State
from dueline.core.pagination import record_at, records_in
from dueline.core.readable_records import Unreadable
from dueline.core.store import Record
from dueline.durable.log import OPENED, kept_records, read_entry
from dueline.durable.views import KINDS, position_of
from dueline.jobs.function_list import partition_of, values_of

_RESTORE: Final = (
    "The function stays stopped and nothing of it runs. Restore its record from a backup, or end "
    "it: dueline jobs cancel --force"
)
_PAGE: Final = 100
_UPGRADE: Final = "A newer dueline wrote it: upgrade the workers of its queue."


def damage_of(engine: Engine, job: Job) -> Iterator[Unreadable]:
    """Yield what is wrong with the log of a job; nothing for jobs that are no durable functions."""
    place = durable_place(job)
    if place is None or job.outcome or job.state == State.DEAD:
        return
    name, restore = f"durable function {job.id.hex()}", f"{_RESTORE} {job.id.hex()}."
    length = 0
    for generation, record in _records(engine, job.id, place):
        length += 1
        try:
            head = read_entry(record.value).head
        except StoreCorrupt as error:
            why = f"its record {record.key} cannot be read: {error.message}"
            yield Unreadable(name, why, restore)
            continue
        values = values_of(job.id, generation)
        if head.kind not in KINDS:
            said = f"its record {record.key} has the unknown kind {head.kind!r:.40}"
            yield Unreadable(name, said, _UPGRADE)
        elif head.apart and record_at(engine.store, values, head.apart) is None:
            call = position_of(record.key.partition("!")[0])
            why = f"the value of its call {call}, {head.name}, is missing"
            yield Unreadable(name, why, restore)
    if length < place.length:
        yield Unreadable(name, f"its log has {length} of {place.length} records", restore)


def _records(engine: Engine, job_id: JobId, place: DurablePlace) -> Iterator[tuple[int, Record]]:
    """Yield the records that a function reads, each with its generation."""
    yield from kept_records(engine.store, job_id, place.kept)
    own = partition_of(job_id, place.generation)
    for record in records_in(engine.store, own, page_size=_PAGE):
        if record.key != OPENED:
            yield place.generation, record
