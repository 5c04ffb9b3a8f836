"""Store the jobs of schedules before they are due.

Each occurrence becomes one job, whose id follows from the schedule and the time, so any number of
processes may store them at once (rule Z1). The progress of a schedule decides, and carries its jobs
(rule Z2).
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from dueline.core.attempt import Outcome
from dueline.core.call_options import CallOptions
from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.durations import instant_text
from dueline.core.engine import Engine
from dueline.core.errors import Conflict, NotFound
from dueline.core.job import Job, JobId, State, is_away
from dueline.core.lane import Lane, bucket_of, lane_tenant, tenant_with_needs
from dueline.core.limit_costs import options_with_costs
from dueline.core.maintenance import StepResult
from dueline.core.queue_settings import shard_of
from dueline.core.store import NO_VERSION, Commit, Group, Put, Row
from dueline.core.validation import check_call, check_delivery
from dueline.core.worker_needs import text_of
from dueline.jobs import decisions
from dueline.jobs.completion import Finished, decision_of, finish_of, stored
from dueline.jobs.decisions import Completion, Decision, group_of
from dueline.jobs.history import happened, row_of_event
from dueline.jobs.moves import spread
from dueline.jobs.parked_functions import may_have_begun
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.schedules import schedule as definition
from dueline.schedules.schedule import PlannedJob, Schedule, Skip, Stored, Template, Timing

EVERY_US: Final = 10 * SECOND_US
"""How often the maintenance leader advances schedules: jobs are stored a minute ahead."""

SOONEST_US: Final = SECOND_US
"""Minimum wait for a schedule that decides about an occurrence at its time."""

_ROUNDS_MAX: Final = 20


def put(
    queues: Queues, name: str, template: Template, timing: Timing, *, is_dynamic: bool = False
) -> bool:
    """Create or update a schedule; waiting jobs of the old version are cancelled.

    Args:
        queues: The queues.
        name: Name of the schedule.
        template: The call of each occurrence.
        timing: When occurrences are.
        is_dynamic: No code declares it, so it is deleted some time after its end.

    Returns: whether anything changed.

    Raises: BadInput: a value is out of range; nothing was written.
    """
    definition.check_name(name)
    definition.check(timing)
    now_us = queues.engine.time.latest_us()
    check_call(template.queue, None, template.priority, template.tenant, now_us=now_us)
    settings = queues.engine.catalog.settings(template.queue)
    check_delivery(template, settings, template.task, template.queue)

    def change(old: Schedule | None) -> Schedule:
        here = None if old is None or old.is_leaving else old
        asked = definition.anchored(timing, now_us, None if here is None else here.timing)
        if here is not None and (here.template, here.timing) == (template, asked):
            return replace(here, is_dynamic=is_dynamic)
        new = Schedule(template, asked, queues.engine.ids.token(), now_us, is_dynamic=is_dynamic)
        if old is None:
            return new
        if here is not None and definition.has_same_times(asked, here.timing):
            new = replace(new, through_us=min(now_us, here.through_us))
        new = replace(
            new,
            is_paused=old.is_paused and not old.is_leaving,
            stored=old.stored,
            skipped=old.skipped,
            last=definition.before_change(old, now_us),
            held_us=old.held_us,
            ended=old.ended,
        )
        return definition.with_withdrawn(new, old, now_us)

    _decide_due(queues, name, timing, now_us)
    return _change(queues, name, now_us, change)


def _decide_due(queues: Queues, name: str, timing: Timing, now_us: int) -> None:
    """Decide the occurrences of the last minute before a schedule gets other times."""
    record = definition.stored(queues.engine.store, name)
    if record is None or definition.has_same_times(timing, record.schedule.timing):
        return
    if not (record.schedule.is_paused or record.schedule.is_leaving):
        next_us = definition.next_time(record.schedule)
        if next_us is not None and now_us - definition.LATE_US <= next_us <= now_us:
            _advance(queues, name, now_us)


def pause(queues: Queues, name: str) -> None:
    """Pause a schedule; its waiting jobs are cancelled.

    Raises: NotFound: the schedule does not exist.
    """
    now_us = queues.engine.time.latest_us()

    def change(old: Schedule | None) -> Schedule:
        old = _expect(name, old)
        if old.is_paused:
            return old
        idle = _idle(queues.engine, old, now_us)
        paused = replace(idle, is_paused=True, seed=queues.engine.ids.token())
        return definition.with_withdrawn(paused, old, now_us)

    _change(queues, name, now_us, change)


def _idle(engine: Engine, old: Schedule, now_us: int) -> Schedule:
    """Return the schedule with the waiting occurrence skipped, and that in the history."""
    idle = definition.without_held(old)
    untold = _to_tell(engine, idle)
    return replace(idle, untold=untold, sent_us=now_us if untold else 0)


def resume(queues: Queues, name: str) -> None:
    """Resume a schedule with the next occurrence; those during the pause do not run.

    Raises: NotFound: the schedule does not exist.
    """
    now_us = queues.engine.time.latest_us()

    def change(old: Schedule | None) -> Schedule:
        old = _expect(name, old)
        return replace(old, is_paused=False, through_us=now_us) if old.is_paused else old

    _change(queues, name, now_us, change)


def remove(queues: Queues, name: str) -> None:
    """Delete a schedule; its waiting jobs are cancelled.

    Raises: NotFound: the schedule does not exist.
    """
    now_us = queues.engine.time.latest_us()

    def change(old: Schedule | None) -> Schedule:
        old = _expect(name, old)
        leaving = replace(_idle(queues.engine, old, now_us), is_leaving=True)
        return definition.with_withdrawn(leaving, old, now_us)

    _change(queues, name, now_us, change)


def trigger(queues: Queues, name: str) -> Job:
    """Enqueue one job of a schedule now, in addition to its occurrences.

    Raises: NotFound: the schedule does not exist.
    """
    template = find(queues.engine, name).template
    opts = _options(template, None).to_bytes()
    return queues.enqueue(
        EnqueueRequest(
            template.queue, template.task, template.codec, [template.body], None,
            template.priority, template.tenant, opts, limits=[template.limits],
        )
    )[0]  # fmt: skip


def find(engine: Engine, name: str) -> Schedule:
    """Read a schedule.

    Raises: NotFound: the schedule does not exist.
    """
    record = definition.stored(engine.store, name)
    return _expect(name, record and record.schedule)


def all_schedules(engine: Engine) -> list[Stored]:
    """Read all schedules, by name."""
    return [
        record for record in definition.all_stored(engine.store) if not record.schedule.is_leaving
    ]


def unfinished(engine: Engine) -> list[str]:
    """Return the names of the schedules that have not ended."""
    now_us = engine.time.latest_us()
    return [
        schedule.name
        for schedule in all_schedules(engine)
        if not schedule.schedule.has_ended(now_us)
    ]


def advance(queues: Queues, name: str) -> list[int]:
    """Store the upcoming jobs of a schedule, and cancel those that it no longer has.

    Returns: the skew of each job that this call stored: how long after the time of its occurrence,
      in microseconds; 0: ahead of it.

    Raises: StoreUnavailable: the next call continues where this one ended.
    """
    return _advance(queues, name, queues.engine.time.latest_us())


def _advance(queues: Queues, name: str, now_us: int) -> list[int]:
    skews_us: list[int] = []
    for _ in range(_ROUNDS_MAX):
        record = definition.stored(queues.engine.store, name)
        if record is None:
            return skews_us
        queues.engine.catalog.expect_here(record.schedule.template.queue)
        if record.schedule.is_sending():
            skews_us += _send(queues.engine, record, now_us)
        elif record.schedule.recalled or record.schedule.ended:
            _recall(queues, record)
        elif record.schedule.is_leaving and definition.is_needed(record.schedule, now_us):
            return skews_us
        elif record.schedule.is_leaving or _is_forgotten(record.schedule, now_us):
            _commit(queues.engine, definition.remove(record))
        else:
            step = _step(queues.engine, record.schedule, now_us)
            if step.schedule == record.schedule:
                return skews_us
            skews_us += _store(queues.engine, record, step, now_us)
    return skews_us


def finish_started(queues: Queues, name: str) -> Stored | None:
    """Complete what other processes have started with a schedule; it stores no further jobs.

    Returns: the schedule as it is then; None if it does not exist any more.

    Raises: StoreUnavailable: the next call continues where this one ended.
    """
    now_us = queues.engine.time.latest_us()
    for _ in range(_ROUNDS_MAX):
        record = definition.stored(queues.engine.store, name)
        if record is None:
            return None
        if record.schedule.is_sending():
            _send(queues.engine, record, now_us)
        elif record.schedule.recalled or record.schedule.ended:
            _recall(queues, record)
        elif record.schedule.is_leaving and not definition.is_needed(record.schedule, now_us):
            _commit(queues.engine, definition.remove(record))
        else:
            return record
    raise Conflict(f"The schedule {name} keeps changing.", hint="Try again.")


class Advanced(NamedTuple):
    """What advancing all schedules did.

    skews_us: of the jobs that were stored, as of `advance`. next_us: when a schedule decides
    whether an occurrence makes a job; None where none has to.
    """

    skews_us: Sequence[int]
    next_us: int | None


def advance_all(queues: Queues) -> Advanced:
    """Advance all schedules; reads them once, and again only those that have work."""
    now_us = queues.engine.time.latest_us()
    skews_us, next_us = list[int](), list[int | None]()
    for name, schedule, _ in definition.all_stored(queues.engine.store):
        present: Schedule | None = schedule
        if _has_work(queues.engine, schedule, now_us):
            skews_us += _advance(queues, name, now_us)
            record = definition.stored(queues.engine.store, name)
            present = record and record.schedule
        if present is not None:
            next_us.append(definition.next_decision_us(present, now_us))
    return Advanced(skews_us, min((us for us in next_us if us is not None), default=None))


def store_scheduled_jobs(queues: Queues, after: str | None) -> StepResult:
    """Advance all schedules, as one maintenance step."""
    del after  # all of them are one step
    skews_us, next_us = advance_all(queues)
    rest_us = EVERY_US if next_us is None else next_us - queues.engine.time.earliest_us()
    if rest_us >= EVERY_US:
        return StepResult(len(skews_us), skews_us=skews_us)
    rest_us = max(rest_us, SOONEST_US)
    return StepResult(len(skews_us), after="", rest_us=rest_us, skews_us=skews_us)


class Overdue(NamedTuple):
    """A schedule with a job that was not stored, and its time."""

    name: str
    due_us: int


def overdue(engine: Engine, by_us: int) -> list[Overdue]:
    """Return the schedules that are behind by more than `by_us`, by name."""
    before_us = engine.time.earliest_us() - by_us
    behind = []
    for name, schedule, _ in all_schedules(engine):
        if not schedule.is_paused:
            due_us = definition.next_time(schedule)
            if due_us is not None and due_us < before_us:
                behind.append(Overdue(name, due_us))
    return behind


def _has_work(engine: Engine, schedule: Schedule, now_us: int) -> bool:
    if schedule.is_sending() or schedule.recalled or schedule.ended or schedule.is_leaving:
        return True
    if _is_forgotten(schedule, now_us):
        return True
    return _step(engine, schedule, now_us).schedule != schedule


def _is_forgotten(schedule: Schedule, now_us: int) -> bool:
    is_old = schedule.through_us < now_us - definition.ENDED_KEEP_US
    return schedule.is_dynamic and is_old and schedule.has_ended(schedule.through_us)


def _step(engine: Engine, schedule: Schedule, now_us: int) -> definition.Step:
    return definition.step(schedule, now_us, lambda last: _lives(engine, last))


def _lives(engine: Engine, job_id: bytes) -> bool:
    """Return whether a job waits or runs; once it does not, it never will (rule Z4)."""
    return any(row.state != State.DEAD and not row.outcome for row in _rows_of(engine, [job_id]))


def _store(engine: Engine, record: Stored, step: definition.Step, now_us: int) -> list[int]:
    """Store the jobs of a step with the progress of the schedule, unless another process did."""
    planned = tuple(_planned(engine, record.schedule, us, now_us) for us in step.times_us)
    untold = _to_tell(engine, step.schedule)
    sending = replace(step.schedule, births=planned, sent_us=now_us, untold=untold)
    decision = _decision(engine, record, sending, engine.ids.token())
    if not decisions.decide(engine.recording_store, [decision])[0]:
        return []
    engine.announce(decision.carried.jobs)
    return _skews(planned, now_us)


def _decision(engine: Engine, record: Stored, sending: Schedule, version: bytes) -> Decision:
    """Return the write of a schedule with the jobs and history rows that it carries."""
    write = definition.put(record.name, sending, version=version, expect=record.version)
    jobs = [_job(sending, planned_job, sending.sent_us) for planned_job in sending.births]
    rows = _rows(engine, sending, sending.sent_us)
    sent = replace(sending, births=(), sent_us=0, untold=())
    closed = Put(record.name, engine.ids.token(), encode(sent))
    return decisions.of_record(write, Group(jobs=jobs, rows=rows), closed)


def _skews(planned: Iterable[PlannedJob], now_us: int) -> list[int]:
    return [max(0, now_us - planned_job.nominal_us) for planned_job in planned]


def _to_tell(engine: Engine, schedule: Schedule) -> tuple[Skip, ...]:
    """Return the skipped occurrences to record, if the queue's history has all events."""
    settings = engine.catalog.settings(schedule.template.queue)
    return schedule.untold if settings.tells_all else ()


def _rows(engine: Engine, schedule: Schedule, at_us: int) -> list[Row]:
    """Return history rows of skipped occurrences, each with the id of its last occurrence."""
    rows = []
    for skip in schedule.untold:
        job = _job(schedule, _planned(engine, schedule, skip.last_us, at_us), at_us)
        words = f"{skip.why}: {instant_text(skip.last_us)}"
        if skip.times > 1:
            words = f"{skip.why}: {skip.times} times since {instant_text(skip.first_us)}"
        rows.append(row_of_event(happened(job, "skipped", at_us, error=words), job, job.id))
    return rows


def _send(engine: Engine, record: Stored, now_us: int) -> list[int]:
    """Insert the jobs whose keys are stored, maybe again; then delete the keys."""
    schedule, store = record.schedule, engine.recording_store
    decision = _decision(engine, record, schedule, record.version)
    done = decisions.complete(store, decision, age_us=now_us - schedule.sent_us)
    if done is not Completion.HERE:
        return []
    engine.announce(decision.carried.jobs)
    return _skews(schedule.births, now_us)


def _recall(queues: Queues, record: Stored) -> None:
    """Cancel waiting jobs that a schedule no longer has (rule Z3).

    Cancel a job that an occurrence replaces, even if it runs (rule Z5). A job that a worker has, or
    had, stays, and its occurrence counts as handled (rule Z7).
    """
    engine, schedule = queues.engine, record.schedule
    if schedule.ended:
        with suppress(NotFound, Conflict):
            queues.cancel(JobId(schedule.ended))
    recalled = definition.recalled_jobs(schedule)
    rows = _rows_of(engine, recalled)
    ends = [decision_of(_cancelled(engine, row)) for row in rows if _is_untouched(row)]
    gone = [stored(row) for row in rows if row.outcome]
    gone = [end for end in gone if end.finish.outcome.state == "cancelled"]
    cancelled = {row.id for row in rows if _is_untouched(row)} | {end.job.id for end in gone}
    kept = {job_id: us for job_id, us in recalled.items() if job_id not in cancelled}
    living = [row for row in rows if row.id in kept and row.state != State.DEAD]
    last = max(living, key=lambda row: row.due_us).id if living else b""
    done = definition.after_recall(schedule, kept, last)
    put = _put(engine, record.name, done, record)
    if engine.store.transactional:
        engine.store.together([group_of(ends, Group(commits=(put,)))])
        return
    # The outcomes stay in the rows until the schedule says which jobs it cancelled.
    opened = [end.opened() for end in ends]
    if all(engine.store.settle(decisions.verdicts_of(opened))) and _commit(engine, put):
        decisions.carry(engine.store, [*opened, *(decision_of(end).opened() for end in gone)])


def _rows_of(engine: Engine, ids: Iterable[bytes]) -> list[Job]:
    """Return the rows of jobs; without transactions a read may miss one that moves."""
    rows: dict[bytes, Job] = {}
    for _ in range(1 if engine.store.transactional else 2):
        missing = [JobId(job_id) for job_id in ids if job_id not in rows]
        if missing:
            rows |= {row.id: row for row in engine.store.find(missing) if row is not None}
    return list(rows.values())


def _is_untouched(row: Job) -> bool:
    """Return whether a job waits, and its handler was never called."""
    is_new = row.state == State.WAITING and not (row.outcome or row.errors or row.crashes)
    return is_new and not is_away(row) and not may_have_begun(row)


def _cancelled(engine: Engine, row: Job) -> Finished:
    outcome = Outcome("cancelled", engine.time.latest_us())
    settings = engine.catalog.expect_here(row.lane.queue)
    return Finished(row, finish_of(row, outcome, None, settings))


def _planned(engine: Engine, schedule: Schedule, nominal_us: int, now_us: int) -> PlannedJob:
    """Return the key of an occurrence's job, which it keeps."""
    settings = engine.catalog.settings(schedule.template.queue)
    pos_us = max(nominal_us, now_us)
    job_id = definition.job_id(schedule, nominal_us)
    shard = shard_of(job_id, settings.shards)
    planned = PlannedJob(nominal_us, pos_us, shard, bucket_of(pos_us, settings.width_us))
    if schedule.template.window_us:
        job = spread(
            _job(schedule, planned, 0), schedule.template.window_us, width_us=settings.width_us
        )
        planned = planned._replace(pos_us=job.pos_us, bucket=job.lane.bucket)
    return planned


def _options(call: Template, expires_us: int | None) -> CallOptions:
    return CallOptions(expires_us, **call.carried())


def _job(schedule: Schedule, planned: PlannedJob, sent_us: int) -> Job:
    call = schedule.template
    expires_us = planned.nominal_us + call.expires_us if call.expires_us else None
    opts = options_with_costs(_options(call, expires_us), call.limits).to_bytes()
    tenant = lane_tenant(tenant_with_needs(call.tenant, text_of(call.needs)), call.limits)
    lane = Lane(call.queue, planned.shard, planned.bucket, call.priority, tenant)
    return Job(
        lane, planned.pos_us, definition.job_id(schedule, planned.nominal_us), 0,
        planned.nominal_us, sent_us, call.task, call.codec, call.body, opts, planned.pos_us,
    )  # fmt: skip


def _change(
    queues: Queues, name: str, now_us: int, change: Callable[[Schedule | None], Schedule]
) -> bool:
    """Change a schedule as it is now, and advance it; return whether anything changed."""
    features = queues.engine.catalog.features
    features.check()
    features.expect_here()
    for _ in range(_ROUNDS_MAX):
        record = definition.stored(queues.engine.store, name)
        if record is not None and record.schedule.is_sending():  # its keys are of the old version
            _advance(queues, name, now_us)
            continue
        new = change(record and record.schedule)
        is_changed = record is None or new != record.schedule
        queues.engine.catalog.needy_tenant("", new.template.needs)  # before its first job
        if not is_changed or _commit(queues.engine, _put(queues.engine, name, new, record)):
            _advance(queues, name, now_us)
            return is_changed
    raise Conflict(f"The schedule {name} keeps changing.", hint="Try again.")


def _put(engine: Engine, name: str, schedule: Schedule, over: Stored | None) -> Commit:
    """Return the write of a schedule over the version that was read, or over nothing."""
    expect = NO_VERSION if over is None else over.version
    return definition.put(name, schedule, version=engine.ids.token(), expect=expect)


def _commit(engine: Engine, commit: Commit) -> bool:
    return engine.store.commit(commit.partition, commit.writes)


def _expect(name: str, schedule: Schedule | None) -> Schedule:
    if schedule is None or schedule.is_leaving:
        raise NotFound(f"There is no schedule {name}.", hint="See `dueline schedules list`.")
    return schedule
