"""When each maintenance task ran last, fenced by the epoch of the leader (rules M1, L2).

A leader opens the run log under its epoch, which writes the epoch into it. From then on all writes
of earlier leaders are refused, however late they arrive.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dueline.coordination import notes
from dueline.core.codec import decode, encode
from dueline.core.errors import Unknown
from dueline.core.store import NO_VERSION, Put, Records

_KIND, _NAME = "diary", "chores"
_ROUNDS_MAX = 20


@dataclass(frozen=True, slots=True)
class TaskRun:
    """Progress of a task. next_us: when it continues. after: where; None: it starts a round."""

    next_us: int
    after: str | None = None
    acts: int = 0


@dataclass(frozen=True, slots=True)
class _Stored:
    epoch: int = 0
    lines: Mapping[str, TaskRun] = field(default_factory=dict)


class RunLog:
    """The run log as one leader writes it; see `open_run_log`."""

    def __init__(self, records: Records, stored: _Stored, version: bytes) -> None:
        self._records = records
        self._stored = stored
        self._version = version

    @property
    def runs(self) -> Mapping[str, TaskRun]:
        """The progress of each task, by name."""
        return self._stored.lines

    def write(self, name: str, run: TaskRun, puts: Sequence[Put], *, version: bytes) -> bool:
        """Write the progress of a task and its notes, atomically.

        Args: version: random, for the run log.

        Returns: False: a later leader has opened the run log; nothing was written.
        """
        wanted = replace(self._stored, lines={**self._stored.lines, name: run})
        if not _write(self._records, self._version, wanted, version, puts):
            return False
        self._stored, self._version = wanted, version
        return True

    def remember(self, name: str, run: TaskRun) -> None:
        """Keep the progress of a task, without writing it: a later leader may repeat the step."""
        self._stored = replace(self._stored, lines={**self._stored.lines, name: run})


def open_run_log(records: Records, *, epoch: int, version: bytes) -> RunLog | None:
    """Open the run log under an epoch. version: random. None: a later epoch has opened it."""
    for _ in range(_ROUNDS_MAX):
        record = notes.read(records, _KIND, _NAME)
        present = _Stored() if record is None else decode(record.value, _Stored)
        if present.epoch >= epoch:
            return None
        expect = NO_VERSION if record is None else record.version
        wanted = replace(present, epoch=epoch)
        if _write(records, expect, wanted, version, ()):
            return RunLog(records, wanted, version)
    return None


def _write(
    records: Records, expect: bytes, wanted: _Stored, version: bytes, puts: Sequence[Put]
) -> bool:
    """Write run log and notes atomically; if the outcome is unknown, read it back."""
    run_log = notes.put(_KIND, _NAME, encode(wanted), version)
    try:
        return records.commit(notes.PARTITION, (run_log._replace(expect=expect), *puts))
    except Unknown:
        record = notes.read(records, _KIND, _NAME)
        return record is not None and record.version == version
