"""Stores how attempts end, as verdicts and effects. Hot path: the benchmark `default`."""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from itertools import compress
from types import MappingProxyType
from typing import Final, NamedTuple

from dueline.coordination.worker_registry import Presence, live_workers
from dueline.core.attempt import (
    Cancelled,
    Crashed,
    Done,
    Ended,
    Expired,
    Failed,
    GivenBack,
    Outcome,
    Parked,
    Settled,
    Snoozed,
    Uncertain,
    misfit_of,
)
from dueline.core.batch_ids import has_batched
from dueline.core.call_options import read_options
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.durations import span_text
from dueline.core.engine import Engine
from dueline.core.errors import JobTimeout, StoreCorrupt, StoreUnavailable
from dueline.core.job import Claim, Job, JobId
from dueline.core.lane import bucket_of, limits_of, read_key, task_of
from dueline.core.logging import log
from dueline.core.retry import with_cancel_request
from dueline.core.store import Drop, Extend, Group, Move, Verdict
from dueline.core.text import one_line
from dueline.core.tuples import field, made
from dueline.core.wakeup import place_of
from dueline.durable.signals import check_again
from dueline.durable.stopped import list_stopped
from dueline.jobs import attempt_lines, cancel_requests, decisions
from dueline.jobs.completion import Finished, complete, finish_of, frees_of, stored, successes
from dueline.jobs.decisions import Decision, group_of
from dueline.jobs.history import record_deaths, row_of_refused
from dueline.jobs.unknown_tasks import known_tasks
from dueline.limits.suspension import suspend
from dueline.tasks import sections
from dueline.tasks.batch_handler import BatchHandler
from dueline.tasks.handler import Handler
from dueline.tasks.hooks import Hooks
from dueline.worker.circuits import Circuits
from dueline.worker.claimer import ClaimedJob
from dueline.worker.effects import Effects
from dueline.worker.hook_events import refused_by
from dueline.worker.log import SettlementReport, log_over
from dueline.worker.settlement_plan import Attempted, Planned, decision_of, plan
from dueline.worker.tally import Tally
from dueline.worker.triage import EndedBeforeRun, Triage, queues_of, triage

UNREADABLE_US = 60 * SECOND_US
"""How long a job is deferred if its outcome cannot be read: a newer version may read it."""

SUSPENDED_US_MAX = DAY_US
"""How long a handler may suspend limits: a header in milliseconds must not close them for years."""

THROTTLED_TOO_LONG = (
    "job=%s task=%s asked to suspend its limits for %s: they are suspended for a day. "
    "Is the wait in seconds?"
)


class Extended(NamedTuple):
    """The ends of claims that were extended, and the jobs whose claims were lost."""

    ends_us: Mapping[Claim, int]
    lost: Sequence[Job]


class Settler:
    """Decides what becomes of attempts, and stores each verdict together with its effects.

    Args:
      engine: The engine.
      handlers: Handlers by task, for their retry policies.
      chance: Source of randomness for retry delays.
      hooks: Functions to call with what became of attempts.
      tally: Counts the attempts, for metrics; None without metrics.
    """

    def __init__(
        self,
        engine: Engine,
        handlers: Mapping[str, Handler],
        chance: random.Random,
        hooks: Hooks | None = None,
        tally: Tally | None = None,
    ) -> None:
        self._hooks = hooks or Hooks()
        self._report = SettlementReport(self._hooks, tally)
        self._engine = engine
        self._handlers = handlers
        self._limited = {
            name: handler for name, handler in handlers.items() if handler.limits or handler.needs
        }
        self.batch_handlers = {
            n: handler for n, handler in handlers.items() if isinstance(handler, BatchHandler)
        }
        self.context_tasks = frozenset(
            name
            for name, handler in handlers.items()
            if name in self.batch_handlers
            or (handler.takes_context or handler.middleware or self._hooks.middleware)
        )
        self._plain_tasks = frozenset(handlers.keys() - self.context_tasks)
        self._given_fences = frozenset(
            name for name in self.context_tasks if not handlers[name].is_durable
        )
        self._keeps_lines = any(handler.logs != "off" for handler in handlers.values())
        self._chance = chance
        self._effects = Effects(engine.store)

    def settle(
        self,
        ended: Sequence[Ended],
        started: Sequence[Job],
        cancelled_claims: Collection[Claim] = (),
    ) -> list[Job]:
        """Store how attempts ended, and that some handlers were started, in one call.

        A verdict and its effects are stored together or not at all.

        Args:
            ended: The attempts.
            started: Jobs whose handlers have started.
            cancelled_claims: Claims on jobs that were cancelled: unless one succeeds, it is
                neither retried nor a failure.

        Returns:
            The jobs whose claims were lost; nothing was recorded for them.
        """
        if self._keeps_lines:
            self._keep_lines(ended)
        kinds = set(map(type, map(_ending_of, ended)))
        if Settled in kinds:
            kinds.remove(Settled)
            ended = self._unsettled(ended)
        if Snoozed in kinds:
            self._throttle(ended)
        if kinds & _DOUBTFUL:
            ended = self._with_sections(ended)
        if GivenBack in kinds:
            ended = self._with_misfits(ended)
        is_one = self._engine.store.transactional and len(ended) + len(started) > 1
        done, others = _parted(ended, kinds) if is_one else ((), ended)
        plans = plan(self._attempted(attempt, cancelled_claims) for attempt in others)
        changes = [*map(decision_of, plans), *map(self._mark, started)]
        if is_one and not self._store_as_one(done, changes):  # a claim was lost
            again = plan(self._attempted(attempt, cancelled_claims) for attempt in done)
            changes[len(plans) : len(plans)] = map(decision_of, again)
            plans += again
            is_one, done = False, ()
        held = (
            [True] * len(changes)
            if is_one
            else decisions.settle(self._engine.store, changes, later=self._effects.write)
        )
        self._engine.endings.note(attempt.job.id for attempt in ended)
        self._wake(plans)
        self._check_again(plans)
        self._report.done(done)
        self._report.planned(zip(plans, held, strict=False))  # the answers of marks come last
        jobs = [*(planned.ended.job for planned in plans), *started]
        lost = [job for job, sure in zip(jobs, held, strict=True) if not sure]
        if lost:
            self._record_refused(zip(plans, held, strict=False))
        return lost

    def _record_refused(self, answers: Iterable[tuple[Planned, bool]]) -> None:
        """Record outcomes that the store refused, so that an audit knows of their claims."""
        rows = [
            row_of_refused(planned.attempt, planned.ended.job)
            for planned, sure in answers
            if not sure and planned.attempt is not None
        ]
        if rows:
            with suppress(StoreUnavailable):  # nothing depends on it
                self._engine.store.append(rows)

    def _keep_lines(self, ended: Sequence[Ended]) -> None:
        """Store what handlers logged, before it is stored how they ended."""
        groups = [
            attempt_lines.written(self._engine, attempt.job, attempt.ended_us, attempt.ending.lines)
            for attempt in ended
            if isinstance(attempt.ending, Done | Failed) and attempt.ending.lines
        ]
        if groups:
            self._engine.store.together(groups)

    def _attempted(self, ended: Ended, cancelled: Collection[Claim]) -> Attempted:
        """Read all that decides what becomes of an attempt's job."""
        job = ended.job
        try:
            options = read_options(job.opts)
        except StoreCorrupt:
            options = None
        settings = self._engine.catalog.settings(job.lane.queue)
        is_cancelled = bool(cancelled) and job.claim() in cancelled
        chance, token = self._chance.random(), self._engine.ids.token()
        handler = self._handlers.get(job.task)
        return Attempted(ended, settings, options, handler, is_cancelled, chance, token)

    def _store_as_one(self, done: Sequence[Ended], changes: Sequence[Decision]) -> bool:
        """Store what becomes of several attempts in one group, which costs least.

        Returns:
            Whether it was stored. If not, nothing was: store each separately.
        """
        store, catalog = self._engine.store, self._engine.catalog
        settings = {queue: catalog.settings(queue) for queue in queues_of(map(_job_of, done))}
        keeps = any(known.keep_us or known.history != "off" for known in settings.values())
        keyed = [job for job in map(_job_of, done) if job.opts]
        attempts = [change.attempt for change in changes if change.attempt is not None]
        if keeps or keyed or attempts or has_batched(job.id for job in map(_job_of, done)):
            beside = successes(done, settings, attempts)
            rest = [change._replace(attempt=None) for change in changes]  # they share history rows
            group = group_of(rest, beside)
        else:
            group = group_of(changes, Group(made(Drop, [(attempt.job,) for attempt in done])))
        if not store.together([group])[0]:
            return False
        decisions.free(store, changes, [write for job in keyed for write in frees_of(job)])
        return True

    def _wake(self, plans: Sequence[Planned]) -> None:
        """Wake the workers of jobs that run again."""
        if again := [planned.change for planned in plans if isinstance(planned.change, Move)]:
            self._engine.wake(map(place_of, again))

    def _check_again(self, plans: Sequence[Planned]) -> None:
        """Wake durable functions whose signals came while they were parked; list stopped ones."""
        for planned in plans:
            ending = planned.ended.ending
            if isinstance(ending, Parked):
                with suppress(StoreUnavailable):  # the next check finds it, the next stop lists it
                    list_stopped(self._engine, planned.ended.job, ending)
                    check_again(self._engine, planned.ended.job, ending)

    def close(self) -> None:
        """Wait for the effects of outcomes that were stored."""
        self._effects.close()

    def extend(
        self,
        jobs: Sequence[Job],
        running: Collection[Claim],
        limits_us: Mapping[Claim, int] = MappingProxyType({}),
    ) -> Extended:
        """Extend claims by their queues' leases.

        Args:
            jobs: The jobs.
            running: Claims whose handlers run.
            limits_us: Latest ends of claims with permits.
        """
        verdicts: list[Extend] = []
        for job in jobs:
            claim, until_us = job.claim(), self._lease_end_us(job)
            until_us = min(until_us, limits_us.get(claim, until_us))
            verdicts.append(Extend(job, until_us, claim in running))
        held = self._engine.store.settle(verdicts)
        lost = [job for job, sure in zip(jobs, held, strict=True) if not sure]
        extended = compress(verdicts, held)
        return Extended({verdict.job.claim(): verdict.at_us for verdict in extended}, lost)

    def lost(self, jobs: Sequence[Job]) -> None:
        """Count lost claims and call hooks."""
        for job in jobs:
            self._report.lost(job)

    def _unsettled(self, ended: Sequence[Ended]) -> Sequence[Ended]:
        """Report attempts whose handlers ended their jobs themselves; return the others."""
        self._report.done([attempt for attempt in ended if isinstance(attempt.ending, Settled)])
        return [attempt for attempt in ended if not isinstance(attempt.ending, Settled)]

    def _with_misfits(self, ended: Sequence[Ended]) -> Sequence[Ended]:
        """Fail jobs whose wait for a worker that can take their arguments is over (rule P13).

        If there is one by now, they wait for it again.
        """
        if not any(misfit_of(attempt.ending) for attempt in ended):
            return ended
        workers = live_workers(self._engine)
        return [self._failed_for_good(attempt, workers) for attempt in ended]

    def _failed_for_good(self, attempt: Ended, workers: Sequence[Presence]) -> Ended:
        job, why = attempt.job, misfit_of(attempt.ending)
        if not why:
            return attempt
        queue, key = job.lane.queue, read_key(task_of(job.lane))
        wait_us = self._engine.catalog.settings(queue).version_wait_us
        if wait_us:
            refused = self._handlers[job.task].arguments.signature in key.refused
            is_over = refused and key.until_us <= attempt.ended_us
            if not is_over or key.text in known_tasks(queue, workers):
                return attempt
            why += f" No live worker has been able to take them for {span_text(wait_us)}."
        return attempt._replace(ending=Failed("BadInput", why, "", retry=False))

    def _with_sections(self, ended: Sequence[Ended]) -> Sequence[Ended]:
        """End jobs as uncertain whose attempts were ended from outside, in a section (rule P14)."""
        doubtful = [attempt.job for attempt in ended if _is_from_outside(attempt)]
        opened = self.open_sections(doubtful) if doubtful else {}
        if not opened:
            return ended
        return [
            attempt._replace(ending=Uncertain(opened[attempt.job.id]))
            if _is_from_outside(attempt) and attempt.job.id in opened
            else attempt
            for attempt in ended
        ]

    def sort(self, taken: Sequence[ClaimedJob]) -> Triage:
        """Sort claimed jobs by what becomes of them before they run."""
        now_us = self._engine.time.latest_us()
        return triage(taken, self._engine.catalog.settings, now_us, self.open_sections)

    def circuits(self, queues: Iterable[str]) -> Circuits:
        """Return the circuits of the tasks, for a worker of queues."""
        terms = {
            name: handler.pause_after
            for name, handler in self._handlers.items()
            if handler.pause_after is not None
        }
        return Circuits(self._engine, terms, queues)

    def open_sections(self, jobs: Iterable[Job]) -> Mapping[JobId, str]:
        """Return the open sections of jobs, as words; handlers without a context have none."""
        with_context = [job for job in jobs if job.task not in self._plain_tasks]
        return sections.open_in(self._engine.store, with_context) if with_context else {}

    def _throttle(self, ended: Sequence[Ended]) -> None:
        """Close the limits of jobs whose handlers request it, before their endings are stored."""
        for attempt in ended:
            if isinstance(attempt.ending, Snoozed) and attempt.ending.throttles:
                after_us = min(attempt.ending.after_us, SUSPENDED_US_MAX)
                if after_us < attempt.ending.after_us:
                    asked = span_text(attempt.ending.after_us)
                    log.warning(
                        THROTTLED_TOO_LONG, attempt.job.id.hex(), one_line(attempt.job.task), asked
                    )
                until_us = attempt.ended_us + after_us
                suspend(self._engine, limits_of(attempt.job.lane), until_us)

    def end(self, over: Sequence[EndedBeforeRun]) -> None:
        """End claimed jobs that do not run: lost, poison or expired."""
        plans: list[Planned] = []
        for job, outcome, attempt in self._with_cancel_requests(over):
            settings = self._engine.catalog.settings(job.lane.queue)
            finished = Finished(job, finish_of(job, outcome, attempt, settings))
            ended = Ended(job, Expired(), 0, outcome.ended_us)
            plans.append(Planned(ended, outcome, attempt, finished))
            log_over(job, outcome)
        held = decisions.settle(
            self._engine.store, list(map(decision_of, plans)), later=self._effects.write
        )
        for planned, sure in zip(plans, held, strict=True):
            if sure:
                self._report.not_run(planned)

    def complete(self, jobs: Sequence[Job]) -> None:
        """Apply the effects of outcomes that another worker stored.

        A job whose outcome cannot be read is deferred: it has ended, so its handler must not run,
        and how it ended is not known.
        """
        ends: list[Finished] = []
        unread: list[Verdict] = []
        for job in jobs:
            try:
                ends.append(stored(job))
            except StoreCorrupt as error:
                log.error("job %s is deferred: %s", job.id.hex(), error)
                unread.append(self._deferred(job, error))
        if unread:
            self._engine.store.settle(unread)
        if ends:
            complete(self._engine.store, ends)

    def _deferred(self, job: Job, error: StoreCorrupt) -> Move:
        at_us = self._engine.time.latest_us() + UNREADABLE_US
        width_us = self._engine.catalog.settings(job.lane.queue).width_us
        text = f"The stored outcome of the job cannot be read. {error.message}"
        return Move(job, at_us, self._engine.ids.token(), bucket_of(at_us, width_us), job.errors,
                    job.crashes, job.alone, outcome=job.outcome, error=text)  # fmt: skip

    def record_crashes(self, taken: Sequence[ClaimedJob]) -> None:
        """Record attempts whose workers died in the history, which only the next claimer can do."""
        record_deaths(self._engine, [before for _, before in taken if before])

    def _with_cancel_requests(self, over: Sequence[EndedBeforeRun]) -> Sequence[EndedBeforeRun]:
        """Cancel those of the jobs whose cancellation was requested under an earlier claim."""
        failing = [ended for ended in over if ended.outcome.state in ("dead", "lost", "expired")]
        before = [ended.job.id for ended in failing if ended.job.fence > 1]
        requested = cancel_requests.asked(self._engine.store, before) if before else ()
        return [_cancelled(ended) if ended.job.id in requested else ended for ended in over]

    def with_refused(self, gone: list[Ended], jobs: Sequence[Job]) -> list[Ended]:
        """Add the claimed jobs that a hook postpones or cancels to those that do not start."""
        if self._hooks.has("claim"):
            claims = {attempt.job.claim() for attempt in gone}
            gone += refused_by(self._hooks, jobs, claims, self._engine.time.latest_us())
        return gone

    def needs_fences(self, jobs: Sequence[Job]) -> bool:
        """Return whether a handler or a hook is given the fence of one of these jobs."""
        if not jobs:
            return False
        return self._hooks.has_run_hooks or not self._given_fences.isdisjoint(map(_task_of, jobs))

    def _mark(self, job: Job) -> Decision:
        """Return the mark of a started handler; it does not extend claims with permits."""
        at_us = job.at_us if limits_of(job.lane) else self._lease_end_us(job)
        return Decision(Extend(job, at_us, started=True))

    def _lease_end_us(self, job: Job) -> int:
        lease_us = self._engine.catalog.settings(job.lane.queue).lease_us
        return self._engine.time.latest_us() + lease_us

    @property
    def limited(self) -> Mapping[str, Handler]:
        """The handlers of tasks with limits."""
        return self._limited


_job_of, _ending_of = field(Ended, "job"), field(Ended, "ending")
_task_of, _opts_of = field(Job, "task"), field(Job, "opts")


_DOUBTFUL: Final = frozenset({Crashed, Cancelled, Failed, GivenBack})
"""Endings of attempts that a worker may have ended from outside."""


def _is_from_outside(attempt: Ended) -> bool:
    """Return whether an attempt may have been ended while its handler ran, whatever it did then.

    A handler that ends by itself says whether a section of it is open, see `Context.ending_after`.
    """
    ending = attempt.ending
    if isinstance(ending, Failed):
        return ending.error_type == JobTimeout.__name__
    return isinstance(ending, Crashed | Cancelled) or (
        isinstance(ending, GivenBack) and ending.may_have_run
    )


def _cancelled(over: EndedBeforeRun) -> EndedBeforeRun:
    job, outcome, attempt = over
    decision = with_cancel_request(outcome, outcome.ended_us)
    assert isinstance(decision, Outcome)
    attempt = replace(attempt, outcome=decision.state, error=decision.error)
    return EndedBeforeRun(job, decision, attempt)


def _parted(
    ended: Sequence[Ended], kinds: AbstractSet[type]
) -> tuple[Sequence[Ended], Sequence[Ended]]:
    """Separate attempts that succeeded from the others. kinds: of their endings."""
    if kinds <= {Done}:
        return ended, ()
    done = [attempt for attempt in ended if isinstance(attempt.ending, Done)]
    return done, [attempt for attempt in ended if not isinstance(attempt.ending, Done)]
