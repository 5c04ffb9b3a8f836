"""Deletes the records of durable functions that have ended.

They are kept as long as the outcome of the job (`keep`), or its dead-letter job. They are deleted
twice, a day apart: on stores without transactions a late write may land after the first time
(rules D15, U3). A function that is claimed again afterwards begins a new log, and is listed again.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice, takewhile
from typing import Final

from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt
from dueline.core.job import JobId
from dueline.core.logging import log
from dueline.core.maintenance import StepResult
from dueline.core.pagination import records_in
from dueline.core.store import Delete, Put, Records
from dueline.durable.log import read_entry
from dueline.jobs import called_jobs, function_list, results
from dueline.jobs.function_list import Listed, Place, inbox_of, partition_of, values_of

EVERY_US: Final = 6 * 3600 * SECOND_US

MINUTE_AGE_US: Final = 2 * DAY_US
"""Nothing is listed any more in a minute that is older."""

GENERATION: Final = "generation/"
"""Start of keys in the inbox that name the generations above 0, each written before its log."""

_ENTRIES_A_STEP: Final = 200
_PAGES_A_STEP: Final = 400
_PAGE: Final = 200
_VALUES_A_PAGE: Final = 4


def remove_ended_functions(engine: Engine, after: str | None) -> StepResult:
    """Delete the records of some functions that ended; the next step continues after them."""
    after = after or ""  # before all places, and not None: a step may end at the first function
    batch = list(islice(function_list.entries_after(engine.store, after), _ENTRIES_A_STEP))
    ended = _ended_among(engine, [place.job_id for place, entry in batch if entry is not None])
    now_us = engine.time.earliest_us()
    removed, pages = 0, 0
    for place, entry in batch:
        if entry is None:
            if place.begun_us() < now_us - MINUTE_AGE_US:
                function_list.remove_minute(engine.store, place.minute)
        elif place.job_id in ended and entry.removed_us + DAY_US < now_us:
            for _ in remove(engine.store, place.job_id):
                pages += 1
                if pages == _PAGES_A_STEP:
                    return StepResult(removed, after)
            _note(engine, place, entry)
            removed += 1
        after = place.to_text()
    return StepResult(removed, after if len(batch) == _ENTRIES_A_STEP else None)


def _note(engine: Engine, place: Place, entry: Listed) -> None:
    """Note the first deletion of a function; after the second one, its entry goes."""
    if entry.removed_us:
        function_list.remove(engine.store, place)
    else:
        function_list.mark_removed(engine, place, entry)


def _ended_among(engine: Engine, jobs: list[JobId]) -> set[JobId]:
    """Return the functions that have neither a row nor an outcome."""
    gone = jobs
    for _ in range(2):  # the first read may miss a row that moves
        rows = engine.store.find(gone) if gone else ()
        gone = [job_id for job_id, row in zip(gone, rows, strict=True) if row is None]
    return set(gone) - _with_outcomes(engine, gone)


def _with_outcomes(engine: Engine, jobs: list[JobId]) -> set[JobId]:
    """Return the jobs that have an outcome, also if it is damaged."""
    try:
        return set(results.read_many(engine.store, jobs))
    except StoreCorrupt as error:
        if len(jobs) > 1:
            return set().union(*(_with_outcomes(engine, [job_id]) for job_id in jobs))
        log.warning("job=%s keeps its durable records: %s", jobs[0].hex(), error.message)
        return set(jobs)


def name_generation(engine: Engine, job_id: JobId, generation: int) -> None:
    """Note a generation above 0 of a function, before its log has a record."""
    value = engine.time.latest_us().to_bytes(8)
    put = Put(f"{GENERATION}{generation}", engine.ids.token(), value)
    engine.store.commit(inbox_of(job_id), (put,))


def last_generation(records: Records, job_id: JobId) -> int:
    """Return the number of the last log of a function."""
    return max(_named_generations(records, job_id), default=0)


def _named_generations(records: Records, job_id: JobId) -> dict[int, int]:
    """Return when the generations above 0 of a function began, by their numbers."""
    inbox = records_in(records, inbox_of(job_id), after=GENERATION, page_size=_PAGE)
    named = takewhile(lambda record: record.key.startswith(GENERATION), inbox)
    numbers = [(record.key.removeprefix(GENERATION), record.value) for record in named]
    return {int(key): int.from_bytes(value) for key, value in numbers if key.isdecimal()}


def remove_old_generations(engine: Engine, job_id: JobId, before: int, until_us: int) -> None:
    """Delete the logs of generations that a function left before a timestamp.

    Args: before: the first generation that may still be read.
    """
    named = _named_generations(engine.store, job_id)
    for generation in sorted(named):
        if generation <= before and named[generation] < until_us:  # it began then
            for _ in remove_log(engine.store, job_id, generation - 1):
                pass
            if generation > 1:
                key = f"{GENERATION}{generation - 1}"
                engine.store.commit(inbox_of(job_id), (Delete(key),))


def remove(records: Records, job_id: JobId) -> Iterator[str]:
    """Delete the records of a function; it may be stopped anywhere, and repeated.

    Yields: the partition of each page.
    """
    for generation in generations_of(records, job_id):
        yield from remove_log(records, job_id, generation)
    yield from _remove_all(records, inbox_of(job_id), _PAGE)


def generations_of(records: Records, job_id: JobId) -> list[int]:
    """Return the generations of a function that may have a log."""
    return [0, *_named_generations(records, job_id)]


def remove_log(records: Records, job_id: JobId, generation: int) -> Iterator[str]:
    """Delete the log of a generation, its large values first.

    Of a function that goes on, delete the signals that this generation took before
    (`signals.forget_taken`): without the record of its position, a mark may count as void.

    Yields: the partition of each page.
    """
    for partition in partitions_of_log(records, job_id, generation):
        is_large = partition == values_of(job_id, generation)
        yield from _remove_all(records, partition, _VALUES_A_PAGE if is_large else _PAGE)


def partitions_of_log(records: Records, job_id: JobId, generation: int) -> list[str]:
    """Return the partitions of a generation, that of the log last."""
    partition = partition_of(job_id, generation)
    gathers: list[tuple[str, int]] = []
    for record in records_in(records, partition, page_size=_PAGE):
        with suppress(StoreCorrupt):  # a damaged record goes, too
            head = read_entry(record.value).head
            if head.kind == "gather":
                gathers.append((record.key, head.count))
    of_calls = called_jobs.partitions_of(partition, gathers)
    return [*of_calls, values_of(job_id, generation), partition]


def _remove_all(records: Records, partition: str, page_size: int) -> Iterator[str]:
    while page := records.read(partition, after=None, limit=page_size):
        records.commit(partition, [Delete(record.key) for record in page])
        yield partition
