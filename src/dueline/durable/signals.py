"""Signals: an inbox of the function, in the order in which they were sent.

The key of a signal is its name and id, so a repeat after an unknown answer is the same one.

A wait takes the oldest signal of its name: first a mark beside the signal that names the position
of the wait, then the record of the position. A mark counts unless the record of its position names
another signal: then a stale worker wrote it (rule D12).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dueline.core.attempt import DurablePlace, Parked
from dueline.core.clock import DAY_US
from dueline.core.codec import Cells, decode
from dueline.core.engine import Engine
from dueline.core.errors import Conflict
from dueline.core.job import Job, JobId
from dueline.core.pagination import records_in
from dueline.core.store import NO_VERSION, Delete, Record, Records
from dueline.durable.log import entry_at, number_of
from dueline.jobs.called_jobs import has_ended
from dueline.jobs.function_list import inbox_of
from dueline.jobs.parked_functions import CANCEL, HURRIED, RETRIED, ended_error, tell, wake

UNREAD_MAX: Final = 1000

KEEP_TAKEN_US: Final = DAY_US
"""How long a signal stays after it was taken: a late write would make a deleted one unread."""

_SIGNAL: Final = "signal/"
_TAKEN: Final = "taken/"
_PAGE: Final = 500


class Mark(Cells, frozen=True, gc=False):
    """Which position has taken a signal, and when. key: of the position."""

    generation: int
    key: str
    fence: int
    at_us: int = 0


class Signal(NamedTuple):
    """A signal in the inbox.

    key: its name and id. at_us: when it was sent. codec, value: what was sent.
    mark: who has taken it; None if it is unread. version: of the mark.
    """

    at_us: int
    key: str
    codec: int
    value: bytes
    mark: Mark | None = None
    version: bytes = NO_VERSION


class Inbox(NamedTuple):
    """What a function received.

    is_cancelled: its end was requested. retried: the generation that was retried by hand, or -1.
    hurried_us: waits for attempts of steps that began before are over. is_empty: it has no record.
    """

    signals: list[Signal]
    is_cancelled: bool
    retried: int
    hurried_us: int
    is_empty: bool


def read_inbox(records: Records, job_id: JobId) -> Inbox:
    """Read the inbox of a function."""
    inbox = list(records_in(records, inbox_of(job_id), page_size=_PAGE))
    marks = {record.key: record for record in inbox if record.key.startswith(_TAKEN)}
    signals = [
        _signal(record, marks.get(_TAKEN + record.key[len(_SIGNAL) :]))
        for record in inbox
        if record.key.startswith(_SIGNAL)
    ]
    signals.sort(key=_when_of)
    values = {record.key: record.value for record in inbox}
    retried, hurried_us = int(values.get(RETRIED, b"-1")), int.from_bytes(values.get(HURRIED, b""))
    return Inbox(signals, CANCEL in values, retried, hurried_us, not inbox)


def first_signals(records: Records, job_id: JobId, most: int) -> list[Signal]:
    """Read up to `most` signals of a function, by their names; the oldest of a name first."""
    inbox = inbox_of(job_id)
    # Marks have the order of their signals, so these include the marks of these signals.
    marks = {record.key: record for record in records.read(inbox, after=_TAKEN, limit=most)}
    signals = [
        _signal(record, marks.get(_TAKEN + record.key[len(_SIGNAL) :]))
        for record in records.read(inbox, after=_SIGNAL, limit=most)
        if record.key.startswith(_SIGNAL)
    ]
    return sorted(signals, key=_when_of)


def _signal(record: Record, mark: Record | None) -> Signal:
    at_us, codec = int.from_bytes(record.value[:8]), record.value[8]
    signal = Signal(at_us, record.key[len(_SIGNAL) :], codec, record.value[9:])
    if mark is None:
        return signal
    return signal._replace(mark=decode(mark.value, Mark), version=mark.version)


def _when_of(signal: Signal) -> tuple[int, str]:
    return signal.at_us, signal.key


def mark_key(signal: Signal) -> str:
    """Return the key of the mark of a signal."""
    return _TAKEN + signal.key


def named(signals: Iterable[Signal], name: str) -> list[Signal]:
    """Return the signals of a name, the oldest first."""
    return [signal for signal in signals if signal.key.partition("/")[0] == name]


def is_free(records: Records, job_id: JobId, place: DurablePlace, signal: Signal) -> bool:
    """Return whether no position has taken a signal, or a worker marked it in vain.

    The log of an older generation gets no more records, and a reset drops some (rules D12, D13).
    """
    if signal.mark is None:
        return True
    generation, key = signal.mark.generation, signal.mark.key
    entry = entry_at(records, job_id, generation, key)
    if entry is None:
        return generation < place.generation
    first = 0 if place.arguments is None else place.arguments[0] + 1
    is_dropped = generation >= first and place.owner(number_of(key)) != generation
    return entry.head.source != signal.key or is_dropped


def forget_taken(
    records: Records, job_id: JobId, signals: Sequence[Signal], before_us: int
) -> None:
    """Delete signals that were taken before a timestamp, with their marks (rule D12)."""
    for signal in signals:
        mark = signal.mark
        if mark is None or not 0 < mark.at_us < before_us:
            continue
        entry = entry_at(records, job_id, mark.generation, mark.key)
        if entry is not None and entry.head.source == signal.key:
            writes = Delete(mark_key(signal), expect=signal.version), Delete(_SIGNAL + signal.key)
            records.commit(inbox_of(job_id), writes)


def first_free(
    records: Records, job_id: JobId, place: DurablePlace, signals: Sequence[Signal]
) -> Signal | None:
    """Return the oldest signal that no position has taken; None without one."""
    return next((signal for signal in signals if is_free(records, job_id, place, signal)), None)


class Sent(NamedTuple):
    """A signal to send. id: of the sender. codec, value: what is sent."""

    name: str
    id: str
    codec: int
    value: bytes


def send(engine: Engine, job_id: JobId, sent: Sent) -> None:
    """Store a signal and wake the function.

    A signal with the id of an earlier one changes nothing, whenever it is sent.

    Raises:
        Conflict: The function has ended without it, or has too many unread signals.
    """
    there = named(read_inbox(engine.store, job_id).signals, sent.name)
    key = f"{sent.name}/{sent.id}"
    if any(signal.key == key for signal in there):
        _wake_reader(engine, job_id, key)
        return
    if sum(signal.mark is None for signal in there) >= UNREAD_MAX:
        raise Conflict(
            f"The function {job_id.hex()} has {UNREAD_MAX} unread signals {sent.name!r}.",
            hint="Send fewer signals, or read them with ctx.wait_signal.",
        )
    data = engine.time.latest_us().to_bytes(8) + bytes([sent.codec]) + sent.value
    if not tell(engine, job_id, _SIGNAL + key, data, word="signalled"):
        _wake_reader(engine, job_id, key)


def _wake_reader(engine: Engine, job_id: JobId, key: str) -> None:
    """Wake the function that takes a signal.

    Raises: Conflict: it has ended, and has not taken it.
    """
    if wake(engine, job_id):
        return
    signals = read_inbox(engine.store, job_id).signals
    sent = next((signal for signal in signals if signal.key == key), None)
    place = DurablePlace(sent.mark.generation if sent is not None and sent.mark else 0)
    if sent is None or is_free(engine.store, job_id, place, sent):
        raise ended_error(job_id, "signalled")


def check_again(engine: Engine, job: Job, ending: Parked) -> None:
    """Wake a function that was just parked if what it waits for has come meanwhile (rule D3)."""
    if not ending.place.parked_us:
        return
    if ending.call is not None and has_ended(engine.store, ending.call):
        wake(engine, job.id)
        return
    inbox = read_inbox(engine.store, job.id)
    waiting = named(inbox.signals, ending.awaits) if ending.awaits else ()
    is_cancelled = inbox.is_cancelled and not ending.ignores_cancel
    if is_cancelled or first_free(engine.store, job.id, ending.place, waiting) is not None:
        wake(engine, job.id)
