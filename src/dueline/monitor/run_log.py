"""When which chore was done last, under the epoch of who did it (rules M1, L2).

A monitor opens the diary under its epoch, which writes the epoch into it. From then on whatever
a monitor before it writes is refused, however late it comes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dueline.core import monitor_notes
from dueline.core.codec import decode, encode
from dueline.core.errors import Unknown
from dueline.core.store import NO_VERSION, Put, Records

_KIND, _NAME = "diary", "chores"
_ROUNDS_MAX = 20


@dataclass(frozen=True, slots=True)
class Line:
    """How far a chore is. next_us: when it goes on. after: where; None: a round begins then."""

    next_us: int
    after: str | None = None
    acts: int = 0


@dataclass(frozen=True, slots=True)
class _Stored:
    epoch: int = 0
    lines: Mapping[str, Line] = field(default_factory=dict)


class Diary:
    """The diary as one monitor writes it."""

    def __init__(self, records: Records, stored: _Stored, version: bytes) -> None:
        """Take what was opened: see `opened`."""
        self._records = records
        self._stored = stored
        self._version = version

    @property
    def lines(self) -> Mapping[str, Line]:
        """How far each chore is, by name."""
        return self._stored.lines

    def write(self, name: str, line: Line, puts: Sequence[Put], *, version: bytes) -> bool:
        """Write how far a chore has come, and its notes, as one.

        Args: version: random, for the diary.

        Returns: False: a later monitor has opened the diary; nothing was written.
        """
        wanted = replace(self._stored, lines={**self._stored.lines, name: line})
        if not _write(self._records, self._version, wanted, version, puts):
            return False
        self._stored, self._version = wanted, version
        return True


def opened(records: Records, *, epoch: int, version: bytes) -> Diary | None:
    """Open the diary under an epoch. version: random. None: a later epoch has opened it."""
    for _ in range(_ROUNDS_MAX):
        record = monitor_notes.read(records, _KIND, _NAME)
        present = _Stored() if record is None else decode(record.value, _Stored)
        if present.epoch >= epoch:
            return None
        expect = NO_VERSION if record is None else record.version
        wanted = replace(present, epoch=epoch)
        if _write(records, expect, wanted, version, ()):
            return Diary(records, wanted, version)
    return None


def lines(records: Records) -> Mapping[str, Line]:
    """Read how far each chore is, by name."""
    record = monitor_notes.read(records, _KIND, _NAME)
    return {} if record is None else decode(record.value, _Stored).lines


def _write(
    records: Records, expect: bytes, wanted: _Stored, version: bytes, puts: Sequence[Put]
) -> bool:
    """Write diary and notes as one; where it is unknown whether they are, read them back."""
    diary = monitor_notes.put(_KIND, _NAME, encode(wanted), version)
    try:
        return records.commit(monitor_notes.PARTITION, (diary._replace(expect=expect), *puts))
    except Unknown:
        record = monitor_notes.read(records, _KIND, _NAME)
        return record is not None and record.version == version
