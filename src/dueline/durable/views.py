"""What a durable function has done, and what it waits for, as its records say."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from dueline.core.attempt import CallPlace, DurablePlace, Stop
from dueline.core.call_options import call_of, durable_place
from dueline.core.codec import DAMAGE, JSON
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Job, JobId
from dueline.core.pagination import record_at
from dueline.core.store import Records
from dueline.durable import removal
from dueline.durable.log import (
    NOTES,
    Entry,
    Head,
    entries_of,
    entry_at,
    note_of,
    number_of,
    shown,
    value_apart,
)
from dueline.durable.restarts import last_of
from dueline.durable.signals import first_free, first_signals, named
from dueline.durable.stopped import stop_of
from dueline.durable.values import StoredValue
from dueline.durable.windows import UNDO, Window, entries_between, last_call, undone_between
from dueline.jobs.called_jobs import end_of
from dueline.jobs.function_list import inbox_of, partition_of, values_of
from dueline.jobs.parked_functions import CANCEL, END, has_ended

KINDS: Final = frozenset(
    {"step", "sleep", "signal", "cancel", "undo", "end", "opened", "wait", "start", "tries",
     "deaths", "call", "result", "gather", "calls", "gathered", "results", "restart", "patch"}
)  # fmt: skip
"""What records may be of."""

SIGNALS_MAX: Final = 100
"""Maximum number of signals of which is read whether they were taken."""

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
      tries: Failed attempts of a step, of which another one may follow.
      error: The error of a call that failed, or of its last attempt.
      job: Id of the job that was called.
      began_us: When the call began, or the last attempt of a step; 0: it is not known.
      count: Number of jobs that a gather called.
      value: What is recorded of a call that is done; None for others, and if it is stored apart.
      is_apart: Its value is large and stored apart.
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
    began_us: int = 0
    count: int = 0
    value: StoredValue | None = None
    is_apart: bool = False

    @property
    def ended_us(self) -> int:
        """When the call ended; 0 while it has not."""
        return 0 if self.is_open else self.until_us if self.kind == "sleep" else self.at_us

    @property
    def is_open(self) -> bool:
        """Whether the call has not ended."""
        return self.state in _OPEN


@dataclass(frozen=True, slots=True)
class FunctionView:
    """A durable function.

    Attributes:
      generation: Number of its log.
      calls: Its recorded calls, in their order; those of a window, if only one was read.
      end: "failed", "cancelled" or "expired" once that is recorded; compensations run then.
      stop: Why no worker can continue it; None while one can.
      unread: Number of unread signals by name, of up to 100 signals.
      is_cancelled: Its end was requested.
      first, last: The first and the last position of `calls`.
      total: The last position of its log.
      parent: Id of the function that called it; empty without one, and after its end.
    """

    generation: int
    calls: Sequence[RecordedCall]
    end: str = ""
    stop: Stop | None = None
    unread: Mapping[str, int] | None = None
    is_cancelled: bool = False
    first: int = 1
    last: int = 0
    total: int = 0
    parent: str = ""

    @property
    def open_calls(self) -> Sequence[RecordedCall]:
        """The calls that the function may wait for: the last that has not ended, or called jobs."""
        return _awaited(self.calls)


_NOTES: Final = {"wait": "waiting", "tries": "retrying", "start": "started"}
"""States of calls of which only a note is known."""

_OPEN: Final = frozenset({"sleeping", "running", *_NOTES.values()})

_WAITS: Final = {"sleep": "sleeping", "call": "running", "gather": "running"}
"""States of calls of which the record says nothing of the end, while no later call is recorded."""

_WITH_VALUES: Final = frozenset({"step", "signal", "result", "restart"})

_CALLS: Final = {"result": "call", "gathered": "gather"}

_BAD: Final = frozenset({"failed", "lost", "dead", "cancelled", "expired"})


def view_of(
    records: Records, job_id: JobId, row: Job | None, window: Window | None = None
) -> FunctionView:
    """Read a function.

    Args:
      records: The records.
      job_id: The function.
      row: Its row; None after its end.
      window: Which calls are read; None for all.

    Raises:
      StoreCorrupt: A record cannot be read.
    """
    place = place_of(records, job_id, row)
    end = entry_at(records, job_id, place.generation, END)
    if window is None:
        entries = entries_of(records, job_id, place)
        first, last = 1, last_of(entries)
        total = last
    else:
        total = last_call(records, job_id, place)
        last = min(window.to or total, total)
        first = max(1, last - window.most + 1)
        # The calls beside them say where the first one began, and whether the last one is over.
        entries = entries_between(records, job_id, place, first - 1, last + 1)
        if end is not None:
            entries |= undone_between(records, job_id, place, first, last)
    calls = _calls(_Reader(records, job_id, place), entries, is_over=has_ended(row))
    parent = None if row is None else call_of(row)
    return FunctionView(
        place.generation,
        [call for call in calls if first <= int(call.position.partition(".")[0]) <= last],
        "" if end is None else end.head.state,
        None if row is None else stop_of(row),
        _unread(records, job_id, place),
        record_at(records, inbox_of(job_id), CANCEL) is not None,
        first,
        last,
        total,
        "" if parent is None else parent.parent.hex(),
    )


def place_of(records: Records, job_id: JobId, row: Job | None) -> DurablePlace:
    """Return how far a function has come, also after its end. row: its row."""
    place = None if row is None else durable_place(row)
    return place_of_ended(records, job_id) if place is None else place


def open_calls_of(records: Records, row: Job, most: int) -> Sequence[RecordedCall]:
    """Return what a function that has not ended may wait for, among its last calls.

    Raises:
      StoreCorrupt: A record cannot be read.
    """
    place = durable_place(row) or DurablePlace()
    last = last_call(records, row.id, place)
    entries = entries_between(records, row.id, place, last - most, last)
    return _awaited(_calls(_Reader(records, row.id, place), entries, is_over=False))


def _awaited(calls: Sequence[RecordedCall]) -> Sequence[RecordedCall]:
    open_calls = [call for call in calls if call.is_open]
    others = [call for call in open_calls if call.state != "running"]
    return others[-1:] or open_calls


def _unread(records: Records, job_id: JobId, place: DurablePlace) -> Mapping[str, int]:
    """Count unread signals by name, of the first ones of an inbox."""
    signals = first_signals(records, job_id, SIGNALS_MAX)
    unread = {}
    for name in sorted({signal.key.partition("/")[0] for signal in signals}):
        own = named(signals, name)
        count = sum(first_free(records, job_id, place, [signal]) is not None for signal in own)
        if count:
            unread[name] = count
    return unread


def place_of_ended(records: Records, job_id: JobId) -> DurablePlace:
    """Return the place of a function without a row, by the first positions of its logs."""
    place = DurablePlace(removal.last_generation(records, job_id))
    kept: list[tuple[int, int]] = []
    for generation in range(place.generation, 0, -1):
        begin = records.read(partition_of(job_id, generation), after=None, limit=1)
        first = (number_of(begin[0].key) if begin else 0) or 1
        if first == 1:
            break
        kept.append((generation - 1, first - 1))
    return place._replace(kept=tuple(reversed(kept)))


def position_of(key: str) -> str:
    """Return the position of a call or compensation as people read it, such as "5.2"."""
    return shown(key.removeprefix(UNDO))


class _Reader(NamedTuple):
    """Reads values that lie apart."""

    records: Records
    job_id: JobId
    place: DurablePlace

    def value(self, key: str, entry: Entry) -> bytes:
        """Return the value of a record; empty if it is missing."""
        values = values_of(self.job_id, self._generation_of(key))
        with suppress(StoreCorrupt):  # `dueline doctor` reports that
            return value_apart(self.records, values, key, entry)
        return b""

    def _generation_of(self, key: str) -> int:
        number = number_of(key)
        return self.place.owner(number) if number else self.place.generation

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
    recorded = []
    running = set() if is_over else reader.running(entries)
    last = 0 if is_over else last_of(entries)
    for key, entry in entries.items():
        own, mark, note = key.partition("!")
        if not own.removeprefix(UNDO)[:1].isdigit():
            continue
        if not mark:
            is_last = entry.head.kind in _WAITS and number_of(own) == last
            is_last |= own in running
            recorded.append((own, _recorded(reader, own, entries, is_last=is_last)))
        elif note in _NOTES and own not in entries and not is_over:
            recorded.append((own, _open(own, note, entry)))
    newest = dict(sorted(recorded, key=lambda each: each[1].at_us))
    calls = [newest[own] for own in sorted(newest) if not own.startswith(UNDO)]
    undone = [call for own, call in newest.items() if own.startswith(UNDO)]
    return [*calls, *sorted(undone, key=lambda call: call.at_us)]


def _recorded(
    reader: _Reader, key: str, entries: Mapping[str, Entry], *, is_last: bool
) -> RecordedCall:
    """Return a call that has a record. is_last: the last of its branch, or its job runs."""
    entry = entries[key]
    head = entry.head
    state = _WAITS[head.kind] if is_last else head.state
    tries = entries.get(note_of(key, "tries"))
    has_value = state == "done" and head.kind in _WITH_VALUES
    return RecordedCall(
        position_of(key), head.kind, head.name, state, head.at_us, head.until_us,
        tries=0 if tries is None else tries.head.tries,
        error=_error_of(reader, key, entry) if state in _BAD else "",
        job=head.source if head.kind in ("call", "result") else "",
        began_us=_began_us(key, head, entries),
        count=head.count if head.kind == "gather" else 0,
        value=StoredValue(head.codec, entry.value) if has_value and not head.apart else None,
        is_apart=has_value and bool(head.apart),
    )  # fmt: skip


def _began_us(key: str, head: Head, entries: Mapping[str, Entry]) -> int:
    """Return when a recorded call began; 0 if its records do not say."""
    if head.kind in _CALLS:  # the record of the call is mostly the one before
        before = entries.get(f"{number_of(key) - 1:05}")
        call = (_CALLS[head.kind], head.source)
        is_own = before is not None and (before.head.kind, before.head.source) == call
        return before.head.at_us if before is not None and is_own else 0
    if head.kind == "signal":
        wait = entries.get(note_of(key, "wait"))
        return head.at_us if wait is None else wait.head.at_us
    return head.at_us - head.took_us if head.took_us or head.kind not in ("step", "undo") else 0


def _open(key: str, note: str, entry: Entry) -> RecordedCall:
    head = entry.head
    kind = "undo" if key.startswith(UNDO) else NOTES[note]
    return RecordedCall(
        position_of(key), kind, head.name, _NOTES[note], head.at_us, head.until_us, head.tries,
        head.error, began_us=0 if note == "tries" else head.at_us,
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
