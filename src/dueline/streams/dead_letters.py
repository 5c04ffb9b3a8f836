"""Events that are set aside.

One that keeps failing would hold up its whole shard. It is copied into a stream of its own, with
all that follow it under the same key, so that their order holds; which keys are set aside is kept
beside the checkpoint and moves with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from dueline.core.codec import decode, encode
from dueline.core.errors import Unknown
from dueline.core.pagination import rows_in
from dueline.core.store import Delete, Put, Records, Row, Store
from dueline.log.checkpoint import Place
from dueline.streams.event import Event
from dueline.streams.trial import Trial

KEYS_MAX: Final = 1000
"""How many keys of a shard may be set aside before its consumer stops there."""

LISTED_MAX: Final = 1000
"""How many events of one key are listed."""

_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Note:
    """What a consumer keeps beside its checkpoint.

    parked: for each key that is set aside, behind which place its events lie in the stream of
    the parked. trial: an attempt that may kill its process, None where there is none.
    """

    parked: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    trial: Trial | None = None

    def has(self, row: Row) -> bool:
        """Tell whether a row's key is set aside."""
        return bool(self.parked) and key_of(row) in self.parked

    def place(self, key: str) -> Place:
        """Tell behind which place a key's events lie."""
        at_us, row_id = self.parked[key]
        return at_us, bytes.fromhex(row_id)

    def with_key(self, key: str, behind: Place) -> "Note":
        """Set a key aside, or say how far its events have been read."""
        return replace(self, parked={**self.parked, key: (behind[0], behind[1].hex())})

    def from_place(self, place: Place) -> "Note":
        """Count all that lies behind a place as set aside, where its key is."""
        behind = (place[0], place[1].hex())
        return Note({key: min(at, behind) for key, at in self.parked.items()})

    def behind(self, place: Place) -> "Note":
        """Return it once all events up to a place are handled."""
        return self if self.trial is None else replace(self, trial=self.trial.after(place))

    def without(self, key: str) -> "Note":
        """Let a key take part again."""
        return replace(self, parked={one: at for one, at in self.parked.items() if one != key})


def read_note(text: str) -> Note:
    """Read what was kept beside a checkpoint."""
    return decode(text.encode(), Note) if text else Note()


def write_note(note: Note) -> str:
    """Write what is kept beside a checkpoint; nothing where there is nothing to keep."""
    return encode(note).decode() if note.parked or note.trial else ""


def key_of(row: Row) -> str:
    """Name what is set aside with a row: its ordering key, or itself where it has none."""
    return name_of(Event(row).key, row.id.hex())


def name_of(key: str | None, event_id: str) -> str:
    """Name what is set aside by an ordering key, or without one by the event's id."""
    return f"event {event_id}" if key is None else f"key {key}"


def key_in(name: str) -> str | None:
    """Tell the ordering key in such a name; None: it names an event."""
    kind, _, rest = name.partition(" ")
    return rest if kind == "key" else None


def parked_stream(stream: str, group: str) -> str:
    """Name the stream of what a group has set aside."""
    return f"{stream}!parked/{group}"


def park(store: Store, group: str, rows: Sequence[Row]) -> None:
    """Copy rows into the stream of the parked; repeats are the very same rows."""
    if rows:
        stream = parked_stream(rows[0].stream, group)
        if None in store.append([row._replace(stream=stream) for row in rows]):
            raise Unknown("Some events may be set aside or not.")


def rows_of(
    store: Store, stream: str, group: str, shard: int, *, key: str, after: Place, limit: int
) -> list[Row]:
    """Read what was set aside with a key, in order."""
    parked = rows_in(store, parked_stream(stream, group), shard, after=after, page_size=_PAGE)
    found = (row._replace(stream=stream) for row in parked if key_of(row) == key)
    return list(islice(found, limit))


def ask(records: Records, stream: str, group: str, key: str, version: bytes) -> None:
    """Request that a key takes part again."""
    records.commit(_wishes_at(stream, group), (Put(key, version, b""),))


def asked(records: Records, stream: str, group: str) -> set[str]:
    """Read which keys shall take part again; as many as one page holds."""
    page = records.read(_wishes_at(stream, group), after=None, limit=_PAGE)
    return {record.key for record in page}


def withdraw(records: Records, stream: str, group: str, key: str) -> None:
    """Forget such a wish: it came true, or cannot."""
    records.commit(_wishes_at(stream, group), (Delete(key),))


def _wishes_at(stream: str, group: str) -> str:
    return f"stream-unpark/{stream}/{group}"
