"""Parked events: the dead letters of a stream.

An event that keeps failing would block its whole shard. It is copied into a separate stream, with
all later events of the same key, so that their order holds. The parked keys are stored beside the
checkpoint and move with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from dueline.core.codec import decode, encode
from dueline.core.errors import Unknown
from dueline.core.job import Job
from dueline.core.pagination import rows_in
from dueline.core.store import Delete, Put, Records, Row, Store
from dueline.log.checkpoint import Place
from dueline.streams.event import Event
from dueline.streams.trial import Trial

KEYS_MAX: Final = 1000
"""Maximum number of parked keys of a shard; then its consumer stops there."""

LISTED_MAX: Final = 1000
"""Maximum number of events of one key that are listed."""

_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows of jobs that are inserted for events, so that each repeat writes the same (F11).

    until: the position of the last of these events. jobs: without their bodies, which the events
    have.
    """

    until: tuple[int, str]
    jobs: tuple[Job, ...]

    def after(self, place: Place) -> "Plan | None":
        """Return what is left past a position."""
        return self if (place[0], place[1].hex()) < self.until else None


@dataclass(frozen=True, slots=True)
class Note:
    """What a consumer stores beside its checkpoint.

    parked: for each parked key, the position in the stream of parked events after which its events
    are. trial: an attempt that may kill its process, or None. plan: jobs that are being inserted
    for the next events, or None.
    """

    parked: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    trial: Trial | None = None
    plan: Plan | None = None

    def has(self, row: Row) -> bool:
        """Return whether the key of a row is parked."""
        return bool(self.parked) and key_of(row) in self.parked

    def place(self, key: str) -> Place:
        """Return the position after which the parked events of a key are."""
        at_us, row_id = self.parked[key]
        return at_us, bytes.fromhex(row_id)

    def with_key(self, key: str, behind: Place) -> "Note":
        """Return the note with a parked key, and how far its parked events were read."""
        return replace(self, parked={**self.parked, key: (behind[0], behind[1].hex())})

    def from_place(self, place: Place) -> "Note":
        """Return the note in which parked events past a position are unread again."""
        behind = (place[0], place[1].hex())
        return Note({key: min(at, behind) for key, at in self.parked.items()})

    def behind(self, place: Place) -> "Note":
        """Return the note once all events up to a position are handled."""
        if self.trial is None and self.plan is None:
            return self
        trial = None if self.trial is None else self.trial.after(place)
        return replace(
            self, trial=trial, plan=None if self.plan is None else self.plan.after(place)
        )

    def without(self, key: str) -> "Note":
        """Return the note without a parked key."""
        return replace(self, parked={name: at for name, at in self.parked.items() if name != key})


def read_note(text: str) -> Note:
    """Decode the note of a checkpoint."""
    return decode(text.encode(), Note) if text else Note()


def write_note(note: Note) -> str:
    """Encode the note of a checkpoint; empty where there is nothing to store."""
    return encode(note).decode() if note.parked or note.trial or note.plan else ""


def key_of(row: Row) -> str:
    """Return the parked key of a row: its ordering key, or the row itself if it has none."""
    return name_of(Event(row).key, row.id.hex())


def name_of(key: str | None, event_id: str) -> str:
    """Return the parked key for an ordering key, or without one for the id of the event."""
    return f"event {event_id}" if key is None else f"key {key}"


def key_in(name: str) -> str | None:
    """Return the ordering key in a parked key; None: it names an event."""
    kind, _, rest = name.partition(" ")
    return rest if kind == "key" else None


def parked_stream(stream: str, group: str) -> str:
    """Return the name of the stream of a group's parked events."""
    return f"{stream}!parked/{group}"


def park(store: Store, group: str, rows: Sequence[Row]) -> None:
    """Copy rows into the stream of parked events; repeats are the same rows."""
    if rows:
        stream = parked_stream(rows[0].stream, group)
        if None in store.append([row._replace(stream=stream) for row in rows]):
            raise Unknown("Some events may or may not be parked.")


def rows_of(
    store: Store, stream: str, group: str, shard: int, *, key: str, after: Place, limit: int
) -> list[Row]:
    """Read the parked events of a key, in order."""
    parked = rows_in(store, parked_stream(stream, group), shard, after=after, page_size=_PAGE)
    rows = (row._replace(stream=stream) for row in parked if key_of(row) == key)
    return list(islice(rows, limit))


def ask(records: Records, stream: str, group: str, key: str, version: bytes) -> None:
    """Request that a parked key is handled again."""
    records.commit(_wishes_at(stream, group), (Put(key, version, b""),))


def asked(records: Records, stream: str, group: str) -> set[str]:
    """Read which parked keys are to be handled again; up to one page."""
    page = records.read(_wishes_at(stream, group), after=None, limit=_PAGE)
    return {record.key for record in page}


def withdraw(records: Records, stream: str, group: str, key: str) -> None:
    """Delete a request: it is fulfilled, or cannot be."""
    records.commit(_wishes_at(stream, group), (Delete(key),))


def _wishes_at(stream: str, group: str) -> str:
    return f"stream-unpark/{stream}/{group}"
