"""An audit of queues that may be in use."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import compute

from dueline.errors import BadInput
from dueline.job import JobId
from dueline.lane import dead_queue
from dueline.queue import Queues
from dueline.settings import tells_all
from dueline.spark.engine import Engine, Say
from dueline.spark.folder import BRONZE, Folder
from dueline.spark.rules import RULES

PAGE: Final = 1000
_LOST: Final = frozenset(words for verdict, words in RULES.values() if verdict == "lost")


class Standing(NamedTuple):
    """How an audit leaves a queue: clean, failed, or not audited."""

    queue: str
    history: str
    verdict: str
    findings: int


class Judged(NamedTuple):
    """What an audit says: of each queue, each finding, and which verdicts were looked for."""

    queues: Sequence[Standing]
    findings: Sequence[Mapping[str, Any]]
    looked_for: Sequence[str]
    not_audited: Sequence[str]

    @property
    def has_failed(self) -> bool:
        """Tell whether anything was found."""
        return bool(self.findings)


class Auditor:
    """Judges what was copied of some queues' history, beside what they hold."""

    def __init__(self, folder: Folder, queues: Queues, history: Mapping[str, str]) -> None:
        """Take the tables, the store, and how much the history of each queue holds."""
        self._folder = folder
        self._queues = queues
        self._history = history

    def judge(self, engine: Engine, say: Say, expected: Collection[str] | None) -> Judged:
        """Copy what is new, and judge.

        Who has a row is read first, the history after it: what ended in between is told there.
        What seems lost is looked up by its id, since a row that moves can be overlooked.

        Raises: BadInput: `expected` with a queue whose history does not tell of births.
        """
        whole = [name for name, kept in self._history.items() if tells_all(kept)]
        if expected is not None and len(whole) < len(self._history):
            raise BadInput(
                "What is expected can be compared only where the history is all, or arguments.",
                hint="Choose such queues with --queue.",
            )
        since_us = self._queues.store.clock_us()
        living = [job.id.hex() for name in self._history for job in _rows_of(self._queues, name)]
        say(f"audit: {len(living):,} jobs have a row")
        given = None if expected is None else list(expected)
        engine.bronze(say)
        said = engine.audit(living, whole, given)
        findings = self._confirmed(said.findings, since_us)
        homes = self._of_jobs({one["job_id"] for one in findings}, "queue")
        counts = Counter(homes.get(one["job_id"], "") for one in findings)
        standings = [
            Standing(name, kept, _verdict(kept, counts[name]), counts[name])
            for name, kept in self._history.items()
        ]
        told = [{"queue": homes.get(one["job_id"], ""), **one} for one in findings]
        return Judged(standings, told, said.looked_for, said.not_audited)

    def _confirmed(
        self, findings: Iterable[Mapping[str, Any]], since_us: int
    ) -> list[Mapping[str, Any]]:
        """Leave out what is not lost: it has a row after all, or was born after the look."""
        told = list(findings)
        lost = [one["job_id"] for one in told if one["words"] in _LOST]
        born = self._of_jobs(lost, "enqueued")
        sure: set[str] = set()
        for place in range(0, len(lost), PAGE):
            some = [one for one in lost[place : place + PAGE] if len(one) == 2 * 16]
            rows = self._queues.store.find([JobId(bytes.fromhex(one)) for one in some])
            sure |= {one for one, row in zip(some, rows, strict=True) if row is not None}
        sure |= {one for one in lost if born.get(one, 0) >= since_us}
        return [one for one in told if one["words"] not in _LOST or one["job_id"] not in sure]

    def _of_jobs(self, ids: Collection[str], column: str) -> dict[str, Any]:
        table = None
        if ids and self._folder.manifest(BRONZE).parts:
            table = self._folder.read(BRONZE, columns=("job_id", column))
        if table is None:
            return {}
        wanted = pa.array(list(ids), pa.string())
        table = table.filter(compute.is_in(table.column("job_id"), wanted))
        values = table.column(column)
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        return dict(zip(table.column("job_id").to_pylist(), values.to_pylist(), strict=True))


def _verdict(history: str, findings: int) -> str:
    if findings:
        return "failed"
    return "clean" if tells_all(history) else "not audited"


def _rows_of(queues: Queues, name: str) -> Iterable[Any]:
    for queue in (name, dead_queue(name)):
        yield from queues.jobs_of(queue)
