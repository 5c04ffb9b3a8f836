"""A disk that knows what was flushed.

`Recorder` stands between SQLite and its files and writes down, in order, what SQLite writes and
flushes. `Platter` plays that back: it knows what is surely there when the power fails, and makes
images of what may be there. What was written since a file's last flush may be there or not, each
write by itself and in parts of a sector (sqlite.org/atomiccommit.html, "hardware assumptions").
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

SECTOR_BYTES: Final = 512
TORN_SHARE: Final = 0.2
"""How many of the writes that are not flushed get there in part."""


class Write(NamedTuple):
    """Bytes at an offset of a file."""

    file: str
    offset: int
    data: bytes


class Cut(NamedTuple):
    """A file's new, smaller size."""

    file: str
    size: int


class Flush(NamedTuple):
    """All that was written to a file is there from now on."""

    file: str


class Removal(NamedTuple):
    """A file is gone."""

    file: str


class Mark(NamedTuple):
    """Something that whoever used the disk wants to find again in its order."""

    number: int


Step = Write | Cut | Flush | Removal | Mark


class Recorder(apsw.VFS):
    """SQLite's way to the files of one folder; others it leaves alone."""

    def __init__(self, folder: Path, *, flushes: bool = True) -> None:
        """Begin to write down. flushes: whether a flush is one, or this disk only says so."""
        self.steps: list[Step] = []
        self.folder = folder
        self._flushes = flushes
        super().__init__("recorder", "unix", makedefault=True)

    def xOpen(  # noqa: N802  (SQLite's name)
        self, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> apsw.VFSFile:
        """Open a file; one of the folder is watched."""
        path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "")
        if path.parent != self.folder:
            return apsw.VFSFile("unix", name, flags)
        return _Watched(self, path.name, name, flags)

    def xDelete(self, name: str, syncdir: bool) -> None:  # noqa: FBT001, N802
        """Remove a file."""
        super().xDelete(name, syncdir)
        self.steps.append(Removal(Path(name).name))

    def flushed(self, file: str) -> None:
        """Take down a flush."""
        if self._flushes:
            self.steps.append(Flush(file))


class _Watched(apsw.VFSFile):
    def __init__(self, disk: Recorder, file: str, name: Any, flags: list[int]) -> None:  # noqa: ANN401
        self._disk = disk
        self._file = file
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        super().xWrite(data, offset)
        self._disk.steps.append(Write(self._file, offset, bytes(data)))

    def xTruncate(self, size: int) -> None:  # noqa: N802
        super().xTruncate(size)
        self._disk.steps.append(Cut(self._file, size))

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._disk.flushed(self._file)


@contextmanager
def recording(folder: Path, *, flushes: bool = True) -> Iterator[Recorder]:
    """Record what SQLite does to the files of a folder until the end of the block."""
    recorder = Recorder(folder.resolve(), flushes=flushes)
    try:
        yield recorder
    finally:
        recorder.unregister()


class Platter:
    """What is on the disk, as a recording is played back step by step."""

    def __init__(self) -> None:
        """Begin with an empty folder."""
        self._sure: dict[str, bytearray] = {}
        self._open: dict[str, list[Write | Cut]] = {}

    def play(self, step: Write | Cut | Flush | Removal) -> None:
        """Do the next step."""
        match step:
            case Write() | Cut():
                self._open.setdefault(step.file, []).append(step)
            case Flush(file):
                self._sure[file] = _applied(self._sure.get(file, b""), self._open.pop(file, []))
            case Removal(file):
                self._sure.pop(file, None)
                self._open.pop(file, None)

    def image(self, chance: random.Random) -> Mapping[str, bytes]:
        """Fail the power: what the files hold now, by name, as far as chance lets it be there."""
        share = chance.choice((0.0, 1.0, 0.5, chance.random()))
        return {
            file: bytes(
                _applied(
                    self._sure.get(file, b""), _survivors(self._open.get(file, ()), share, chance)
                )
            )
            for file in {*self._sure, *self._open}
        }


def _applied(content: bytes | bytearray, steps: Iterable[Write | Cut]) -> bytearray:
    made = bytearray(content)
    for step in steps:
        if isinstance(step, Cut):
            del made[step.size :]
        else:
            made.extend(bytes(max(0, step.offset - len(made))))
            made[step.offset : step.offset + len(step.data)] = step.data
    return made


def _survivors(
    steps: Sequence[Write | Cut], share: float, chance: random.Random
) -> Iterator[Write | Cut]:
    for step in steps:
        if chance.random() >= share:
            continue
        if isinstance(step, Write) and chance.random() < TORN_SHARE:
            yield from _torn(step, chance)
        else:
            yield step


def _torn(write: Write, chance: random.Random) -> Iterator[Write]:
    """Let some of the sectors that a write touches get there."""
    begin, end = write.offset, write.offset + len(write.data)
    while begin < end:
        border = min(end, (begin // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if chance.random() < 0.5:
            part = write.data[begin - write.offset : border - write.offset]
            yield Write(write.file, begin, part)
        begin = border
