"""Reset and fork: a durable function goes on from a position of its log, by hand.

The log is closed first: it is opened under a fence above that of the row, so no worker of the row
writes into it any more (rule D13). The row then gets a new generation, which reads the old log up
to the position. Nothing is deleted.
"""

from collections.abc import Mapping
from typing import Annotated, Final

from dueline.core.attempt import CallPlace, DurablePlace
from dueline.core.blobs import BY_ADDRESS, expected
from dueline.core.call_options import read_options
from dueline.core.constraints import check_value, integer
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, Conflict, NotFound
from dueline.core.job import Job, JobId, State
from dueline.core.lane import bucket_of, living_queue, tenant_of
from dueline.core.limit_costs import limits_with_costs
from dueline.core.pagination import record_at
from dueline.core.store import NO_VERSION, Delete, Move, Put, Records
from dueline.core.wakeup import place_of as place_of_move
from dueline.durable.log import (
    OPENED,
    RECORDS_MAX,
    Entry,
    Head,
    entries_of,
    kept_records,
    number_of,
    read_entry,
    value_apart,
    whole_entry_at,
)
from dueline.durable.removal import name_generation
from dueline.durable.restarts import continued, last_of
from dueline.jobs import called_jobs, function_list
from dueline.jobs.function_list import inbox_of, partition_of, values_of
from dueline.jobs.parked_functions import CANCEL, END, compensated_error
from dueline.jobs.queue import EnqueueRequest, Queues

_Position: Final = Annotated[int, integer(0, RECORDS_MAX)]
_CHANGING: Final = "The function {} changes all the time and was not {}."


def reset(queues: Queues, job_id: JobId, to: int | None = None) -> None:
    """Continue a waiting, stopped or dead durable function after a position of its log.

    Args:
        queues: The queues.
        job_id: The function.
        to: The last call whose record is kept; 0 begins anew. None keeps all of them.

    Raises:
        NotFound: There is no such job.
        Conflict: It runs, or its compensations ran.
        BadInput: The log has no such position.
    """
    row, place = _found(queues, job_id)
    if row.is_claimed():
        raise Conflict(f"The function {job_id.hex()} runs and cannot be reset.")
    entries = _closed(queues.engine, row, place, "reset")
    last = _checked(entries, to)
    queues.note([row], f"reset to call {last}")
    _continue(queues, row, place, entries, last)


def fork(queues: Queues, job_id: JobId, to: int | None = None) -> JobId:
    """Begin a new durable function with the records of another one, which is left as it is.

    Args:
        queues: The queues.
        job_id: The other function: it waits, runs, or is dead.
        to: The last call whose record is used; None uses all of them.

    Returns:
        The id of the new job.

    Raises:
        NotFound: There is no such job.
        Conflict: A call up to this position has not ended.
        BadInput: The log has no such position.
    """
    engine = queues.engine
    row, place = _found(queues, job_id)
    entries = entries_of(engine.store, row.id, place)
    last = _checked(entries, to)
    after = continued(place, last, entries)
    _expect_no_open_call(engine.store, row.id, place, entries, last)
    codec, body = row.codec, row.body
    if place.arguments is not None:
        codec, body = _arguments(engine.store, row.id, place.arguments)
    after = after._replace(
        arguments=None, origins=(*place.origins, (after.generation, bytes(row.id)))
    )
    options = read_options(row.opts).changed(durable=after, called_by=None, unique=None)
    request = EnqueueRequest(
        living_queue(row.lane.queue), row.task, codec, [body], priority=row.lane.priority,
        tenant=tenant_of(row.lane), opts=options.to_bytes(), limits=[limits_with_costs(row)],
    )  # fmt: skip
    (new,) = queues.rows(request)
    function_list.add(engine, new)
    for generation in range(1, after.generation + 1):
        name_generation(engine, new.id, generation)
    _copy(engine, row.id, new, place, last)
    queues.enqueue_again([new])
    queues.note([row], f"forked as {new.id.hex()}")
    queues.note([new], f"forked from {row.id.hex()}")
    return new.id


def _found(queues: Queues, job_id: JobId) -> tuple[Job, DurablePlace]:
    queues.complete_stored(job_id)  # a dead function may not be in the dead-letter list yet
    row = queues.find(job_id).row
    place = None if row is None else read_options(row.opts).durable
    if row is None or place is None:
        raise NotFound(
            f"There is no durable function {job_id.hex()}.",
            hint="It may have ended, or be a job of another kind.",
        )
    return row, place


def _closed(engine: Engine, row: Job, place: DurablePlace, word: str) -> Mapping[str, Entry]:
    """Close the log to the workers of a row, then read it; refuse one that has ended."""
    store, partition = engine.store, partition_of(row.id, place.generation)
    there = record_at(store, partition, OPENED)
    version = NO_VERSION if there is None else there.version
    fence = row.fence + 1
    if there is not None and read_entry(there.value).head.fence > fence:
        raise Conflict(_CHANGING.format(row.id.hex(), word))
    opened = Entry(Head(OPENED, fence=fence)).to_bytes()
    put = Put(OPENED, engine.ids.token(), opened, expect=version)
    if not store.commit(partition, (put,)):
        raise Conflict(_CHANGING.format(row.id.hex(), word))
    entries = entries_of(store, row.id, place)
    if END in entries:
        raise compensated_error(row.id, word)
    return entries


def _checked(entries: Mapping[str, Entry], to: int | None) -> int:
    last = last_of(entries)
    if to is None:
        return last
    check_value(to, _Position, "to")
    if to > last:
        raise BadInput(f"The log has {last} calls; there is no call {to}.")
    return to


def _continue(
    queues: Queues, row: Job, place: DurablePlace, entries: Mapping[str, Entry], to: int
) -> None:
    """Give a row the next generation, under the token that was read, and run it."""
    engine = queues.engine
    engine.store.commit(inbox_of(row.id), (Delete(CANCEL),))
    name_generation(engine, row.id, place.generation + 1)
    opts = read_options(row.opts).changed(durable=continued(place, to, entries)).to_bytes()
    width_us = engine.catalog.settings(living_queue(row.lane.queue)).width_us
    is_dead = row.state == State.DEAD
    at_us = row.at_us if is_dead else engine.time.earliest_us()
    move = Move(row, at_us, engine.ids.token(), bucket_of(at_us, width_us), row.errors * is_dead,
                row.crashes * is_dead, state=row.state if is_dead else State.WAITING,
                error=row.error, opts=opts)  # fmt: skip
    if not engine.recording_store.settle([move])[0]:
        raise Conflict(_CHANGING.format(row.id.hex(), "continued"))
    if is_dead:
        queues.retry(row.id, repeats_failure=True)
    else:
        engine.wake([place_of_move(move)])


def _expect_no_open_call(
    records: Records, job_id: JobId, place: DurablePlace, entries: Mapping[str, Entry], last: int
) -> None:
    """Refuse to fork where a call has not ended: its job would tell the old function only."""
    ended = {
        entry.head.source
        for key, entry in entries.items()
        if entry.head.kind == "result" and number_of(key) <= last
    }
    gathered = {
        number_of(key) - 1 for key, entry in entries.items() if entry.head.kind == "gathered"
    }
    for key, entry in entries.items():
        number = number_of(key)
        is_open = entry.head.kind == "gather" and (number not in gathered or number == last)
        if entry.head.kind == "call" and number <= last and entry.head.source not in ended:
            call = CallPlace(job_id, place.owner(number), key)
            is_open = called_jobs.end_of(records, call) is None
        if number <= last and is_open:
            raise Conflict(
                f"Call {number} of the function {job_id.hex()} has not ended.",
                hint=f"Use to={number - 1}, or wait for it.",
            )


def _arguments(records: Records, job_id: JobId, where: tuple[int, str]) -> tuple[int, bytes]:
    generation, key = where
    entry = whole_entry_at(records, job_id, generation, key)
    if entry is None:
        raise NotFound(f"The arguments of the function {job_id.hex()} are missing.")
    return entry.head.codec, entry.value


def _copy(engine: Engine, job_id: JobId, job: Job, place: DurablePlace, last: int) -> None:
    """Copy the records up to a position, and the ends of their calls, for another job."""
    store, new = engine.store, job.id
    kept = continued(place, last, {}).kept
    for generation, record in kept_records(store, job_id, kept):
        key, entry = record.key, read_entry(record.value)
        if entry.head.codec == BY_ADDRESS:
            copied = expected(engine.blobs, entry.value).copied(entry.value, job)
            entry = entry._replace(value=copied)
        if entry.head.apart:
            value = value_apart(store, values_of(job_id, generation), key, entry)
            put = Put(entry.head.apart, engine.ids.token(), value)
            store.commit(values_of(new, generation), (put,))
        put = Put(key, engine.ids.token(), entry.to_bytes())
        store.commit(partition_of(new, generation), (put,))
        if entry.head.kind == "call":
            call = CallPlace(job_id, generation, key)
            called_jobs.copy_end(engine, call, call._replace(parent=new))
