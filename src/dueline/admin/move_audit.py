"""The audit of a finished move, by the rows, results and histories of both stores.

Everything that either store says of a job is brought together, sorted by job in a temporary file.
The rules are in `move_rules`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dueline.admin.move_history import moved_jobs
from dueline.admin.move_plan import lanes_of
from dueline.admin.move_records import all_records, kind_of
from dueline.admin.move_rules import MOVED, NEW, OLD, Fact, Judged, Known, judge
from dueline.admin.sorted_groups import SortedGroups
from dueline.core.attempt import Attempt, EnqueuedEvent, digest_of
from dueline.core.call_options import order_of, read_options
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.job import JobId, State
from dueline.core.job_status import status_of
from dueline.core.lane import living_queue
from dueline.core.pagination import jobs_in, parts_of
from dueline.core.queue_settings import tells_all
from dueline.core.store import Record
from dueline.jobs import orders, results
from dueline.jobs.audit_rules import Rule
from dueline.jobs.history import LATE_US, events, forgotten_until
from dueline.jobs.unique import rule_of
from dueline.jobs.unique_records import place_of

SHOWN: Final = 20
"""Maximum number of findings of a rule that are returned."""

NOT_KNOWN: Final = "lost, or ended and forgotten"
"""Where a job is of which the new store says nothing, and need not."""

SINCE: Final = "ended in the new store since"
"""Where a job is that ended, or whose row moved, while the stores were read."""

_SUSPECTS_MAX: Final = 100_000
_CLOCKS_US: Final = SECOND_US
"""Difference by which the clocks of both stores may differ unnoticed."""

_EXPIRING_US: Final = 60 * SECOND_US
"""Results of the old store that expire so soon are not looked for in the new one."""

_PAGE: Final = 500

_SEEMING: Final = frozenset({"gone", "no result"})
"""Rules that a job can seem to break which ends, or whose row moves, while it is read."""

_NAMES: Final = ("old", "new")

Report = Callable[[str], None]


class Finding(NamedTuple):
    """A job for which a rule does not hold."""

    verdict: str
    job_id: str
    queue: str
    words: str


@dataclass(slots=True)
class MoveAudit:
    """The result of an audit of a move.

    Attributes:
      jobs: Number of jobs that the old store had, by where they are now.
      moved: How many of them were moved.
      counts: Number of findings by rule, in words.
      findings: Up to SHOWN of each rule.
      not_known: What cannot be proven, in words.
    """

    jobs: Counter[str] = field(default_factory=Counter)
    moved: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    not_known: list[str] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        """Whether there are findings."""
        return bool(self.counts)

    def add(self, rule: Rule, job: str, queue: str) -> None:
        """Count a finding."""
        self.counts[rule.words] += 1
        if self.counts[rule.words] <= SHOWN:
            self.findings.append(Finding(rule.verdict, job, queue, rule.words))


class _Mark(NamedTuple):
    """What a row or a record says of a key. what: row, entry, or run (of a job, with times)."""

    what: str
    job: str
    queue: str = ""
    turn: int = 0
    old_end_us: int = 0
    new_start_us: int = 0


class MoveAuditor:
    """Audits a move that is done.

    Args:
      source: The old store.
      target: The new store, which may be in use.
      closed_us: The time of the new store when the old one was marked.
      report: Called with a sentence at each stage.
    """

    def __init__(self, source: Engine, target: Engine, closed_us: int, report: Report) -> None:
        self._engines = source, target
        self._source, self._target = self._engines
        self._closed_us = closed_us
        self._report = report
        self._begin_us = target.store.clock_us()
        self._audit = MoveAudit()
        self._suspects: dict[tuple[str, str], Judged] = {}
        self._known = Known()

    def run(self) -> MoveAudit:
        """Read both stores and judge."""
        with ExitStack() as stack:
            facts, keys = SortedGroups(stack), SortedGroups(stack)
            for store, engine in (NEW, self._target), (OLD, self._source):  # rows before their ends
                self._report(f"reading the jobs of the {_NAMES[store]} store")
                self._read_rows(store, engine, facts, keys)
            self._known = self._what_is_known()
            for store, engine in (OLD, self._source), (NEW, self._target):
                self._report(f"reading the history and results of the {_NAMES[store]} store")
                self._read_history(store, engine, facts)
                self._read_records(store, engine, facts, keys)
            for job, queue in moved_jobs(self._target.store, self._closed_us):
                facts.add(job, Fact("moved", NEW, queue))
            self._report("judging")
            self._judge_jobs(facts, keys)
            self._judge_keys(keys)
        self._judge_suspects()
        self._audit.findings.sort()
        return self._audit

    # What the stores say

    def _read_rows(
        self, store: int, engine: Engine, facts: SortedGroups, keys: SortedGroups
    ) -> None:
        now_us = engine.time.latest_us()
        for lane in set(lanes_of(engine)):
            for row in jobs_in(engine.store, lane):
                if row.outcome:
                    continue  # its end is in the history already (rule P5)
                job, queue = row.id.hex(), living_queue(row.lane.queue)
                state = status_of(row, now_us)
                order = order_of(row)
                key = "" if order is None else orders.partition_of(queue, order.key)
                fact = Fact("row", store, queue, row.enqueued_us, row.fence, state, order_key=key)
                facts.add(job, fact)
                if order is not None and order.number and store == NEW:
                    keys.add(f"n{key} {order.number}", _Mark("row", job, queue, order.turn))
                rule = rule_of(row) if row.opts and row.state != State.DEAD else None
                if rule is not None and not rule.within_us:
                    keys.add(f"u{place_of(row, rule)}", _Mark("row", job, queue))

    def _read_history(self, store: int, engine: Engine, facts: SortedGroups) -> None:
        for queue in engine.catalog.names():
            for shard in range(engine.catalog.settings(queue).shards_read):
                for _, event in events(engine.store, queue, shard):
                    if not event.worker and event.outcome == "skipped":
                        continue  # an occurrence of a schedule, which was never a job
                    fact = Fact(
                        "event", store, queue, event.enqueued_us, event.fence, event.outcome,
                        event.ended_us, event.claimed_us, event.started_us, event.worker,
                        event.digest, _order_key(event),
                    )  # fmt: skip
                    facts.add(event.job, fact)

    def _read_records(
        self, store: int, engine: Engine, facts: SortedGroups, keys: SortedGroups
    ) -> None:
        until_us = self._target.time.latest_us() + _EXPIRING_US
        for partition, put in all_records(engine.store):
            if store == OLD and put.expires_us is not None and put.expires_us < until_us:
                continue  # the new store may have deleted it
            kind, record = kind_of(partition), Record(put.key, put.version, put.value)
            if kind == "results":
                for job, outcome in results.outcomes_in(record):
                    digest = digest_of(outcome.value.encode())
                    fact = Fact("result", store, outcome=outcome.state, at_us=outcome.ended_us)
                    facts.add(job, fact._replace(digest=digest))
            elif kind == orders.KIND and store == NEW:
                for number, job_id, turn in orders.entries_of([record]):
                    mark = _Mark("entry", job_id.hex(), turn=turn)
                    keys.add(f"n{partition} {number}", mark)

    def _what_is_known(self) -> Known:
        """Note what the histories have, and what they have lost or never had."""
        once, with_history = set[str](), set[str]()
        for queue in self._source.catalog.names():
            settings = self._target.catalog.settings(queue)
            if settings.is_once:
                once.add(queue)
            if settings.history == "off":
                self._doubt(f"{queue}: the new store has no history, so only kept results show how"
                            " jobs ended there")  # fmt: skip
            elif forgotten_until(self._target.store, queue) >= self._closed_us:
                self._doubt(f"{queue}: the history of the new store no longer begins at the move")
            else:
                with_history.add(queue)
            before = self._source.catalog.settings(queue).history
            if not tells_all(before):
                self._doubt(f"{queue}: with a history of {before!r}, a job that was lost in the old"
                            " store before its first attempt left no trace")  # fmt: skip
            if forgotten_until(self._source.store, queue):
                self._doubt(f"{queue}: jobs whose history the old store has deleted are not judged")
        return Known(frozenset(once), frozenset(with_history))

    def _doubt(self, words: str) -> None:
        self._audit.not_known.append(words)

    # Judging

    def _judge_jobs(self, facts: SortedGroups, keys: SortedGroups) -> None:
        for job, said in facts.groups(Fact):
            for judged in judge(said, self._known, self._closed_us):
                self._count(job, judged)
                if judged.order_key:
                    times = judged.old_end_us, judged.new_start_us
                    keys.add(f"o{judged.order_key}", _Mark("run", job, judged.queue, 0, *times))

    def _count(self, job: str, judged: Judged) -> None:
        audit = self._audit
        audit.moved += judged.has_moved
        for name in judged.rules:
            if name in _SEEMING and len(self._suspects) < _SUSPECTS_MAX:
                self._suspects[job, name] = judged
            else:
                audit.add(MOVED[name], job, judged.queue)
        if "gone" not in judged.rules:
            audit.jobs[judged.place] += 1

    def _judge_keys(self, keys: SortedGroups) -> None:
        for key, marks in keys.groups(_Mark):
            rows = [mark for mark in marks if mark.what == "row"]
            match key[0]:
                case "u" if len({row.job for row in rows}) > 1:
                    self._judge_unique(rows)
                case "n":
                    entries = {(mark.job, mark.turn) for mark in marks if mark.what == "entry"}
                    for row in rows:
                        if (row.job, row.turn) not in entries and self._is_living(row.job):
                            self._audit.add(MOVED["no place"], row.job, row.queue)
                case "o":
                    last_us = max(mark.old_end_us for mark in marks)
                    for mark in marks:
                        if 0 < mark.new_start_us < last_us - _CLOCKS_US:
                            self._audit.add(MOVED["order"], mark.job, mark.queue)

    def _judge_unique(self, rows: Sequence[_Mark]) -> None:
        """Note the holders of one key, unless they held it one after the other."""
        living = [row for row in rows if self._is_living(row.job)]
        if len(living) > 1:
            for row in living:
                self._audit.add(MOVED["key"], row.job, row.queue)

    def _is_living(self, job: str) -> bool:
        rows = [engine.store.find([_id(job)])[0] for engine in self._engines]
        return any(row is not None and not row.outcome for row in rows)

    # Jobs that seem lost

    def _judge_suspects(self) -> None:
        """Look for jobs that ended, or whose rows moved, while the stores were read."""
        late = self._late_events() if self._suspects else set()
        for suspects in parts_of(self._suspects.items(), _PAGE):
            ids = sorted({_id(job) for (job, _), _ in suspects})
            rows = zip(ids, self._target.store.find(ids), strict=True)
            old, new = (results.read_many(engine.store, ids) for engine in self._engines)
            here = {job_id for job_id, row in rows if row is not None} | new.keys()
            for (job, name), judged in suspects:
                is_here = _id(job) in here or job in late
                if name == "no result" and (_id(job) not in old or _id(job) in new):
                    continue
                if name == "gone" and (is_here or not self._would_show(judged.queue)):
                    self._audit.jobs[SINCE if is_here else NOT_KNOWN] += 1
                    continue
                self._audit.add(MOVED[name], job, judged.queue)

    def _would_show(self, queue: str) -> bool:
        """Return whether the new store would still show how a job of a queue ended there.

        queue: empty if it is not known.
        """
        if not queue:
            return all(map(self._would_show, self._source.catalog.names()))
        settings = self._target.catalog.settings(queue)
        age_us = self._begin_us - self._closed_us
        is_whole = queue in self._known.with_history and tells_all(settings.history)
        return is_whole or age_us < settings.keep_us

    def _late_events(self) -> set[str]:
        """Return the jobs that have events of the new store since the audit began."""
        late = set[str]()
        wanted = {job for job, _ in self._suspects}
        for queue in self._target.catalog.names():
            for shard in range(self._target.catalog.settings(queue).shards_read):
                since_us = self._begin_us - LATE_US
                for _, event in events(self._target.store, queue, shard, since_us=since_us):
                    if event.job in wanted and event.outcome != "enqueued":
                        late.add(event.job)
        return late


def _order_key(event: Attempt) -> str:
    """Return the order key of a new job, as its event has it."""
    if not isinstance(event, EnqueuedEvent) or not event.options:
        return ""
    order = read_options(event.options.encode()).order
    return "" if order is None else orders.partition_of(event.queue, order.key)


def _id(job: str) -> JobId:
    return JobId(bytes.fromhex(job))
