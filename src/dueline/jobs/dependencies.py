"""Jobs that wait for jobs and workflows which were stored before them.

The row of such a job names them, and the job is postponed: its `at` is the time of the next check.
One conditional write releases it, which removes the names and sets the due time (rule J1). So a
row that names others never runs, and a released one never asks again.

The process that stores such a job, or checks it, marks what the job waits for (rule J3): a row that
waits, so that the process which ends it looks for dependents; or the worker that runs it. The
releases at an end make it fast. A job that was forgotten checks for itself, at growing intervals
(rule J4).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from dueline.coordination import worker_requests
from dueline.core.attempt import Outcome, read_epitaph
from dueline.core.call_options import AwaitedJobs, awaited_by, has_dependents, read_options
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import Conflict, NotFound, StoreUnavailable, Unknown
from dueline.core.features import DEPENDENCIES
from dueline.core.job import Job, JobId, State, is_paused
from dueline.core.lane import bucket_of, living_queue
from dueline.core.pagination import parts_of
from dueline.core.store import Group, Move
from dueline.core.wakeup import place_of
from dueline.jobs import dependents, results
from dueline.jobs.completion import stored
from dueline.jobs.moves import Change, changed, with_position
from dueline.workflows.readiness import Failure
from dueline.workflows.workflow import WorkflowView

CHECK_US: Final = SECOND_US
"""A job first checks what it waits for after this long, then after as long as it has waited."""

CHECK_US_MAX: Final = 3600 * SECOND_US

LAST_STEPS: Final = 100
"""Maximum number of last steps of a workflow that are marked for the jobs that wait for it."""

_LOOKS: Final = 2
_ROUNDS_MAX: Final = 3
_PAGE: Final = 500


class Failed(NamedTuple):
    """A job or workflow that did not succeed.

    Attributes:
        awaited: Its id.
        what: "job" or "workflow".
        state: How it ended; "dead" also while a dead step holds a workflow.
        error: Why.
        is_final: It cannot be retried.
    """

    awaited: JobId
    what: Literal["job", "workflow"]
    state: str
    error: str
    is_final: bool

    def text(self) -> str:
        """Return it as words."""
        because = f": {self.error}" if self.error else ""
        return f"The {self.what} {self.awaited.hex()} is {self.state}{because}"


class Living(NamedTuple):
    """A job or workflow that has not ended."""

    awaited: JobId


class Lost(NamedTuple):
    """A job or workflow of which nothing is known any more."""

    awaited: JobId

    def text(self) -> str:
        """Return it as words."""
        return f"It is not known how {self.awaited.hex()} ended: its result has expired"


_Stand = Living | Failed | Lost | None


class Ready(NamedTuple):
    """All has ended that the job waits for."""


class Waits(NamedTuple):
    """Some have not ended: their ids, jobs first."""

    for_: Sequence[JobId]


class Held(NamedTuple):
    """All has ended, but some are dead, and may be retried."""

    by: Failed


class NeverRuns(NamedTuple):
    """The job ends without being run."""

    state: Literal["cancelled", "dead"]
    why: str


Word = Ready | Waits | Held | NeverRuns


@dataclass
class _Known:
    """What was read of jobs and workflows.

    Attributes:
        rows: Of jobs that have not ended, and of dead ones.
        ends: Of those that have ended.
        flows: Of workflows; None if nothing is known.
    """

    rows: dict[JobId, Job] = field(default_factory=dict)
    ends: dict[JobId, Outcome] = field(default_factory=dict)
    flows: dict[JobId, WorkflowView | None] = field(default_factory=dict)

    def job(self, job_id: JobId) -> _Stand:
        """Return what has become of a job; None if it has succeeded."""
        row, end = self.rows.get(job_id), self.ends.get(job_id)
        if row is not None and row.state != State.DEAD:
            return Living(job_id)
        if row is not None:
            error = read_epitaph(row.error)[0]
            return Failed(job_id, "job", "dead", error, is_final=False)
        if end is None:
            return Lost(job_id)
        if end.state == "done":
            return None
        return Failed(job_id, "job", end.state, end.error, is_final=True)

    def flow(self, flow: JobId) -> _Stand:
        """Return what has become of a workflow; it is dead while a dead step holds others."""
        view = self.flows[flow]
        if view is None:
            return Lost(flow)
        outcome, left = view.outcome(), view.progress().left
        if isinstance(outcome, Failure) and (not left or not outcome.end.is_final):
            why, is_final = view.why(outcome).rstrip("."), outcome.end.is_final
            return Failed(flow, "workflow", view.status(), why, is_final=is_final)
        return Living(flow) if left else None


def awaiting(job: Job) -> AwaitedJobs | None:
    """Return what a job waits for that has not been released; None for other jobs."""
    return None if job.state == State.DEAD or job.outcome else awaited_by(job)


def judge(engine: Engine, jobs: Iterable[Job]) -> dict[JobId, Word]:
    """Return whether jobs that wait for others may run; nothing is written."""
    waiting = {job.id: awaits for job in jobs if (awaits := awaiting(job)) is not None}
    known = _read(engine, waiting.values())
    return {job_id: _judge(awaits, known) for job_id, awaits in waiting.items()}


def _judge(awaits: AwaitedJobs, known: _Known) -> Word:
    stands = [known.job(JobId(job_id)) for job_id in awaits.jobs]
    stands += [known.flow(JobId(flow)) for flow in awaits.flows]
    failed = [stand for stand in stands if isinstance(stand, Failed)]
    if awaits.failures != "skip":
        for failure in failed:
            if failure.is_final or awaits.failures == "cancel":
                return NeverRuns("cancelled", failure.text())
        for stand in stands:
            if isinstance(stand, Lost):
                return NeverRuns("dead", stand.text())
    if waits := [stand.awaited for stand in stands if isinstance(stand, Living)]:
        return Waits(waits)
    return Held(failed[0]) if failed and awaits.failures == "stop" else Ready()


def _read(engine: Engine, each: Iterable[AwaitedJobs]) -> _Known:
    """Read what jobs wait for: rows first, since an end is stored before its row goes (rule J2)."""
    known = _Known()
    each = list(each)
    for part in parts_of(list({job_id for awaits in each for job_id in awaits.jobs}), _PAGE):
        _read_jobs(engine, list(map(JobId, part)), known)
    for flow in {JobId(flow) for awaits in each for flow in awaits.flows}:
        known.flows[flow] = None
        with suppress(NotFound):
            known.flows[flow] = WorkflowView(engine, flow)
    return known


def _read_jobs(engine: Engine, left: Sequence[JobId], known: _Known) -> None:
    for _ in range(_LOOKS):  # one read may miss a row that is moving
        for row in engine.store.find(left):
            if row is None:
                continue
            if row.outcome and (outcome := stored(row).finish.outcome).state != "dead":
                known.ends[row.id] = outcome
            else:
                known.rows[row.id] = row
        left = [job_id for job_id in left if job_id not in known.rows and job_id not in known.ends]
        known.ends |= results.read_many(engine.store, left) if left else {}
        left = [job_id for job_id in left if job_id not in known.ends]
        if not left:
            return
    for job_id in left:  # of a queue that keeps no results, or a dead job that was deleted
        end = dependents.end_of(engine.store, job_id)
        if end is not None:
            known.ends[job_id] = end


# New jobs


def placed(engine: Engine, jobs: Sequence[Job], *, is_inside: bool) -> Sequence[Job]:
    """Return new rows as they are to be inserted, and mark what they wait for.

    Args:
        engine: The engine.
        jobs: The rows.
        is_inside: In an open transaction, which should not hold back the jobs that are awaited:
            the first check marks these.

    Raises:
        NotFound: Something that a job waits for is unknown; nothing was inserted.
        Conflict: Nothing would say how it ends.
        StoreUnavailable: Nothing was inserted.
    """
    try:
        return _placed(engine, jobs, is_inside=is_inside)
    except Unknown as error:  # marks, which do no harm
        raise StoreUnavailable(f"{error.message} No job was stored.") from error


def _placed(engine: Engine, jobs: Sequence[Job], *, is_inside: bool) -> Sequence[Job]:
    by_options: dict[bytes, list[Job]] = defaultdict(list)
    for job in jobs:
        if awaited_by(job) is not None:
            by_options[job.opts].append(job)
    if not by_options:
        return jobs
    engine.catalog.adopt(DEPENDENCIES)
    changed_rows: dict[JobId, Job] = {}
    for opts, waiting in by_options.items():
        awaits = read_options(opts).awaits
        assert awaits is not None
        known = _read(engine, [awaits])
        awaits = _checked(engine, awaits, known)
        word = _judge(awaits, known)
        own = read_options(opts).changed(awaits=None if isinstance(word, Ready) else awaits)
        rows = [job._replace(opts=own.to_bytes()) for job in waiting]
        if not isinstance(word, Ready):
            _expect_end(engine, known, is_marked=not is_inside)
            if not is_inside:
                _watch(engine, awaits, known, [job.id for job in waiting])
            wait_us = 0 if is_inside or isinstance(word, NeverRuns) else CHECK_US
            rows = [_postponed(engine, row, row.enqueued_us + wait_us) for row in rows]
        changed_rows |= {row.id: row for row in rows}
    return [changed_rows.get(job.id, job) for job in jobs]


def _postponed(engine: Engine, row: Job, at_us: int) -> Job:
    width_us = engine.catalog.settings(row.lane.queue).width_us
    return with_position(row, at_us, width_us=width_us)


def _checked(engine: Engine, awaits: AwaitedJobs, known: _Known) -> AwaitedJobs:
    """Return what is awaited, with the ids of workflows among these; what is unknown is refused."""
    jobs: list[bytes] = []
    flows = list(awaits.flows)
    for job_id in map(JobId, awaits.jobs):
        if job_id in known.rows or job_id in known.ends:
            jobs.append(job_id)
            continue
        known.flows[job_id] = None
        with suppress(NotFound):
            known.flows[job_id] = WorkflowView(engine, job_id)
        flows.append(job_id)
    for flow in map(JobId, flows):
        if known.flows[flow] is None:
            raise NotFound(
                f"No job or workflow {flow.hex()} is known, so no job can wait for it.",
                hint="Was its result kept long enough? Is this the right store?",
            )
    return AwaitedJobs(tuple(jobs), tuple(dict.fromkeys(flows)), awaits.failures)


def _expect_end(engine: Engine, known: _Known, *, is_marked: bool) -> None:
    """Raise Conflict for a job that ends without a trace: a worker runs it and keeps no result."""
    for row in known.rows.values():
        if has_dependents(row) or row.state == State.DEAD or (is_marked and not row.is_claimed()):
            continue
        queue = living_queue(row.lane.queue)
        if results.kept_us(row, engine.catalog.settings(queue).keep_us) == 0:
            raise Conflict(
                f"Nothing would say how the job {row.id.hex()} ends: no result of it is kept.",
                hint=f'Use `keep=60` for its call, or app.queue("{queue}", keep=60).',
            )


def _watch(engine: Engine, awaits: AwaitedJobs, known: _Known, waiting: Sequence[JobId]) -> None:
    """List jobs that wait with what they wait for, and mark it (rule J3)."""
    now_us, version = engine.time.latest_us(), engine.ids.token()
    rows = [known.rows[JobId(job_id)] for job_id in awaits.jobs if job_id in known.rows]
    listed_with = [row.id for row in rows]
    for flow in map(JobId, awaits.flows):
        view = known.flows[flow]
        if view is not None:
            last = [step for step in view.branch(None) if step not in view.layout.needed_by]
            rows += view.rows(last[-LAST_STEPS:])
            listed_with.append(flow)
    for awaited in listed_with:
        commit = dependents.entries(awaited, waiting, version=version, now_us=now_us)
        engine.store.commit(commit.partition, commit.writes)
    for row in rows:
        _mark(engine, row)


def _mark(engine: Engine, row: Job | None) -> None:
    """Note in a row that others wait for it, or ask the worker that runs the job to note it."""
    for _ in range(_ROUNDS_MAX):
        if row is None or row.outcome or has_dependents(row):
            return
        if row.is_claimed():
            worker_requests.note_awaited(engine, row)
            return
        width_us = engine.catalog.settings(living_queue(row.lane.queue)).width_us
        change = Change(carried={"has_dependents": True})
        move = changed(row, change, token=engine.ids.token(), width_us=width_us)
        if engine.store.settle([move._replace(state=row.state)])[0]:
            return
        row = engine.store.find([row.id])[0]


# Releases


def wake(engine: Engine, awaited: Iterable[JobId]) -> int:
    """Release the jobs that waited for jobs or workflows which may have ended; return how many."""
    waiting = {job_id for ended in awaited for job_id in dependents.listed(engine.store, ended)}
    count = 0
    for part in parts_of(sorted(waiting), _PAGE):
        rows = engine.store.find(part)
        count += _release(engine, [row for row in rows if row is not None])
    return count


def _release(engine: Engine, rows: Iterable[Job]) -> int:
    """Release waiting jobs; those that never run are claimed now, and ended by that claim."""
    waiting = {
        row: awaits
        for row in rows
        if not (row.is_claimed() or is_paused(row)) and (awaits := awaiting(row))
    }
    known = _read(engine, waiting.values())
    now_us = engine.time.earliest_us()
    moves: list[Move] = []
    for row, awaits in waiting.items():
        word = _judge(awaits, known)
        if isinstance(word, Ready):
            moves.append(_released(engine, row, now_us))
        elif isinstance(word, NeverRuns) and row.at_us > now_us:
            moves.append(_moved(engine, row, now_us))
    if not moves:
        return 0
    count = sum(engine.recording_store.settle(moves))
    engine.wake(map(place_of, moves))
    return count


def check(engine: Engine, claimed: Sequence[Job]) -> list[tuple[Job, NeverRuns]]:
    """Release claimed jobs that wait for nothing any more, and postpone the others.

    Returns:
        Those that end without being run, which are still claimed.
    """
    waiting = {job: awaits for job in claimed if (awaits := awaiting(job)) is not None}
    known = _read(engine, waiting.values())
    now_us = engine.time.latest_us()
    over: list[tuple[Job, NeverRuns]] = []
    moves: list[Move] = []
    for job, awaits in waiting.items():
        word = _judge(awaits, known)
        if isinstance(word, NeverRuns):
            over.append((job, word))
        elif isinstance(word, Ready):
            moves.append(_released(engine, job, now_us))
        else:
            _watch(engine, awaits, known, [job.id])
            wait_us = min(max(now_us - job.enqueued_us, CHECK_US), CHECK_US_MAX)
            moves.append(_moved(engine, job, now_us + wait_us))
    if moves:
        engine.recording_store.settle(moves)
        engine.wake(map(place_of, moves))
        # What ended between the read and the marks is noticed now (rule J4).
        rows = engine.store.find([move.job.id for move in moves if move.opts is None])
        _release(engine, [row for row in rows if row is not None])
    return over


def _released(engine: Engine, row: Job, now_us: int) -> Move:
    opts = read_options(row.opts).changed(awaits=None).to_bytes()
    return _moved(engine, row, max(row.due_us, now_us))._replace(opts=opts)


def _moved(engine: Engine, row: Job, at_us: int) -> Move:
    bucket = bucket_of(at_us, engine.catalog.settings(row.lane.queue).width_us)
    return Move(row, at_us, engine.ids.token(), bucket, row.errors, row.crashes, row.alone,
                error=row.error)  # fmt: skip


# Moves to another store


def copy_known(source: Engine, target: Engine, rows: Iterable[Job]) -> None:
    """Copy what jobs that move know of those that they wait for: how these ended, and entries."""
    waiting = {row.id: awaits for row in rows if (awaits := awaiting(row)) is not None}
    known = _read(source, waiting.values())
    commits = [dependents.end(job_id, outcome) for job_id, outcome in known.ends.items()]
    version, now_us = target.ids.token(), target.time.latest_us()
    for job_id, awaits in waiting.items():
        commits += [
            dependents.entries(JobId(awaited), [job_id], version=version, now_us=now_us)
            for awaited in (*awaits.jobs, *awaits.flows)
        ]
    target.store.together([Group(commits=(commit,)) for commit in commits])
