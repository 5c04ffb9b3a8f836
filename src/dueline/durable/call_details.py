"""One call of a durable function as people read it, and the jobs of a gather."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from dueline.core.attempt import CallPlace
from dueline.core.codec import decode
from dueline.core.errors import NotFound
from dueline.core.job import Job, JobId
from dueline.core.job_status import status_of
from dueline.core.store import Records, Store
from dueline.durable.log import Entry, key_of, note_of, value_apart
from dueline.durable.values import StoredValue
from dueline.durable.views import RecordedCall, place_of, view_of
from dueline.durable.windows import Window, entries_between
from dueline.jobs.called_jobs import ends_of
from dueline.jobs.function_list import values_of

_PARTS: Final = "calls"


@dataclass(frozen=True, slots=True)
class CalledJob:
    """A job of a gather.

    Attributes:
      number: Its number in the gather, from 1.
      state: How it ended, or its state; "unknown" if it is not stored any more.
    """

    number: int
    id: JobId
    task: str
    state: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class WholeCall:
    """A call with all that is recorded of it.

    Attributes:
      undo: Its compensation; None if it did not begin.
      stored: The value, or of a failed step a list of class, text and traceback of the error; None
        if nothing is recorded.
    """

    call: RecordedCall
    undo: RecordedCall | None
    stored: StoredValue | None


def whole_call(store: Store, job_id: JobId, row: Job | None, position: int) -> WholeCall:
    """Return a call. row: of the function.

    Raises:
      NotFound: Nothing is recorded of it.
      StoreCorrupt: A record cannot be read.
    """
    calls = view_of(store, job_id, row, Window(1, position)).calls if position > 0 else ()
    call = next((call for call in calls if call.kind != "undo"), None)
    if call is None or call.position != str(position):
        raise NotFound(f"The function {job_id.hex()} has no call {position}.")
    place, key = place_of(store, job_id, row), key_of((position,))
    entry = entries_between(store, job_id, place, position, position).get(key)
    stored = None
    if entry is not None and (call.value is not None or call.is_apart or call.state == "failed"):
        value = value_apart(store, values_of(job_id, place.owner(position)), key, entry)
        stored = StoredValue(entry.head.codec, value)
    undo = next((call for call in calls if call.kind == "undo"), None)
    return WholeCall(call, undo, stored)


def jobs_of_gather(
    store: Store, job_id: JobId, row: Job | None, position: int, *, after: int, limit: int,
    now_us: int,
) -> list[CalledJob]:  # fmt: skip
    """Return some jobs that a gather called, in their order.

    Args:
      store: The store.
      job_id: The function.
      row: Its row.
      position: Position of the gather.
      after: Number of jobs that are left out.
      limit: Maximum number of jobs.
      now_us: The present time.
    """
    place, key = place_of(store, job_id, row), key_of((position,))
    entries = entries_between(store, job_id, place, position, position)
    gather = entries.get(key)
    if gather is None or gather.head.kind != "gather":
        return []
    call = CallPlace(job_id, place.owner(position), key, 0, gather.head.count)
    rows = _rows_of(store, call, entries, after, limit)
    ends = ends_of(store, call, after=after)
    ended = dict(takewhile(lambda end: end[0] <= after + limit, ends))
    live = store.find([row.id for row in rows])
    jobs = []
    for number, (called, present) in enumerate(zip(rows, live, strict=True), after + 1):
        end = ended.get(number)
        state = "unknown" if present is None else status_of(present, now_us)
        jobs.append(
            CalledJob(number, called.id, called.task, state)
            if end is None
            else CalledJob(number, called.id, called.task, end.state, end.error)
        )
    return jobs


def _rows_of(
    records: Records, call: CallPlace, entries: Mapping[str, Entry], after: int, limit: int
) -> list[Job]:
    """Return the rows of some calls of a gather, as its parts recorded them."""
    values = values_of(JobId(call.parent), call.generation)
    rows: list[Job] = []
    part, first = 0, 0
    while len(rows) < limit and (note := note_of(call.key, f"{_PARTS}{part:04}")) in entries:
        entry = entries[note]
        if first + entry.head.count > after:
            own = decode(value_apart(records, values, note, entry), list[Job])
            rows += own[max(0, after - first) :][: limit - len(rows)]
        part, first = part + 1, first + entry.head.count
    return rows
