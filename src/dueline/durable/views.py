"""What a durable function has done, and what it waits for, as its records say."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from dueline.core.attempt import DurablePlace, Stop
from dueline.core.call_options import durable_place
from dueline.core.codec import DAMAGE, JSON
from dueline.core.job import Job, JobId
from dueline.core.pagination import record_at
from dueline.core.store import Records
from dueline.durable.log import END, NOTES, Entry, entries_of, is_position, shown
from dueline.durable.signals import first_free, named, read_inbox
from dueline.durable.stopped import stop_of
from dueline.jobs.function_list import values_of
from dueline.jobs.parked_functions import has_ended

KINDS: Final = frozenset(
    {"step", "sleep", "signal", "cancel", "undo", "end", "opened", "wait", "start", "tries",
     "deaths", "call", "result", "gather", "calls", "gathered", "results", "restart", "patch"}
)  # fmt: skip
"""What records may be of."""

_UNDO: Final = "undo/"
_ENCRYPTED: Final = "(encrypted)"


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call of a durable function, as far as its records say.

    Attributes:
      position: Such as "3".
      kind: "step", "sleep", "signal", "cancel" or "undo"; undo: the compensation of that call.
      name: Name of the step or signal.
      state: "done", "failed", "lost" or "timed_out"; of a call without an end: "sleeping",
        "waiting", "retrying" or "started".
      at_us: When that was recorded.
      until_us: When the wait ends; 0 for never, or without a wait.
      tries: Failed attempts of a call without an end.
      error: The error of a call that failed, or of its last attempt.
    """

    position: str
    kind: str
    name: str
    state: str
    at_us: int
    until_us: int = 0
    tries: int = 0
    error: str = ""

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
    def open_call(self) -> RecordedCall | None:
        """The call that has not ended; None without one."""
        return next((call for call in reversed(self.calls) if call.is_open), None)


_NOTES: Final = {"wait": "waiting", "tries": "retrying", "start": "started"}
"""States of calls of which only a note is known."""

_OPEN: Final = frozenset({"sleeping", *_NOTES.values()})


def view_of(records: Records, job_id: JobId, row: Job | None) -> FunctionView:
    """Read a function.

    Raises:
      StoreCorrupt: A record cannot be read.
    """
    place = None if row is None else durable_place(row)
    place = place or DurablePlace()
    generation = place.generation
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
        generation,
        _calls(records, values_of(job_id, generation), entries, is_over=has_ended(row)),
        "" if end is None else end.head.state,
        None if row is None else stop_of(row),
        unread,
        inbox.is_cancelled,
    )


def position_of(key: str) -> str:
    """Return the position of a call or compensation as people read it, such as "5.2"."""
    return shown(key.removeprefix(_UNDO))


def _calls(
    records: Records, values: str, entries: Mapping[str, Entry], *, is_over: bool
) -> list[RecordedCall]:
    """Return the calls of a log, in their order; compensations last, as they ran."""
    found = []
    for key, entry in entries.items():
        own, mark, note = key.partition("!")
        if not own.removeprefix(_UNDO)[:1].isdigit():
            continue
        if not mark:
            is_last = not is_over and not _has_later(own, entries)
            found.append((own, _recorded(records, values, own, entry, is_last=is_last)))
        elif note in _NOTES and own not in entries and not is_over:
            found.append((own, _open(own, note, entry)))
    newest = dict(sorted(found, key=lambda each: each[1].at_us))
    calls = [newest[own] for own in sorted(newest) if not own.startswith(_UNDO)]
    undone = [call for own, call in newest.items() if own.startswith(_UNDO)]
    return [*calls, *sorted(undone, key=lambda call: call.at_us)]


def _recorded(
    records: Records, values: str, key: str, entry: Entry, *, is_last: bool
) -> RecordedCall:
    """Return a call that has a record. is_last: of its branch, of a function that goes on."""
    head = entry.head
    state = "sleeping" if head.kind == "sleep" and is_last else head.state
    error = "" if state not in ("failed", "lost") else _error_of(records, values, entry)
    return RecordedCall(
        position_of(key), head.kind, head.name, state, head.at_us, head.until_us, error=error
    )


def _has_later(key: str, entries: Iterable[str]) -> bool:
    """Return whether the branch of a position has a later one (rule D9)."""
    branch, length = key.rpartition("/")[0], len(key)
    return any(
        is_position(other) and other.startswith(branch) and other[:length] > key
        for other in entries
    )


def _open(key: str, note: str, entry: Entry) -> RecordedCall:
    head = entry.head
    kind = "undo" if key.startswith(_UNDO) else NOTES[note]
    return RecordedCall(
        position_of(key), kind, head.name, _NOTES[note], head.at_us, head.until_us, head.tries,
        head.error,
    )  # fmt: skip


def _error_of(records: Records, values: str, entry: Entry) -> str:
    """Return the type and text of a recorded error."""
    if entry.head.codec != JSON:
        return _ENCRYPTED
    value = entry.value
    if entry.head.apart:
        record = record_at(records, values, entry.head.apart)
        value = b"" if record is None else record.value
    try:
        kind, text, *_ = msgspec.json.decode(value, type=list[str])
    except (*DAMAGE, ValueError):
        return ""
    return f"{kind}: {text}".rstrip(": ")
