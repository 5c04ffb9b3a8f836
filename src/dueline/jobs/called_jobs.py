"""Ends of the jobs that durable functions called, as their parents find them.

The end of a called job is written beside the log of its parent, with the other effects of the end
and so before its row goes (rule D3). Then the parent is woken. A parent that waits for a gather is
woken once: each end also leaves a mark in a block, the process that finds a block full notes this,
and the one that finds all blocks full wakes the parent.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from typing import Final

from dueline.core.attempt import CallPlace, DurablePlace, Outcome
from dueline.core.call_options import call_of, durable_place
from dueline.core.codec import decode, encode
from dueline.core.engine import Engine
from dueline.core.job import Job, JobId
from dueline.core.pagination import record_at, records_in
from dueline.core.store import Commit, Put, Records
from dueline.jobs.function_list import partition_of
from dueline.jobs.parked_functions import wake
from dueline.limits import semaphore

_BLOCK: Final = 100
"""Number of jobs of a gather whose marks share a partition."""

_ENDS_A_PAGE: Final = 50


def record(job: Job, outcome: Outcome) -> list[Commit]:
    """Return the writes that tell a parent how a job ended; nothing for other jobs.

    A job that is retried after it died ends later, and the latest end stays.
    """
    place = call_of(job)
    if place is None:
        return []
    version, at_us = outcome.ended_us.to_bytes(16), outcome.ended_us
    end = Put(_key_of(place), version, encode(outcome), at_us=at_us)
    commits = [Commit(_ends_of(place), (end,))]
    if place.number:
        mark = Put(f"{place.number:05}", version, b"", at_us=at_us)
        commits.append(Commit(_block_of(place, _number_of_block(place)), (mark,)))
    return commits


def copy_end(engine: Engine, place: CallPlace, other: CallPlace) -> None:
    """Write how a called job ended for another call, too, if it has ended."""
    outcome = end_of(engine.store, place)
    if outcome is not None:
        put = Put(_key_of(other), engine.ids.token(), encode(outcome), at_us=outcome.ended_us)
        engine.store.commit(_ends_of(other), (put,))


def end_of(records: Records, place: CallPlace) -> Outcome | None:
    """Read how a called job ended; None if it has not."""
    end = record_at(records, _ends_of(place), _key_of(place))
    return None if end is None else decode(end.value, Outcome)


def has_end(records: Records, parent: Job) -> bool:
    """Return whether a job has ended that the present generation of a function called."""
    place = durable_place(parent) or DurablePlace()
    log = partition_of(parent.id, place.generation)
    return bool(records.read(f"{log}/ends", after=None, limit=1))


def ends_of(records: Records, place: CallPlace, *, after: int = 0) -> Iterator[tuple[int, Outcome]]:
    """Yield how the jobs of a gather ended, with their numbers, in their order.

    after: the first numbers, which are left out.
    """
    begin = f"{place.key}/"
    first = f"{begin}{after:05}"
    for end in records_in(records, _ends_of(place), after=first, page_size=_ENDS_A_PAGE):
        if not end.key.startswith(begin):
            return
        yield int(end.key[len(begin) :]), decode(end.value, Outcome)


def has_ended(records: Records, place: CallPlace) -> bool:
    """Return whether a call has ended, or all calls of a gather, as far as it was noted."""
    if not place.calls:
        return record_at(records, _ends_of(place), _key_of(place)) is not None
    full = sum(1 for _ in records_in(records, _full_of(place)))
    return full == -(-place.calls // _BLOCK)


def wake_parents(engine: Engine, ended: Iterable[Job], sure: Container[JobId] = ()) -> int:
    """Wake the functions that wait for jobs that may have ended; return how many may be woken.

    Args:
        engine: The engine.
        ended: Jobs that may have ended; those that no function called are skipped.
        sure: Ids of jobs that have certainly ended.
    """
    parents: set[JobId] = set()
    blocks: dict[CallPlace, set[int]] = defaultdict(set)
    for job in ended:
        place = call_of(job)
        if place is None:
            continue
        if place.number:
            blocks[place._replace(number=0)].add(_number_of_block(place))
        elif job.id in sure or has_ended(engine.store, place):
            parents.add(JobId(place.parent))
    for place, touched in blocks.items():
        if _note_full(engine, place, touched) and has_ended(engine.store, place):
            parents.add(JobId(place.parent))
    for parent in parents:
        wake(engine, parent)
    return len(parents)


def _note_full(engine: Engine, place: CallPlace, blocks: Iterable[int]) -> bool:
    """Note which of some blocks are full; return whether one is."""
    is_one_full = False
    for block in blocks:
        size = min(_BLOCK, place.calls - block * _BLOCK)
        marks = engine.store.read(_block_of(place, block), after=None, limit=_BLOCK)
        if len(marks) == size:
            put = Put(f"{block:03}", engine.ids.token(), b"")
            engine.store.commit(_full_of(place), (put,))
            is_one_full = True
    return is_one_full


def limit_of(engine: Engine, place: CallPlace, capacity: int) -> str:
    """Return the limit of the jobs of a gather; its semaphore is declared at its first use.

    Gathers of one capacity share a semaphore, of which each has a key of its own.
    """
    name = f"gather-{capacity}"
    if name not in semaphore.capacities(engine.store):
        semaphore.define(engine.store, name, capacity, ids=engine.ids)
    return f"{name}:{place.parent.hex()}-{place.generation}-{place.key}"


def partitions_of(log: str, gathers: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Yield the partitions that the ends of a log's calls may be in, to remove them.

    Args:
        log: The partition of the log.
        gathers: The keys of its gathers, each with the number of its calls.
    """
    for key, count in gathers:
        for block in range(-(-count // _BLOCK)):
            yield f"{log}/ended/{key}/{block}"
        yield f"{log}/full/{key}"
    yield f"{log}/ends"


def _log_of(place: CallPlace) -> str:
    return partition_of(JobId(place.parent), place.generation)


def _ends_of(place: CallPlace) -> str:
    return f"{_log_of(place)}/ends"


def _key_of(place: CallPlace) -> str:
    return f"{place.key}/{place.number:05}" if place.number else place.key


def _number_of_block(place: CallPlace) -> int:
    return (place.number - 1) // _BLOCK


def _block_of(place: CallPlace, block: int) -> str:
    return f"{_log_of(place)}/ended/{place.key}/{block}"


def _full_of(place: CallPlace) -> str:
    return f"{_log_of(place)}/full/{place.key}"
