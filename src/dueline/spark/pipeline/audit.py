"""Audit of queues that may be in use."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow.compute import field

from dueline.core.attempt import digest_of
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.core.job import JobId
from dueline.core.lane import dead_queue
from dueline.core.queue_settings import tells_all
from dueline.core.watermark import SEALED_US
from dueline.jobs import results
from dueline.jobs.audit_rules import NO_PROMISES, RULES, Known, Promises, audited
from dueline.jobs.history import HISTORY_SUFFIX
from dueline.spark.pipeline.audit_queries import EXPECTED, INSTANT, LIVING, finding_of, violations
from dueline.spark.pipeline.audit_state import AuditState
from dueline.spark.pipeline.bronze import batch_of, begins_of, key_of, period_of
from dueline.spark.pipeline.delta import Table
from dueline.spark.pipeline.engine import Say
from dueline.spark.pipeline.history_bounds import NO_END, EnqueuePeriod, is_inside
from dueline.spark.pipeline.increments import SMALL
from dueline.spark.pipeline.queries import Duck, Queries, Values, lines_in, lines_of
from dueline.spark.reading.partitions import START, RowSlice, behind, rows_of
from dueline.spark.reading.shards import history_shards
from dueline.spark.writing.keys import job_id_of

PAGE: Final = 1000
ALL: Final = EnqueuePeriod()
LATE_US: Final = 10 * SECOND_US
"""Time after which every client has read a change of a queue's settings (rule Q1)."""

_LOST: Final = frozenset(name for name, rule in RULES.items() if rule.verdict == "lost")


TASKS: Final = "SELECT DISTINCT task FROM rows ORDER BY task"
UNJUDGED: Final = """
    SELECT count(DISTINCT concat(job_id, unix_micros(enqueued))) AS jobs FROM rows
    WHERE queue = :queue
        AND (unix_micros(enqueued) < :begin_us OR unix_micros(enqueued) >= :until_us)"""
JUDGED: Final = """
    SELECT job_id FROM rows
    WHERE queue = :queue
        AND unix_micros(enqueued) >= :begin_us AND unix_micros(enqueued) < :until_us
    LIMIT 1"""


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
        state: Table,
        engine: Engine,
        history: Mapping[str, str],
        period: EnqueuePeriod,
    ) -> None:
        self._bronze = bronze
        self._state = state
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
        queries: Callable[[], Queries],
        living: Living,
        expected: Collection[str] | None,
        promises: Promises = NO_PROMISES,
        *,
        with_results: bool = False,
        is_full: bool = False,
    ) -> Judged:
        """Judge the copied history: what is new since the last audit, or all of it.

        Rules that compare jobs with each other, or with expected ones, read all of it.

        Args:
            queries: Starts the engine for large audits.
            living: The jobs that have a row.
            expected: Ids of all acknowledged jobs, if known.
            promises: Further rules.
            with_results: Whether to compare stored results with the history.
            is_full: Whether to judge all of it.

        Raises:
            BadInput: `expected` needs a history of `all` or `arguments`, and a queue has less; or
                no row has the task of a promise.
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
        self._expect_tasks({*promises.capacities, *promises.attempts})
        has_end = bool(period_of(self._bronze).until_us)  # jobs that ended later would seem lost
        rows = None if has_end else living.rows
        known = Known(whole, is_exact=store.transactional, now_us=store.clock_us())
        state = AuditState(self._state, self._bronze, known, promises)
        sight = state.look(Duck(), queries, rows, is_full=is_full, rows_max=SMALL)
        self._begins = self._whole_since(whole, since_us, sight.firsts)
        confirmed = self._confirmed(sight.found, since_us)
        judged = [{**finding, "is_judged": self._is_judged(finding, ALL)} for finding in confirmed]
        state.keep(sight, judged)
        if promises.capacities or promises.passed is not None or expected is not None:
            ids = None
            if expected is not None:
                ids = pa.table({"job_id": list(map(job_id_of, expected))}, EXPECTED)
            suspected = violations(
                queries(), self._bronze.view(), living=rows, expected=ids, promises=promises,
                known=known,
            )  # fmt: skip
            confirmed = self._confirmed(suspected, since_us)
        said = audited(
            [finding_of(finding) for finding in confirmed],
            has_living=not has_end, has_expected=expected is not None, has_results=False,
            promises=promises, known=known,
        )  # fmt: skip
        if with_results:
            said = said.with_rule("another result", [*said.findings, *self._changed_results()])
        findings = [finding for finding in said.findings if self._is_judged(finding, self._period)]
        shown = [
            {"queue": finding["queue"] or "", "enqueued_us": finding["enqueued"],
             **{name: finding[name] for name in ("verdict", "job_id", "attempt", "words")}}
            for finding in findings
        ]  # fmt: skip
        standings = self._standings(findings, [] if has_end else whole)
        return Judged(standings, shown, said.looked_for, said.not_audited, said.not_known)

    def _expect_tasks(self, names: Collection[str]) -> None:
        """Check that each task has rows, so that no rule is left out because of a wrong name."""
        if not names or not self._bronze.rows():
            return
        known = [
            line["task"] for line in lines_of(Duck().run(TASKS, {"rows": self._bronze.view()}))
        ]
        for name in names:
            if name not in known:
                near = get_close_matches(name, known, 5, 0)
                raise BadInput(
                    f"No row of the history has the task {name!r:.80}.",
                    hint=f"Check the name, or omit it until such a job exists; tasks: "
                    f"{', '.join(near)}.",
                )

    def _standings(
        self, findings: Sequence[Mapping[str, Any]], whole: Sequence[str]
    ) -> list[Standing]:
        """Return the result for each queue. whole: queues whose complete history was judged."""
        counts = Counter(finding["queue"] for finding in findings)
        unjudged, empty = self._unjudged()
        standings = []
        for name, kept in self._history.items():
            is_audited = name in whole and name not in empty
            verdict = "failed" if counts[name] else "clean" if is_audited else "not audited"
            begin_us = self._begins.get(name, 0)
            standings.append(Standing(name, kept, verdict, counts[name], unjudged[name], begin_us))
        return standings

    def _whole_since(
        self, whole: Sequence[str], now_us: int, grouped: Sequence[Mapping[str, Any]]
    ) -> dict[str, int]:
        """Return the start of each queue's complete history in the tables.

        When a queue's history was changed to `all`, older jobs have no enqueue event, and neither
        have those of clients that had not read the new settings yet.
        """
        begins = begins_of(self._bronze, self._history)
        for name in whole:
            first = {row["outcome"]: row["enqueued"] for row in grouped if row["queue"] == name}
            event_us = first.pop("enqueued", now_us)
            if begins.get(name, 0) < min(first.values(), default=event_us) < event_us:
                begins[name] = event_us + LATE_US
        return begins

    def _confirmed(
        self, findings: Iterable[Mapping[str, Any]], since_us: int
    ) -> list[Mapping[str, Any]]:
        """Remove findings on jobs that are not lost.

        These have a row, were enqueued later, or have later rows in the history, above a watermark
        that an open transaction holds back.
        """
        found_all = list(findings)
        seeming = sorted({finding["job_id"] for finding in found_all if finding["rule"] in _LOST})
        enqueued_us: dict[str, int] = {}
        for place in range(0, len(seeming), PAGE):
            ids = [job_id for job_id in seeming[place : place + PAGE] if len(job_id) == 2 * 16]
            rows = self._engine.store.find([JobId(bytes.fromhex(job_id)) for job_id in ids])
            pairs = zip(ids, rows, strict=True)
            enqueued_us |= {job_id: row.enqueued_us for job_id, row in pairs if row is not None}
        later = set(self._not_copied()) if seeming else set()
        ids_later = {job_id for job_id, _ in later}

        def is_lost(finding: Mapping[str, Any]) -> bool:
            job_id, enqueued = finding["job_id"], finding["enqueued"]
            if enqueued is None:
                return job_id not in enqueued_us and job_id not in ids_later
            is_new = enqueued >= since_us or (job_id, enqueued) in later
            return not is_new and enqueued_us.get(job_id) != enqueued

        return [
            finding for finding in found_all if finding["rule"] not in _LOST or is_lost(finding)
        ]

    def _not_copied(self) -> Iterator[tuple[str, int]]:
        """Yield the runs of jobs that have rows in the history which are not copied yet."""
        for queue in self._history:
            for shard in history_shards(self._engine, queue):
                copied_us = self._bronze.position(key_of(queue, shard))
                after = START if copied_us is None else behind(copied_us)
                rest = RowSlice(queue + HISTORY_SUFFIX, shard, after, (SEALED_US, b""))
                for page in rows_of(self._engine.store, rest, page=PAGE):
                    batch = batch_of(page)
                    enqueued = batch.column("enqueued").cast(pa.int64())
                    yield from zip(
                        batch.column("job_id").to_pylist(), enqueued.to_pylist(), strict=True
                    )

    def _is_judged(self, finding: Mapping[str, Any], period: EnqueuePeriod) -> bool:
        """Return whether a finding is of a job in the tables, and in a period."""
        run = finding["job_id"], finding["queue"], finding["enqueued"]
        return is_inside(period, self._begins, *run)

    def _changed_results(self) -> Iterator[Mapping[str, Any]]:
        """Yield jobs whose stored result differs from the one in the history."""
        verdict, words, _ = RULES["another result"]
        names = ["queue", "job_id", "enqueued", "attempt", "ended", "digest"]
        has_digest = field("digest").is_valid()
        for batch in self._bronze.view().dataset().to_batches(list(names), filter=has_digest):
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

    def _unjudged(self) -> tuple[Counter[str], set[str]]:
        """Count the jobs that are not judged, by queue, and name the queues with none judged.

        Only files that hold such jobs are read.
        """
        begins, until_us = self._begins, self._period.until_us
        unjudged, empty = Counter[str](), set[str]()
        if self._period == ALL and not any(begins.values()):
            return unjudged, empty
        files, queries = self._bronze.files(), Duck()
        for queue in self._history:
            begin_us = max(begins[queue], self._period.since_us)
            values: Values = {"queue": queue, "begin_us": begin_us, "until_us": until_us}
            outside = [
                file for file in files
                if file.may_hold("queue", queue, queue)
                and (file.may_hold("enqueued", 0, begin_us - 1)
                     or file.may_hold("enqueued", until_us, NO_END))
            ]  # fmt: skip
            views = {"rows": self._bronze.view(outside)}
            unjudged[queue] = lines_of(queries.run(UNJUDGED, views, values))[0]["jobs"]
            inside = [
                file for file in files
                if file.may_hold("queue", queue, queue)
                and file.may_hold("enqueued", begin_us, until_us - 1)
            ]  # fmt: skip
            views = {"rows": self._bronze.view(inside)}
            has_begun_late = bool(unjudged[queue] or begins[queue])
            if has_begun_late and not lines_of(queries.run(JUDGED, views, values)):
                empty.add(queue)
        return unjudged, empty


def _rows_of(engine: Engine, name: str) -> Iterable[Any]:
    for queue in (name, dead_queue(name)):
        yield from engine.jobs_of(queue)
