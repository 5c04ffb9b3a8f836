"""Events of streams, and their positions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, overload

from dueline.core.clock import asked_instant_us, to_datetime
from dueline.core.codec import Content, decode_event
from dueline.core.errors import BadInput
from dueline.core.store import Row


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A position in a shard; a reader after it begins with the next event."""

    at_us: int
    id: bytes = b""

    @classmethod
    def at(cls, instant: datetime) -> "Position":
        """Return the position before all events appended at a time, an aware datetime."""
        return cls(asked_instant_us(instant, "instant"))

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Parse a position that was formatted with `str`."""
        try:
            at_us, row_id = text.split("-")
            return cls(int(at_us), bytes.fromhex(row_id))
        except ValueError as error:
            raise BadInput(f"{text!r:.80} is no position.") from error

    def __str__(self) -> str:
        return f"{self.at_us}-{self.id.hex()}"


class Event:
    """One row of a stream. row: as the store has it."""

    __slots__ = ("_read", "row")

    def __init__(self, row: Row) -> None:
        self.row = row
        self._read: Content | None = None

    def __repr__(self) -> str:
        return f"<Event {self.id} of {self.row.stream}/{self.row.shard}>"

    @property
    def id(self) -> str:
        """The id of the event, the same however often it is appended or read."""
        return self.row.id.hex()

    @property
    def at(self) -> datetime:
        """When it was appended, by the store's clock."""
        return to_datetime(self.row.at_us)

    @property
    def shard(self) -> int:
        """The shard of the event, which follows from its key."""
        return self.row.shard

    @property
    def position(self) -> Position:
        """The position of the event in its shard."""
        return Position(self.row.at_us, self.row.id)

    @property
    def key(self) -> str | None:
        """The ordering key; events with the same key are read in the order of their appends."""
        read = self._read
        if read is None:
            read = self._read = decode_event(self.row.body)
        return read.key

    @property
    def value(self) -> Any:  # noqa: ANN401  (whatever JSON holds)
        """The value that was appended."""
        read = self._read
        if read is None:
            read = self._read = decode_event(self.row.body)
        return read.value

    @property
    def topic(self) -> str | None:
        """The topic under which it was published; None for other events of streams."""
        return self._content().topic

    @property
    def headers(self) -> dict[str, str]:
        """The headers with which it was appended or published; a copy."""
        return dict(self._content().headers or {})

    def _content(self) -> Content:
        if self._read is None:
            self._read = decode_event(self.row.body)
        return self._read


class Events(Sequence[Event]):
    """Events of rows, each created when it is accessed."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> "Events": ...

    def __getitem__(self, place: int | slice) -> "Event | Events":
        """Return one event, or a slice."""
        if isinstance(place, slice):
            return Events(self._rows[place])
        return Event(self._rows[place])
