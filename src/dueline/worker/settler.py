"""Stores how attempts end, as verdicts and effects."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import compress, groupby, repeat
from types import MappingProxyType
from typing import NamedTuple

from dueline.core.attempt import Crashed, Done, Ended, Expired, Failed, Outcome, Settled, Snoozed
from dueline.core.call_options import THROTTLED, read_options, terms_of
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.durations import span_text
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Claim, Job
from dueline.core.lane import bucket_of, limits_of
from dueline.core.logging import log
from dueline.core.queue_settings import QueueSettings
from dueline.core.retry import Decision, Retry, RetryLater, decide, with_cancel_request
from dueline.core.store import Drop, Extend, Group, Move, Verdict
from dueline.core.text import one_line
from dueline.core.tuples import field, made
from dueline.jobs import attempt_lines, cancel_requests
from dueline.jobs.completion import (
    Finished,
    complete,
    finish,
    finish_of,
    finish_together,
    stored,
)
from dueline.jobs.completion import decide as decide_ends
from dueline.jobs.history import AttemptAndJob, attempt_of, died, row_of, rows_of_ended
from dueline.limits.permits import suspend
from dueline.tasks.batch_handler import BatchHandler
from dueline.tasks.handler import Handler
from dueline.tasks.hooks import Hooks
from dueline.worker.claimer import ClaimedJob
from dueline.worker.context_controls import RecentClaims
from dueline.worker.effects import Effects
from dueline.worker.hook_events import settled_event
from dueline.worker.log import log_ending, log_over, log_together
from dueline.worker.tally import Tally
from dueline.worker.triage import EndedBeforeRun

UNREADABLE_US = 60 * SECOND_US
"""How long a job is deferred if its outcome cannot be read: a newer version may read it."""

SUSPENDED_US_MAX = DAY_US
"""How long a handler may suspend limits: a header in milliseconds must not close them for years."""

THROTTLED_TOO_LONG = (
    "job=%s task=%s asked to suspend its limits for %s: they are suspended for a day. "
    "Is the wait in seconds?"
)

_DEFAULT_RETRY = Retry()

PUT_BACK = ("snoozed", "given_back")
"""Endings after which a job waits without having failed."""


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
        self._tally = tally
        self._notified_lost = RecentClaims()
        self._engine = engine
        self._handlers = handlers
        self._limited = {name: one for name, one in handlers.items() if one.limits}
        self.batch_handlers = {
            n: one for n, one in handlers.items() if isinstance(one, BatchHandler)
        }
        self.context_tasks = frozenset(
            name
            for name, one in handlers.items()
            if name in self.batch_handlers
            or (one.takes_context or one.middleware or self._hooks.middleware)
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
            ended = self._unsettled(ended)
            kinds.remove(Settled)
        if Snoozed in kinds:
            self._throttle(ended)
        done: Sequence[Ended] = ended
        over: list[tuple[Ended, Decision]] = []
        again: list[tuple[Ended, RetryLater]] = []
        ends: list[Finished] = []
        moves: list[Group] = []
        if not kinds <= {Done}:
            done = [one for one in ended if isinstance(one.ending, Done)]
            for attempt in ended:
                if isinstance(attempt.ending, Done):
                    continue
                decision, change = self._decide(attempt, cancelled_claims)
                if isinstance(decision, RetryLater) and isinstance(change, Move):
                    again.append((attempt, decision))
                    moves.append(Group((change,)))
                elif isinstance(change, Finished):
                    over.append((attempt, decision))
                    ends.append(change)
        marks = [Group((self._mark(job),)) for job in started]
        noted = self._attempts_of(again)
        held = self._finish_done(done, ends, moves, marks, noted=noted)
        if held is None:
            settings = self._engine.catalog.settings
            ends = [
                *(_finished(one, _outcome_of(one), settings(one.job.lane.queue)) for one in done),
                *ends,
            ]
            held = self._finish(ends, [*_with_rows(moves, noted), *marks])
        if again:
            self._engine.wake((one.job.lane, decision.at_us) for one, decision in again)
        return self._report(done, [*over, *again], started, held)

    def _keep_lines(self, ended: Sequence[Ended]) -> None:
        """Store what handlers logged, before it is stored how they ended."""
        groups = [
            attempt_lines.written(self._engine, attempt.job, attempt.ended_us, attempt.ending.lines)
            for attempt in ended
            if isinstance(attempt.ending, Done | Failed) and attempt.ending.lines
        ]
        if groups:
            self._engine.store.together(groups)

    def _finish_done(
        self,
        done: Sequence[Ended],
        ends: Sequence[Finished],
        moves: Sequence[Group],
        marks: Sequence[Group],
        *,
        noted: Sequence[AttemptAndJob | None],
    ) -> Sequence[bool] | None:
        """End successful jobs in bulk, with others; None if each must be ended separately.

        Args:
            done: The successful attempts.
            ends: Other jobs that end.
            moves: Retries.
            marks: Marks of started handlers.
            noted: The attempt of each retry that the history records.
        """
        store, catalog = self._engine.store, self._engine.catalog
        settings = {queue: catalog.settings(queue) for queue in _queues_of(done)}
        has_history = any(setting.history != "off" for setting in settings.values())
        leave_something = has_history or any(setting.keep_us for setting in settings.values())
        if not (ends or moves or leave_something or any(map(_opts_of, map(_job_of, done)))):
            verdicts = [verdict for group in marks for verdict in group.verdicts]
            return store.settle([*made(Drop, [(attempt.job,) for attempt in done]), *verdicts])
        if not store.transactional:
            return None
        groups = [*moves, *marks]
        attempts = [one for one in noted if one is not None]
        is_held = finish_together(store, done, settings, ends, groups, noted=attempts)
        return [True] * (len(done) + len(ends) + len(groups)) if is_held else None

    def _attempts_of(self, again: Sequence[tuple[Ended, RetryLater]]) -> list[AttemptAndJob | None]:
        """Return the attempts of retries as the history records them; None if it is off."""
        settings = self._engine.catalog.settings
        return [
            (
                attempt_of(
                    ended, outcome=decision.word, error=decision.error, again_us=decision.at_us
                ),
                ended.job,
            )
            if settings(ended.job.lane.queue).history != "off"
            else None
            for ended, decision in again
        ]

    def _finish(self, ends: Sequence[Finished], groups: Sequence[Group]) -> Sequence[bool]:
        """End jobs, and apply groups; their effects may follow later (rule P5)."""
        if self._engine.store.transactional:
            return finish(self._engine.store, ends, groups)
        held, decided = decide_ends(self._engine.store, ends, groups)
        self._effects.write(decided)
        return held

    def close(self) -> None:
        """Wait for the effects of outcomes that were stored."""
        self._effects.close()

    def _report(
        self,
        done: Sequence[Ended],
        others: Sequence[tuple[Ended, Decision]],
        started: Sequence[Job],
        held: Sequence[bool],
    ) -> list[Job]:
        """Log what became of attempts, call hooks, and return the jobs whose claims were lost."""
        if self._tally is not None:
            self._tally.ended(compress(zip(done, repeat("done"), strict=False), held))
            words = ((one, _word_of(decision)) for one, decision in others)
            self._tally.ended(compress(words, held[len(done) :]))
        is_all = all(held)
        is_logged = is_all and log_together(done)
        if not is_logged or self._hooks.has("done"):
            for one, sure in zip(done, held, strict=False):
                outcome = Outcome("done", one.ended_us)
                self._notify(one, outcome, is_lost=not sure, is_logged=is_logged)
        for (one, decision), sure in zip(others, held[len(done) :], strict=False):
            self._notify(one, decision, is_lost=not sure)
        if is_all:
            return []
        jobs = [*map(_job_of, done), *(one.job for one, _ in others), *started]
        return [job for job, sure in zip(jobs, held, strict=True) if not sure]

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
        ends_us = {
            one.job.claim(): one.at_us for one, sure in zip(verdicts, held, strict=True) if sure
        }
        return Extended(ends_us, lost)

    def lost(self, jobs: Sequence[Job]) -> None:
        """Count lost claims and call hooks."""
        for job in jobs:
            self._notify_lost(job)

    def _unsettled(self, ended: Sequence[Ended]) -> Sequence[Ended]:
        """Report attempts whose handlers ended their jobs themselves; return the others."""
        if not any(isinstance(one.ending, Settled) for one in ended):
            return ended
        for attempt in ended:
            if isinstance(attempt.ending, Settled):
                if self._tally is not None:
                    self._tally.ended([(attempt, "done")])
                self._notify(attempt, Outcome("done", attempt.ended_us), is_lost=False)
        return [one for one in ended if not isinstance(one.ending, Settled)]

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

    def _notify(
        self, ended: Ended, decision: Decision, *, is_lost: bool, is_logged: bool = False
    ) -> None:
        """Log what became of an attempt, unless that was done, and call hooks."""
        if not is_logged:
            log_ending(ended, decision, is_lost=is_lost)
        if is_lost:
            self._notify_lost(ended.job)
        elif isinstance(decision, Outcome):
            if self._hooks.has(decision.state):
                event = settled_event(ended.job, decision.error, ended_us=ended.ended_us)
                self._hooks.call(decision.state, event)
        elif decision.error and self._hooks.has("retry"):
            event = settled_event(
                ended.job, decision.error, decision.at_us, ended_us=ended.ended_us
            )
            self._hooks.call("retry", event)

    def _notify_lost(self, job: Job) -> None:
        """Count a lost claim and call hooks, once for each claim."""
        if job.claim() not in self._notified_lost:
            self._notified_lost.add([job.claim()])
            if self._tally is not None:
                self._tally.lost(job)
            if self._hooks.has("lease_lost"):
                self._hooks.call("lease_lost", settled_event(job, ""))

    def end(self, over: Sequence[EndedBeforeRun]) -> None:
        """End claimed jobs that do not run: lost, poison or expired."""
        over = self._with_cancel_requests(over)
        ends = []
        for job, outcome, attempt in over:
            settings = self._engine.catalog.settings(job.lane.queue)
            ends.append(Finished(job, finish_of(job, outcome, attempt, settings)))
            log_over(job, outcome)
        held = self._finish(ends, ()) if ends else []
        for (job, outcome, _), sure in zip(over, held, strict=True):
            if sure and self._tally is not None:
                self._tally.ended([(Ended(job, Expired(), 0, outcome.ended_us), outcome.state)])
            if sure and self._hooks.has(outcome.state):
                event = settled_event(job, outcome.error, ended_us=outcome.ended_us)
                self._hooks.call(outcome.state, event)

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
        return Move(
            job,
            at_us,
            self._engine.ids.token(),
            bucket_of(at_us, width_us),
            job.errors,
            job.crashes,
            job.alone,
            outcome=job.outcome,
            error=f"The stored outcome of the job cannot be read. {error.message}",
        )

    def record_crashes(self, taken: Sequence[ClaimedJob]) -> None:
        """Record attempts whose workers died in the history, which only the next claimer can do."""
        catalog = self._engine.catalog
        noted = [
            (died(before), before)
            for _, before in taken
            if before and catalog.settings(before.lane.queue).history != "off"
        ]
        if noted and self._engine.store.transactional:
            self._engine.store.append(rows_of_ended((), noted))
        elif noted:
            self._engine.store.append([row_of(*one) for one in noted])

    def _with_cancel_requests(self, over: Sequence[EndedBeforeRun]) -> Sequence[EndedBeforeRun]:
        """Cancel those of the jobs whose cancellation was requested under an earlier claim."""
        failing = [ended for ended in over if ended.outcome.state in ("dead", "lost", "expired")]
        before = [ended.job.id for ended in failing if ended.job.fence > 1]
        requested = cancel_requests.asked(self._engine.store, before) if before else ()
        return [_cancelled(ended) if ended.job.id in requested else ended for ended in over]

    def _decide(
        self, ended: Ended, cancelled_claims: Collection[Claim]
    ) -> tuple[Decision, Finished | Move]:
        """Decide what becomes of a job that did not succeed, and return the change to store."""
        job = ended.job
        settings = self._engine.catalog.settings(job.lane.queue)
        handler = self._handlers.get(job.task)
        retry = (handler.retry if handler else _DEFAULT_RETRY).with_terms(terms_of(job).retry)
        again = decide(ended, retry, self._chance.random(), is_once=settings.is_once)
        if cancelled_claims and job.claim() in cancelled_claims:
            again = with_cancel_request(again, ended.ended_us)
        if isinstance(again, Outcome):
            return again, _finished(ended, again, settings)
        again = _by_expiry(ended, again)
        move = Move(
            job,
            again.at_us,
            self._engine.ids.token(),
            bucket_of(again.at_us, settings.width_us),
            again.errors,
            again.crashes,
            again.alone,
            error=again.error,
            opts=_opts_after(ended, again) if again.word in PUT_BACK else None,
        )
        return again, move

    def needs_fences(self, jobs: Sequence[Job]) -> bool:
        """Return whether a handler or a hook is given the fence of one of these jobs."""
        if not jobs:
            return False
        return self._hooks.has_run_hooks or not self.context_tasks.isdisjoint(map(_task_of, jobs))

    def _mark(self, job: Job) -> Extend:
        """Return the mark of a started handler; it does not extend claims with permits."""
        at_us = job.at_us if limits_of(job.lane) else self._lease_end_us(job)
        return Extend(job, at_us, started=True)

    def _lease_end_us(self, job: Job) -> int:
        lease_us = self._engine.catalog.settings(job.lane.queue).lease_us
        return self._engine.time.latest_us() + lease_us

    @property
    def limited(self) -> Mapping[str, Handler]:
        """The handlers of tasks with limits."""
        return self._limited


_job_of, _ending_of = field(Ended, "job"), field(Ended, "ending")
_lane_of, _task_of, _opts_of = (field(Job, name) for name in ("lane", "task", "opts"))


def _with_rows(moves: Sequence[Group], noted: Sequence[AttemptAndJob | None]) -> list[Group]:
    """Return retries with the history row of each."""
    return [
        group if one is None else group._replace(rows=(row_of(*one),))
        for group, one in zip(moves, noted, strict=True)
    ]


def _finished(ended: Ended, outcome: Outcome, settings: QueueSettings) -> Finished:
    if isinstance(ended.ending, Expired):
        ended = ended._replace(started_us=0)  # no handler was called
    attempt = None
    if settings.history != "off":
        attempt = attempt_of(ended, outcome=outcome.state, error=outcome.error)
    job = _counted(ended.job, ended) if outcome.state == "dead" else ended.job
    return Finished(ended.job, finish_of(job, outcome, attempt, settings))


def _cancelled(over: EndedBeforeRun) -> EndedBeforeRun:
    job, outcome, attempt = over
    decision = with_cancel_request(outcome, outcome.ended_us)
    assert isinstance(decision, Outcome)
    attempt = replace(attempt, outcome=decision.state, error=decision.error)
    return EndedBeforeRun(job, decision, attempt)


def _outcome_of(done: Ended) -> Outcome:
    assert isinstance(done.ending, Done)
    return Outcome("done", done.ended_us, value=done.ending.value.decode())


def _by_expiry(ended: Ended, again: RetryLater) -> RetryLater:
    """Return the decision for a job that expires before it runs again: it is due at its expiry.

    Then the worker that claims it ends it, and what waits for its end goes on.
    """
    try:
        expires_us = read_options(ended.job.opts).expires_us
    except StoreCorrupt:  # reported when the job runs
        return again
    if expires_us is None or again.at_us <= expires_us:
        return again
    return replace(again, at_us=max(expires_us, ended.ended_us))


def _opts_after(ended: Ended, again: RetryLater) -> bytes | None:
    """Note in a job's options that its attempt did not fail; None if the job runs again at once."""
    if again.at_us <= ended.ended_us:
        return None
    try:
        options = read_options(ended.job.opts)
    except StoreCorrupt:  # reported when the job runs
        return None
    is_throttled = isinstance(ended.ending, Snoozed) and ended.ending.throttles
    word = THROTTLED if is_throttled else again.word
    return options.changed(put_back=(word, again.at_us)).to_bytes()


def _word_of(decision: Decision) -> str:
    return decision.state if isinstance(decision, Outcome) else decision.word


def _queues_of(ended: Sequence[Ended]) -> set[str]:
    return {lane.queue for lane, _ in groupby(map(_lane_of, map(_job_of, ended)))}


def _counted(job: Job, ended: Ended) -> Job:
    """Count the attempt that made the job dead."""
    if isinstance(ended.ending, Crashed):
        return job._replace(crashes=job.crashes + 1)
    return job._replace(errors=job.errors + 1)
