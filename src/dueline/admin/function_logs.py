"""Damaged logs of durable functions."""

from collections.abc import Iterator
from typing import Final

from dueline.core.call_options import durable_place
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Job, State
from dueline.core.pagination import record_at, records_in
from dueline.core.readable_records import Unreadable
from dueline.durable.log import OPENED, kept_entries, read_entry
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
    name, partition = f"durable function {job.id.hex()}", partition_of(job.id, place.generation)
    values = values_of(job.id, place.generation)
    restore = f"{_RESTORE} {job.id.hex()}."
    length = sum(1 for _ in kept_entries(engine.store, job.id, place))
    for record in records_in(engine.store, partition, page_size=_PAGE):
        length += record.key != OPENED
        try:
            head = read_entry(record.value).head
        except StoreCorrupt as error:
            yield Unreadable(
                name, f"its record {record.key} cannot be read: {error.message}", restore
            )
            continue
        if head.kind not in KINDS:
            said = f"its record {record.key} has the unknown kind {head.kind!r:.40}"
            yield Unreadable(name, said, _UPGRADE)
        elif head.apart and record_at(engine.store, values, head.apart) is None:
            call = position_of(record.key)
            yield Unreadable(
                name, f"the value of its call {call}, {head.name}, is missing", restore
            )
    if length < place.length:
        yield Unreadable(name, f"its log has {length} of {place.length} records", restore)
