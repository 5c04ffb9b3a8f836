"""The list of stopped functions of each queue: alerts and checks read it instead of all jobs.

A worker lists a function after it has stopped it. The row decides: the maintenance leader removes
what is not stopped any more, and a worker that stops a function again lists it again.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from dueline.core.attempt import Parked, Stop
from dueline.core.call_options import durable_place
from dueline.core.codec import encode
from dueline.core.engine import Engine
from dueline.core.job import Job, JobId, State
from dueline.core.lane import living_queue
from dueline.core.readable_records import value_at
from dueline.core.store import Delete, Put

READ_MAX: Final = 1_000
"""Maximum number of listed functions of a queue that are read."""

FORGOTTEN_MAX: Final = 100
"""Maximum number of functions that are removed from a list at once."""


class Listed(NamedTuple):
    """What the list says of a function."""

    task: str
    why: str


class StoppedFunction(NamedTuple):
    """A function that no worker can continue."""

    job: Job
    stop: Stop


def list_stopped(engine: Engine, job: Job, ending: Parked) -> None:
    """List a function that was just stopped, unless it is listed like this."""
    stop = ending.place.stop
    if ending.word == "stopped" and stop is not None:
        _list(engine, job, stop)


def list_moved(engine: Engine, rows: Iterable[Job]) -> None:
    """List the stopped functions among rows that came from another store."""
    for row in rows:
        if row.opts and (stop := stop_of(row)) is not None:
            _list(engine, row, stop)


def _list(engine: Engine, job: Job, stop: Stop) -> None:
    partition, key = _place(living_queue(job.lane.queue)), job.id.hex()
    listed = Listed(job.task, stop.why)
    there, version = value_at(engine.store, partition, key, Listed)
    if there != listed:
        put = Put(key, engine.ids.token(), encode(listed), expect=version)
        engine.store.commit(partition, (put,))  # another worker may have listed it


def stop_of(row: Job) -> Stop | None:
    """Return why a function is stopped; None for other jobs, and while a worker tries again."""
    if row.outcome or row.state == State.DEAD:
        return None
    stop = _last_stop(row)
    return stop if stop is not None and stop.at_us == row.at_us else None


def stopped_in(engine: Engine, queue: str) -> list[StoppedFunction]:
    """Return the stopped functions of a queue, up to 1,000 that are listed."""
    return [
        StoppedFunction(row, stop)
        for _, _, row in _rows(engine, queue)
        if row is not None and (stop := stop_of(row)) is not None
    ]


def forget_resumed(engine: Engine, queue: str) -> None:
    """Remove what is not stopped any more from the list, up to 100 functions."""
    gone = ((key, version) for key, version, row in _rows(engine, queue) if not _may_stay(row))
    for key, version in islice(gone, FORGOTTEN_MAX):
        engine.store.commit(_place(queue), (Delete(key, expect=version),))


def _may_stay(row: Job | None) -> bool:
    """Return whether a function is stopped, or a worker has claimed it to try again."""
    if row is None or row.outcome:
        return False
    return stop_of(row) is not None or (row.is_claimed() and _last_stop(row) is not None)


def _rows(engine: Engine, queue: str) -> Iterator[tuple[str, bytes, Job | None]]:
    """Yield the listed functions of a queue: key and version of the record, and the row."""
    records = engine.store.read(_place(queue), after=None, limit=READ_MAX)
    if records:
        ids = [JobId(bytes.fromhex(record.key)) for record in records]
        for record, row in zip(records, engine.store.find(ids), strict=True):
            yield record.key, record.version, row


def _last_stop(row: Job) -> Stop | None:
    place = durable_place(row)
    return None if place is None else place.stop


def _place(queue: str) -> str:
    return f"durable-stopped/{queue}"
