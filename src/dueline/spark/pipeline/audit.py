"""Audit of queues that may be in use."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import dataset

from dueline.core.attempt import digest_of
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.core.job import JobId
from dueline.core.lane import dead_queue
from dueline.core.queue_settings import tells_all
from dueline.jobs import results
from dueline.spark.pipeline.audit_queries import EXPECTED, INSTANT, LIVING, audit
from dueline.spark.pipeline.audit_rules import NO_PROMISES, RULES, Known, Promises
from dueline.spark.pipeline.bronze import begins_of, period_of
from dueline.spark.pipeline.delta import Table
from dueline.spark.pipeline.engine import Say
from dueline.spark.pipeline.history_bounds import EnqueuePeriod, is_inside
from dueline.spark.pipeline.queries import Duck, Queries, lines_in, lines_of
from dueline.spark.writing.keys import job_id_of

PAGE: Final = 1000
ALL: Final = EnqueuePeriod()
LATE_US: Final = 10 * SECOND_US
"""Time after which every client has read a change of a queue's settings (rule Q1)."""

FIRST: Final = """
    SELECT queue, outcome, min(enqueued) AS first FROM rows GROUP BY queue, outcome"""

_LOST: Final = frozenset(rule.words for rule in RULES.values() if rule.verdict == "lost")


class Standing(NamedTuple):
    """The result of an audit for one queue: clean, failed, or not audited.

    Attributes:
        unjudged: Number of jobs that are not judged: they were enqueued before the tables begin, or
            outside of the requested period.
        since_us: Start of the queue's history in the tables.
    """

    queue: str
    history: str
    verdict: str
    findings: int
    unjudged: int
    since_us: int


class Judged(NamedTuple):
    """The result of an audit: by queue, the findings, and rules as in `Audited`."""

    queues: Sequence[Standing]
    findings: Sequence[Mapping[str, Any]]
    looked_for: Sequence[str]
    not_audited: Sequence[str]
    not_known: Mapping[str, str]

    @property
    def has_failed(self) -> bool:
        """Return whether there are findings."""
        return bool(self.findings)


class Living(NamedTuple):
    """The jobs that have a row (job_id, enqueued), and when reading them began."""

    rows: pa.Table
    since_us: int


class Auditor:
    """Compares the copied history of some queues with the rows of their jobs."""

    def __init__(
        self,
        bronze: Table,
        engine: Engine,
        history: Mapping[str, str],
        period: EnqueuePeriod,
    ) -> None:
        self._bronze = bronze
        self._engine = engine
        self._history = history
        self._period = period
        self._begins: dict[str, int] = {}

    def living(self, say: Say) -> Living:
        """Read the jobs that have a row, before the history is copied.

        So the history has the jobs that ended in between. Jobs that seem lost are looked up by id
        later, since a scan can miss a row that moves.
        """
        since_us = self._engine.store.clock_us()
        rows = (job for name in self._history for job in _rows_of(self._engine, name))
        batches = [
            pa.record_batch([[job.id.hex() for job in page],
                             pa.array([job.enqueued_us for job in page], INSTANT)], LIVING)
            for page in iter(lambda: list(islice(rows, PAGE)), [])
        ]  # fmt: skip
        living = pa.Table.from_batches(batches, LIVING)
        say(f"audit: {living.num_rows:,} jobs have a row")
        return Living(living, since_us)

    def judge(
        self,
        queries: Queries,
        living: Living,
        expected: Collection[str] | None,
        promises: Promises = NO_PROMISES,
        *,
        with_results: bool = False,
    ) -> Judged:
        """Judge the copied history.

        Raises:
            BadInput: `expected` needs a history of `all` or `arguments`, and a queue has less.
        """
        whole = [name for name, kept in self._history.items() if tells_all(kept)]
        if expected is not None and len(whole) < len(self._history):
            raise BadInput(
                "Expected jobs can be compared only if the history is `all` or `arguments`.",
                hint="Choose such queues with --queue.",
            )
        store = self._engine.store
        since_us = living.since_us
        self._bronze.refresh()
        self._begins = self._whole_since(whole, since_us)
        has_end = bool(period_of(self._bronze).until_us)  # jobs that ended later would seem lost
        said = audit(
            queries,
            self._bronze.view(),
            living=None if has_end else living.rows,
            expected=None
            if expected is None
            else pa.table({"job_id": list(map(job_id_of, expected))}, EXPECTED),
            promises=promises,
            known=Known(whole, is_exact=store.transactional, now_us=store.clock_us()),
        )
        if with_results:
            found = [*said.findings, *self._changed_results()]
            said = said.with_rule("another result", found)
        if has_end:
            whole = []
        findings = self._asked(self._confirmed(said.findings, since_us))
        counts = Counter(one["queue"] for one in findings)
        jobs, judged = self._jobs()
        standings = [
            Standing(
                name,
                kept,
                _verdict(counts[name], name in whole and judged[name] >= min(1, jobs[name])),
                counts[name],
                jobs[name] - judged[name],
                self._begins.get(name, 0),
            )
            for name, kept in self._history.items()
        ]
        shown = [
            {"queue": one["queue"] or "", "enqueued_us": one["enqueued"],
             **{name: one[name] for name in ("verdict", "job_id", "attempt", "words")}}
            for one in findings
        ]  # fmt: skip
        return Judged(standings, shown, said.looked_for, said.not_audited, said.not_known)

    def _whole_since(self, whole: Sequence[str], now_us: int) -> dict[str, int]:
        """Return the start of each queue's complete history in the tables.

        When a queue's history was changed to `all`, older jobs have no enqueue event, and neither
        have those of clients that had not read the new settings yet.
        """
        begins = begins_of(self._bronze, self._history)
        grouped = lines_of(Duck().run(FIRST, {"rows": self._bronze.view()}))
        for name in whole:
            first = {one["outcome"]: one["first"] for one in grouped if one["queue"] == name}
            event_us = first.pop("enqueued", now_us)
            if begins.get(name, 0) < min(first.values(), default=event_us) < event_us:
                begins[name] = event_us + LATE_US
        return begins

    def _confirmed(
        self, findings: Iterable[Mapping[str, Any]], since_us: int
    ) -> list[Mapping[str, Any]]:
        """Remove findings on jobs that are not lost: they have a row, or were enqueued later."""
        found_all = list(findings)
        seeming = sorted({one["job_id"] for one in found_all if one["words"] in _LOST})
        enqueued_us: dict[str, int] = {}
        for place in range(0, len(seeming), PAGE):
            some = [one for one in seeming[place : place + PAGE] if len(one) == 2 * 16]
            rows = self._engine.store.find([JobId(bytes.fromhex(one)) for one in some])
            found = zip(some, rows, strict=True)
            enqueued_us |= {one: row.enqueued_us for one, row in found if row is not None}

        def is_lost(one: Mapping[str, Any]) -> bool:
            if one["enqueued"] is None:
                return one["job_id"] not in enqueued_us
            is_new = one["enqueued"] >= since_us
            return not is_new and enqueued_us.get(one["job_id"]) != one["enqueued"]

        return [one for one in found_all if one["words"] not in _LOST or is_lost(one)]

    def _asked(self, findings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Remove findings on jobs outside of the tables or of the requested period."""
        begins = self._begins
        return [
            one
            for one in findings
            if is_inside(self._period, begins, one["job_id"], one["queue"], one["enqueued"])
        ]

    def _changed_results(self) -> Iterator[Mapping[str, Any]]:
        """Yield jobs whose stored result differs from the one in the history."""
        verdict, words, _ = RULES["another result"]
        names = ["queue", "job_id", "enqueued", "attempt", "ended", "digest"]
        has_digest = dataset.field("digest").is_valid()
        for batch in self._bronze.view().dataset().to_batches(names, filter=has_digest):
            lines = lines_in(pa.Table.from_batches([batch]))
            ids = {JobId(bytes.fromhex(line["job_id"])) for line in lines}
            kept = results.read_many(self._engine.store, ids)
            for line in lines:
                outcome = kept.get(JobId(bytes.fromhex(line["job_id"])))
                if outcome is None or outcome.ended_us != line["ended"]:
                    continue
                if digest_of(outcome.value.encode()) != line["digest"]:
                    shown = {name: line[name] for name in names[:4]}
                    yield {"verdict": verdict, **shown, "words": words}

    def _jobs(self) -> tuple[Counter[str], Counter[str]]:
        """Count the jobs in the tables and those that are judged, by queue."""
        begins = self._begins
        if self._period == ALL and not any(begins.values()):  # all are judged
            return Counter(), Counter()
        keys = ["queue", "job_id", "enqueued"]
        table = self._bronze.view().dataset().to_table(keys).group_by(keys).aggregate([])
        enqueued = table.column("enqueued").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        jobs, judged = Counter[str](), Counter[str]()
        columns = (table.column(name).to_pylist() for name in keys[:2])
        for queue, job_id, enqueued_us in zip(*columns, enqueued.to_pylist(), strict=True):
            jobs[queue] += 1
            judged[queue] += is_inside(self._period, begins, job_id, queue, enqueued_us)
        return jobs, judged


def _verdict(findings: int, is_audited: bool) -> str:  # noqa: FBT001  (both of it)
    if findings:
        return "failed"
    return "clean" if is_audited else "not audited"


def _rows_of(engine: Engine, name: str) -> Iterable[Any]:
    for queue in (name, dead_queue(name)):
        yield from engine.jobs_of(queue)
