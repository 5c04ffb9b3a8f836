"""Signals: an inbox of the function, in the order in which they were sent.

The key of a signal is its name and id, so a repeat after an unknown answer is the same one.

A wait takes the oldest signal of its name: first a mark beside the signal that names the position
of the wait, then the record of the position. A mark counts unless the record of its position names
another signal: then a stale worker wrote it (rule D12).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dueline.core.attempt import Parked
from dueline.core.codec import Cells, decode, encode
from dueline.core.engine import Engine
from dueline.core.errors import Conflict
from dueline.core.job import Job, JobId
from dueline.core.pagination import records_in
from dueline.core.store import NO_VERSION, Record, Records
from dueline.durable.log import entry_at
from dueline.jobs.parked_functions import CANCEL, inbox_of, tell, wake

UNREAD_MAX: Final = 1000

_SIGNAL: Final = "signal/"
_TAKEN: Final = "taken/"
_PAGE: Final = 500


class Mark(Cells, frozen=True, gc=False):
    """Which position has taken a signal. key: of the position."""

    generation: int
    key: str
    fence: int


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
    """What a function was told. is_cancelled: its end was requested."""

    signals: list[Signal]
    is_cancelled: bool


def read_inbox(records: Records, job_id: JobId) -> Inbox:
    """Read what a function was told."""
    found = list(records_in(records, inbox_of(job_id), page_size=_PAGE))
    marks = {record.key: record for record in found if record.key.startswith(_TAKEN)}
    signals = [
        _signal(record, marks.get(_TAKEN + record.key[len(_SIGNAL) :]))
        for record in found
        if record.key.startswith(_SIGNAL)
    ]
    signals.sort(key=_when_of)
    return Inbox(signals, any(record.key == CANCEL for record in found))


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


def is_free(records: Records, job_id: JobId, signal: Signal) -> bool:
    """Return whether no position has taken a signal, or a stale worker marked it in vain."""
    if signal.mark is None:
        return True
    entry = entry_at(records, job_id, signal.mark.generation, signal.mark.key)
    return entry is not None and entry.head.source != signal.key


def first_free(records: Records, job_id: JobId, signals: Sequence[Signal]) -> Signal | None:
    """Return the oldest signal that no position has taken; None if there is none."""
    return next((signal for signal in signals if is_free(records, job_id, signal)), None)


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
        Conflict: The function has ended, or has too many unread signals.
    """
    there = named(read_inbox(engine.store, job_id).signals, sent.name)
    key = f"{sent.name}/{sent.id}"
    if any(signal.key == key for signal in there):
        wake(engine, job_id)
        return
    if sum(signal.mark is None for signal in there) >= UNREAD_MAX:
        raise Conflict(
            f"The function {job_id.hex()} has {UNREAD_MAX} unread signals {sent.name!r}.",
            hint="Send fewer signals, or read them with ctx.wait_signal.",
        )
    data = engine.time.latest_us().to_bytes(8) + bytes([sent.codec]) + sent.value
    tell(engine, job_id, _SIGNAL + key, data, word="signalled")


def check_again(engine: Engine, job: Job, ending: Parked) -> None:
    """Wake a function that was just parked if what it waits for has come meanwhile (rule D3)."""
    if not ending.place.parked_us:
        return
    inbox = read_inbox(engine.store, job.id)
    waiting = named(inbox.signals, ending.awaits) if ending.awaits else ()
    if inbox.is_cancelled or any(is_free(engine.store, job.id, signal) for signal in waiting):
        wake(engine, job.id)


def mark_of(generation: int, key: str, fence: int) -> bytes:
    """Return the value of a mark."""
    return encode(Mark(generation, key, fence))
