"""What a durable function has done, and what it waits for, as its records say."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from dueline.core.attempt import CallPlace, DurablePlace, Stop
from dueline.core.call_options import durable_place
from dueline.core.codec import DAMAGE, JSON
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Job, JobId
from dueline.core.store import Records
from dueline.durable import removal
from dueline.durable.log import (
    NOTES,
    Entry,
    entries_of,
    has_later,
    is_position,
    number_of,
    shown,
    value_apart,
)
from dueline.durable.signals import first_free, named, read_inbox
from dueline.durable.stopped import stop_of
from dueline.jobs.called_jobs import end_of
from dueline.jobs.function_list import values_of
from dueline.jobs.parked_functions import END, has_ended

KINDS: Final = frozenset(
    {"step", "sleep", "signal", "cancel", "undo", "end", "opened", "wait", "start", "tries",
     "deaths", "call", "result", "gather", "calls", "gathered", "results", "restart", "patch"}
)  # fmt: skip
"""What records may be of."""

_UNDO: Final = "undo/"
_AWAITED_MAX: Final = 20
"""Maximum number of calls without a recorded result of which is read whether their jobs ended."""

_ENCRYPTED: Final = "(encrypted)"


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call of a durable function, as far as its records say.

    Attributes:
      position: Such as "3".
      kind: "step", "sleep", "signal", "call", "result", "gather", "gathered", "restart", "cancel"
        or "undo"; undo: the compensation of that call.
      name: Name of the step, signal or task.
      state: "done", "failed", "lost" or "timed_out"; of a result how the job ended; of a call
        without an end: "sleeping", "waiting", "retrying", "started" or "running".
      at_us: When that was recorded.
      until_us: When the wait ends; 0 for never, or without a wait.
      tries: Failed attempts of a call without an end.
      error: The error of a call that failed, or of its last attempt.
      job: Id of the job that was called.
    """

    position: str
    kind: str
    name: str
    state: str
    at_us: int
    until_us: int = 0
    tries: int = 0
    error: str = ""
    job: str = ""

    @property
    def is_open(self) -> bool:
        """Whether the call has not ended."""
        return self.state in _OPEN


@dataclass(frozen=True, slots=True)
class FunctionView:
    """A durable function.

    Attributes:
      generation: Number of its log.
      calls: Its recorded calls, in their order.
      end: "failed", "cancelled" or "expired" once that is recorded; compensations run then.
      stop: Why no worker can continue it; None while one can.
      unread: Number of unread signals by name.
      is_cancelled: Its end was requested.
    """

    generation: int
    calls: Sequence[RecordedCall]
    end: str = ""
    stop: Stop | None = None
    unread: Mapping[str, int] | None = None
    is_cancelled: bool = False

    @property
    def open_calls(self) -> Sequence[RecordedCall]:
        """The calls that the function may wait for: the last that has not ended, or called jobs."""
        calls = [call for call in self.calls if call.is_open]
        others = [call for call in calls if call.state != "running"]
        return others[-1:] or calls


_NOTES: Final = {"wait": "waiting", "tries": "retrying", "start": "started"}
"""States of calls of which only a note is known."""

_OPEN: Final = frozenset({"sleeping", "running", *_NOTES.values()})

_WAITS: Final = {"sleep": "sleeping", "call": "running", "gather": "running"}
"""States of calls of which the record says nothing of the end, while no later call is recorded."""

_BAD: Final = frozenset({"failed", "lost", "dead", "cancelled", "expired"})


def view_of(records: Records, job_id: JobId, row: Job | None) -> FunctionView:
    """Read a function.

    Raises:
      StoreCorrupt: A record cannot be read.
    """
    place = None if row is None else durable_place(row)
    if place is None:
        place = place_of_ended(records, job_id)
    entries = entries_of(records, job_id, place)
    end = entries.pop(END, None)
    inbox = read_inbox(records, job_id)
    unread = {}
    for name in sorted({signal.key.partition("/")[0] for signal in inbox.signals}):
        own = named(inbox.signals, name)
        count = sum(first_free(records, job_id, place, [signal]) is not None for signal in own)
        if count:
            unread[name] = count
    return FunctionView(
        place.generation,
        _calls(_Reader(records, job_id, place), entries, is_over=has_ended(row)),
        "" if end is None else end.head.state,
        None if row is None else stop_of(row),
        unread,
        inbox.is_cancelled,
    )


def place_of_ended(records: Records, job_id: JobId) -> DurablePlace:
    """Return the place of a function without a row, by the first positions of its logs."""
    place = DurablePlace(removal.last_generation(records, job_id))
    kept: list[tuple[int, int]] = []
    for generation in range(place.generation, 0, -1):
        own = entries_of(records, job_id, DurablePlace(generation))
        first = min((number_of(key) for key in own if is_position(key)), default=1)
        if first == 1:
            break
        kept.append((generation - 1, first - 1))
    return place._replace(kept=tuple(reversed(kept)))


def position_of(key: str) -> str:
    """Return the position of a call or compensation as people read it, such as "5.2"."""
    return shown(key.removeprefix(_UNDO))


class _Reader(NamedTuple):
    """Reads values that lie apart."""

    records: Records
    job_id: JobId
    place: DurablePlace

    def value(self, key: str, entry: Entry) -> bytes:
        """Return the value of a record; empty if it is missing."""
        values = values_of(self.job_id, self.place.owner(number_of(key.removeprefix(_UNDO))))
        with suppress(StoreCorrupt):  # `dueline doctor` reports that
            return value_apart(self.records, values, key, entry)
        return b""

    def running(self, entries: Mapping[str, Entry]) -> set[str]:
        """Return the calls whose jobs have not ended, as far as is read."""
        ended = {entry.head.source for entry in entries.values() if entry.head.kind == "result"}
        calls = [
            (key, CallPlace(self.job_id, self.place.owner(number_of(key)), key))
            for key, entry in entries.items()
            if entry.head.kind == "call" and entry.head.source not in ended
        ]
        return {key for key, call in calls[-_AWAITED_MAX:] if end_of(self.records, call) is None}


def _calls(reader: _Reader, entries: Mapping[str, Entry], *, is_over: bool) -> list[RecordedCall]:
    """Return the calls of a log, in their order; compensations last, as they ran."""
    found = []
    running = set() if is_over else reader.running(entries)
    for key, entry in entries.items():
        own, mark, note = key.partition("!")
        if not own.removeprefix(_UNDO)[:1].isdigit():
            continue
        if not mark:
            is_last = entry.head.kind in _WAITS and not (is_over or has_later(own, entries))
            is_last |= own in running
            found.append((own, _recorded(reader, own, entry, is_last=is_last)))
        elif note in _NOTES and own not in entries and not is_over:
            found.append((own, _open(own, note, entry)))
    newest = dict(sorted(found, key=lambda each: each[1].at_us))
    calls = [newest[own] for own in sorted(newest) if not own.startswith(_UNDO)]
    undone = [call for own, call in newest.items() if own.startswith(_UNDO)]
    return [*calls, *sorted(undone, key=lambda call: call.at_us)]


def _recorded(reader: _Reader, key: str, entry: Entry, *, is_last: bool) -> RecordedCall:
    """Return a call that has a record. is_last: the last of its branch, or its job runs."""
    head = entry.head
    state = _WAITS[head.kind] if is_last else head.state
    error = _error_of(reader, key, entry) if state in _BAD else ""
    job = head.source if head.kind in ("call", "result") else ""
    return RecordedCall(
        position_of(key), head.kind, head.name, state, head.at_us, head.until_us, error=error,
        job=job,
    )  # fmt: skip


def _open(key: str, note: str, entry: Entry) -> RecordedCall:
    head = entry.head
    kind = "undo" if key.startswith(_UNDO) else NOTES[note]
    return RecordedCall(
        position_of(key), kind, head.name, _NOTES[note], head.at_us, head.until_us, head.tries,
        head.error,
    )  # fmt: skip


def _error_of(reader: _Reader, key: str, entry: Entry) -> str:
    """Return the type and text of a recorded error, or the text of how a called job ended."""
    if entry.head.codec != JSON:
        return _ENCRYPTED
    try:
        shown = msgspec.json.decode(reader.value(key, entry), type=str | list[str])
    except (*DAMAGE, ValueError):
        return ""
    if isinstance(shown, str):
        return shown
    return ": ".join(shown[:2]).rstrip(": ")
