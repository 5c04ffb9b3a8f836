"""Jobs as people read them: from a row, an outcome or the history."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from dueline.admin.key_history import options_of
from dueline.admin.reruns import kept_call
from dueline.admin.search import Past, Place, attempts_of
from dueline.core.attempt import Attempt, Outcome, read_epitaph
from dueline.core.call_options import Carried, durable_place, read_options, tags_of
from dueline.core.deadlines import deadline_of, late_us
from dueline.core.engine import Engine
from dueline.core.errors import BadInput, NotFound, StoreCorrupt
from dueline.core.job import PAUSED_US, Job, JobId, place_us
from dueline.core.job_status import status_of
from dueline.core.lane import limits_of, living_queue, tenant_of
from dueline.core.pagination import at_once
from dueline.durable.stopped import stop_of
from dueline.durable.views import FunctionView, view_of
from dueline.durable.windows import Window
from dueline.jobs import attempt_lines, chunk_records, progress_records
from dueline.jobs.attempt_lines import AttemptLines
from dueline.jobs.chunk_records import StoredChunk
from dueline.jobs.dependencies import Held, judge
from dueline.jobs.history import LATE_US, MOVED_FROM, last_state
from dueline.jobs.orders import first_of, is_parked
from dueline.jobs.queue import Queues
from dueline.tasks.payload_codecs import as_json
from dueline.tasks.progress import Progress
from dueline.workflows.records import job_of, step_of
from dueline.workflows.release import may_be_held
from dueline.workflows.status import held_state
from dueline.workflows.workflow import WorkflowView

ATTEMPTS_SHOWN = 50
ATTEMPTS_READ_MAX = 20_000

CALLS_SHOWN = 100
"""Maximum number of calls of a durable function that a page shows."""


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job in a list; timestamps in microseconds UTC, 0 for none.

    Attributes:
      at_us: When it is next due (also if it is paused), its lease ends, it died, or it ended.
      due_us: The due time of the call.
      claims: How often it was claimed.
      errors: Number of failed attempts.
      crashes: Number of claims whose worker died.
      worker: The worker of the last claim.
      error: The last error.
      ended_us: When it ended, or expired.
      alone: Whether it runs only while its worker runs nothing else.
      late_us: How long after its deadline it ended.
      step_state: Of a job that others hold back: `held` by a dead job or step, or `waiting` for
        other steps or a signal. Of a durable function that no worker can continue: `stopped`.
    """

    id: str
    state: str
    queue: str = ""
    task: str = ""
    tenant: str = ""
    priority: int = 0
    at_us: int = 0
    due_us: int = 0
    enqueued_us: int = 0
    claimed_us: int = 0
    started_us: int = 0
    ended_us: int = 0
    claims: int = 0
    errors: int = 0
    crashes: int = 0
    worker: str = ""
    error: str = ""
    tags: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    alone: bool = False
    late_us: int = 0
    step_state: str = ""

    @property
    def shown_state(self) -> str:
        """The state, or how a step is held back, or that a function is stopped."""
        return self.step_state or self.state

    @property
    def place(self) -> Place:
        """Where a page ends whose last job it is."""
        return (self.at_us + PAUSED_US if self.state == "paused" else self.at_us), self.id


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of jobs.

    Attributes:
      next: Pass it as `after` to read the next page; None at the end.
      is_capped: Not all jobs were read; `next` reads on where that is possible.
      since_us: Of ended jobs, if not all were read: those that ended from this time on were.
    """

    jobs: Sequence[JobSummary]
    next: str | None
    is_capped: bool
    since_us: int = 0


CHUNKS_SHOWN: Final = 20
"""Maximum number of partial results in the details of a job."""


@dataclass(frozen=True, slots=True)
class JobDetails:
    """Everything that is stored of a job.

    Attributes:
      arguments: The arguments as JSON values: a list, or an object with `args` and `kwargs`; None
        where they are not shown.
      hidden: Why the arguments are not shown; empty where they are.
      not_json: Arguments of another program that are not JSON, as text.
      has_call: Whether the arguments of an ended job are kept, so that it can run again.
      has_result: Whether a result is kept.
      attempts: Ended attempts and other events, the latest first.
      is_capped: Not all of the history was read.
      meta: What the handler noted with `set_meta`.
      order_key: Its order key; empty without one.
      order_first: Id of the job of the key that runs, or is to run next.
      carried: Options of the call that the job carries.
      workflow: Id of the workflow that the job is a step of; empty without one.
      lines: What the handler logged, of attempts that keep it.
      function: What a durable function has recorded; None for other jobs.
      chunks: The last partial results of the handler.
    """

    summary: JobSummary
    arguments: Any = None
    hidden: str = ""
    not_json: str = ""
    has_call: bool = False
    has_result: bool = False
    result: Any = None
    progress: Progress | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    traceback: str = ""
    expires_us: int = 0
    deadline_us: int = 0
    unique: str = ""
    order_key: str = ""
    order_first: str = ""
    carried: Carried = field(default_factory=Carried)
    workflow: str = ""
    step: int = 0
    attempts: Sequence[Attempt] = ()
    is_capped: bool = False
    lines: Sequence[AttemptLines] = ()
    function: FunctionView | None = None
    chunks: Sequence[StoredChunk] = ()


_SUMMARY = frozenset(JobSummary.__dataclass_fields__)
_OF_ROW = tuple(_SUMMARY.intersection(Job._fields) - {"id", "state", "error"})
_OF_ATTEMPT = tuple(_SUMMARY.intersection(Attempt.__dataclass_fields__) - {"limits"})
"""Fields of a row, and of an attempt, that a summary has as they are."""


def summary_of_row(job: Job, now_us: int) -> JobSummary:
    """Return the summary of a job with a row."""
    state = status_of(job, now_us)
    return JobSummary(
        id=job.id.hex(),
        state=state,
        queue=living_queue(job.lane.queue),
        tenant=tenant_of(job.lane),
        priority=job.lane.priority,
        ended_us=(read_options(job.opts).expires_us or 0) if state == "expired" else 0,
        claims=job.fence,
        error=read_epitaph(job.error)[0],
        tags=tags_of(job),
        limits=limits_of(job.lane),
        **{**{name: getattr(job, name) for name in _OF_ROW}, "at_us": place_us(job)},
    )


def summaries_of(engine: Engine, rows: Sequence[Job]) -> list[JobSummary]:
    """Return the summaries of jobs with a row, with what holds back those that wait for others."""
    now_us = engine.time.latest_us()
    steps: dict[JobId, list[int]] = defaultdict(list)
    for row in rows:
        if (step := step_of(row)) is not None and may_be_held(row):
            steps[step[0]].append(step[1])
    held: dict[JobId, str] = {}
    for part in at_once(engine.store, lambda pair: _held_steps(engine, *pair), list(steps.items())):
        held |= part
    with suppress(StoreCorrupt):  # `explain` reports that
        for job_id, word in judge(engine, rows).items():
            held[job_id] = "held" if isinstance(word, Held) else "waiting"
    held |= {row.id: "waiting" for row in rows if is_parked(row)}
    held |= {row.id: "stopped" for row in rows if stop_of(row) is not None}
    return [replace(summary_of_row(row, now_us), step_state=held.get(row.id, "")) for row in rows]


def _held_steps(engine: Engine, flow: JobId, steps: Sequence[int]) -> dict[JobId, str]:
    """Return how a workflow holds back its parked steps, by the ids of jobs."""
    with suppress(NotFound, StoreCorrupt):  # `explain` reports that
        view = WorkflowView(engine, flow)
        return {job_of(flow, step): held_state(engine, view, step) for step in steps}
    return {}


def summary_of_attempt(attempt: Attempt) -> JobSummary:
    """Return the summary of a job that has ended, from its last attempt."""
    return JobSummary(
        id=attempt.job,
        state=attempt.outcome,
        at_us=attempt.ended_us,
        claims=attempt.fence,
        late_us=late_us(attempt.priority, attempt.ended_us) if attempt.claimed_us else 0,
        **{name: getattr(attempt, name) for name in _OF_ATTEMPT},
    )


def details_of(queues: Queues, job_id: JobId, calls: Window | None = None) -> JobDetails:
    """Return what is stored of a job.

    Args:
      queues: The queues.
      job_id: The job.
      calls: Which calls of a durable function are read; None for all.

    Raises:
      NotFound: Nothing is stored of it.
    """
    store = queues.engine.store
    progress, meta = progress_records.read_with_notes(store, job_id)
    return replace(
        _details_of(queues, job_id),
        progress=progress,
        meta=meta,
        lines=attempt_lines.read(store, job_id),
        function=_function_of(queues, job_id, calls),
        chunks=chunk_records.read_last(store, job_id, CHUNKS_SHOWN),
    )


def _function_of(queues: Queues, job_id: JobId, calls: Window | None) -> FunctionView | None:
    """Return what a durable function has recorded; None for other jobs."""
    row = queues.engine.store.find([job_id])[0]
    if row is not None and not row.outcome and durable_place(row) is None:
        return None
    with suppress(StoreCorrupt):  # `explain` and `dueline doctor` report that
        view = view_of(queues.engine.store, job_id, row, calls)
        return view if row is not None or view.calls else None
    return None


def _details_of(queues: Queues, job_id: JobId) -> JobDetails:
    engine = queues.engine
    try:
        job = queues.find(job_id)
    except NotFound:
        details = _from_history(engine, job_id)
        if details is None:
            raise
        return details
    if job.row is None:
        assert job.outcome is not None
        return _of_outcome(engine, job_id, job.outcome)
    row = job.row
    most = ATTEMPTS_READ_MAX if row.fence else 0
    past = _past(engine, job_id, living_queue(row.lane.queue), most, since_us=row.enqueued_us)
    options: dict[str, Any] = {}
    with suppress(StoreCorrupt):  # the worker that runs it reports that
        read = read_options(row.opts)
        options = {"expires_us": read.expires_us or 0, "carried": read}
        if read.unique is not None:
            options["unique"] = read.unique.key
        if read.order is not None:
            key = read.order.key
            first = first_of(engine, living_queue(row.lane.queue), key)
            options |= {"order_key": key, "order_first": first.id.hex() if first else ""}
        if (step := step_of(row)) is not None:
            options |= {"workflow": step[0].hex(), "step": step[1]}
    (summary,) = summaries_of(engine, [row])
    return JobDetails(
        summary,
        traceback=read_epitaph(row.error)[1].rstrip(),
        deadline_us=deadline_of(row.lane.priority) or 0,
        attempts=past.attempts,
        is_capped=bool(row.fence) and (past.is_capped or past.more),
        **_arguments(row.codec, row.body),
        **options,
    )


def _past(
    engine: Engine, job_id: JobId, queue: str | None = None, most: int = ATTEMPTS_READ_MAX,
    *, since_us: int | None = None, until_us: int | None = None,
) -> Past:  # fmt: skip
    """Return the latest events of a job, of all its queues if it was moved to this one."""
    past = attempts_of(
        engine, job_id, queue, limit=ATTEMPTS_SHOWN, most=most, since_us=since_us, until_us=until_us
    )
    if queue is not None and any(event.error.startswith(MOVED_FROM) for event in past.attempts):
        return _past(engine, job_id, None, most, since_us=since_us, until_us=until_us)
    return past


def _arguments(codec: int, body: bytes) -> dict[str, Any]:
    """Return the fields of `JobDetails` about the arguments."""
    try:
        text = as_json(codec, body)
    except BadInput as error:  # encrypted arguments stay encrypted here
        return {"hidden": f"{len(body)} bytes, not shown: {error.message}"}
    try:
        return {"arguments": msgspec.json.decode(text)}
    except (msgspec.DecodeError, RecursionError):  # written by another program
        return {"hidden": f"{len(body)} bytes that are not JSON", "not_json": text}


def _kept_arguments(engine: Engine, job_id: JobId, queue: str) -> dict[str, Any]:
    """Return the same fields of a job that has ended."""
    call = kept_call(engine, job_id, queue or None)
    if call is None or call.codec is None or call.payload is None:
        return {"hidden": "the job has ended; its arguments are not kept"}
    carried = options_of(call) or Carried()
    return {"has_call": True, "carried": carried, **_arguments(call.codec, call.payload)}


def _of_outcome(engine: Engine, job_id: JobId, outcome: Outcome) -> JobDetails:
    """Return an ended job; the attempt that ended it is found by its time."""
    ended_us = outcome.ended_us
    until_us: int | None = ended_us + LATE_US
    past = last = _past(engine, job_id, since_us=ended_us, until_us=until_us)
    known = JobSummary(job_id.hex(), "")
    if last.attempts:
        end = last_state(last.attempts)
        known = summary_of_attempt(end)
        if end.fence > 1 or outcome.state != "done":  # a refused outcome may come at any time
            until_us = None
        past = _past(engine, job_id, end.queue, since_us=end.enqueued_us, until_us=until_us)
    unread = [event for event in last.attempts if event not in past.attempts]  # if it is capped
    return JobDetails(
        replace(known, state=outcome.state, at_us=ended_us, ended_us=ended_us, error=outcome.error),
        has_result=bool(outcome.value),
        result=_decoded(outcome.value),
        traceback=outcome.traceback,
        attempts=[*unread, *past.attempts],
        is_capped=past.is_capped or past.more,
        **_kept_arguments(engine, job_id, known.queue),
    )


def _decoded(value: str) -> Any:  # noqa: ANN401  (JSON)
    try:
        return msgspec.json.decode(value) if value else None
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return value


def _from_history(engine: Engine, job_id: JobId) -> JobDetails | None:
    """Return a job of which only the history is left."""
    past = _past(engine, job_id)
    if not past.attempts:
        return None
    summary = summary_of_attempt(last_state(past.attempts))
    return JobDetails(
        summary,
        attempts=past.attempts,
        is_capped=past.is_capped or past.more,
        **_kept_arguments(engine, job_id, summary.queue),
    )
