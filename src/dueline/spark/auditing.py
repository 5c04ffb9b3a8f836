"""An audit of queues that may be in use."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import compute

from dueline.errors import BadInput
from dueline.job import JobId
from dueline.lane import dead_queue
from dueline.queue import Queues
from dueline.settings import tells_all
from dueline.spark.bounds import Births, is_inside
from dueline.spark.engine import Engine, Say
from dueline.spark.folder import BRONZE, Folder, Manifest
from dueline.spark.keys import job_id_of
from dueline.spark.rules import NO_PROMISES, RULES, Promises

Run = tuple[str, int | None]

PAGE: Final = 1000
ALL: Final = Births()
_LOST: Final = frozenset(words for verdict, words in RULES.values() if verdict == "lost")


class Standing(NamedTuple):
    """How an audit leaves a queue: clean, failed, or not audited.

    unjudged: jobs of which nothing is said, since they were enqueued before the tables begin, or
    outside of the period that was asked for. since_us: from when on the tables hold its history.
    """

    queue: str
    history: str
    verdict: str
    findings: int
    unjudged: int
    since_us: int


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

    def __init__(
        self,
        folder: Folder,
        queues: Queues,
        history: Mapping[str, str],
        bounds: Manifest,
        births: Births,
    ) -> None:
        """Take the tables, the store, how much the history of each queue holds, and bounds.

        Args: bounds: the manifest of bronze. births: of which jobs something is to be said.
        """
        self._folder = folder
        self._queues = queues
        self._history = history
        self._bounds = bounds
        self._births = births

    def judge(
        self,
        engine: Engine,
        say: Say,
        expected: Collection[str] | None,
        promises: Promises = NO_PROMISES,
    ) -> Judged:
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
        living = [
            (job.id.hex(), job.enqueued_us)
            for name in self._history
            for job in _rows_of(self._queues, name)
        ]
        say(f"audit: {len(living):,} jobs have a row")
        given = None if expected is None else list(map(job_id_of, expected))
        engine.bronze(say)
        if self._bounds.until_us:  # who has ended after it seems lost
            whole = []
        said = engine.audit(living, whole, given, promises)
        findings = self._confirmed(said.findings, since_us)
        homes = self._of_jobs({one["job_id"] for one in findings}, "queue")
        findings = self._asked(findings, homes)
        counts = Counter(homes.get(one["job_id"], "") for one in findings)
        jobs, judged = self._jobs()
        standings = [
            Standing(
                name,
                kept,
                _verdict(counts[name], name in whole and judged[name] >= min(1, jobs[name])),
                counts[name],
                jobs[name] - judged[name],
                self._bounds.begins.get(name, 0),
            )
            for name, kept in self._history.items()
        ]
        told = [
            {"queue": homes.get(one["job_id"], ""), "enqueued_us": enqueued_us, **one}
            for one in map(dict, findings)
            for enqueued_us in (one.pop("enqueued"),)
        ]
        return Judged(standings, told, said.looked_for, said.not_audited)

    def _confirmed(
        self, findings: Iterable[Mapping[str, Any]], since_us: int
    ) -> list[Mapping[str, Any]]:
        """Leave out what is not lost: it has a row after all, or was born after the look."""
        told = list(findings)
        lost = [one for one in told if one["words"] in _LOST]
        enqueued = self._enqueued(lost)
        sure: set[Run] = set()
        for place in range(0, len(lost), PAGE):
            some = [one for one in lost[place : place + PAGE] if len(one["job_id"]) == 2 * 16]
            rows = self._queues.store.find([JobId(bytes.fromhex(one["job_id"])) for one in some])
            sure |= {
                _run_of(one)
                for one, row in zip(some, rows, strict=True)
                if row is not None and one["enqueued"] in (None, row.enqueued_us)
            }
        sure |= {_run_of(one) for one in lost if (enqueued(one) or 0) >= since_us}
        return [one for one in told if one["words"] not in _LOST or _run_of(one) not in sure]

    def _enqueued(
        self, findings: Sequence[Mapping[str, Any]]
    ) -> Callable[[Mapping[str, Any]], int | None]:
        """Make what tells when the job of a finding was enqueued, if anything tells it."""
        unnamed = {one["job_id"] for one in findings if one["enqueued"] is None}
        known = self._of_jobs(unnamed, "enqueued")
        return lambda one: known.get(one["job_id"]) if one["enqueued"] is None else one["enqueued"]

    def _asked(
        self, findings: Sequence[Mapping[str, Any]], homes: Mapping[str, str]
    ) -> list[Mapping[str, Any]]:
        """Leave out jobs of which nothing can be said, and those that nobody asks about."""
        enqueued = self._enqueued(findings)
        begins = self._bounds.begins
        return [
            one
            for one in findings
            for job_id in (one["job_id"],)
            if is_inside(self._births, begins, job_id, homes.get(job_id), enqueued(one))
        ]

    def _jobs(self) -> tuple[Counter[str], Counter[str]]:
        """Count the jobs of each queue that the tables tell of, and those that are judged."""
        begins = self._bounds.begins
        if self._births == ALL and not any(begins.values()):  # all are
            return Counter(), Counter()
        table = self._folder.read(BRONZE, columns=("queue", "job_id", "enqueued"))
        if table is None:
            return Counter(), Counter()
        keys = ["queue", "job_id", "enqueued"]
        table = table.group_by(keys).aggregate([])
        born = table.column("enqueued").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        jobs, judged = Counter[str](), Counter[str]()
        columns = (table.column(name).to_pylist() for name in keys[:2])
        for queue, job_id, born_us in zip(*columns, born.to_pylist(), strict=True):
            jobs[queue] += 1
            judged[queue] += is_inside(self._births, begins, job_id, queue, born_us)
        return jobs, judged

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


def _run_of(finding: Mapping[str, Any]) -> Run:
    return finding["job_id"], finding["enqueued"]


def _verdict(findings: int, is_audited: bool) -> str:  # noqa: FBT001  (both of it)
    if findings:
        return "failed"
    return "clean" if is_audited else "not audited"


def _rows_of(queues: Queues, name: str) -> Iterable[Any]:
    for queue in (name, dead_queue(name)):
        yield from queues.jobs_of(queue)
