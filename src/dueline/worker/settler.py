"""Turns endings into verdicts and effects."""

import logging
import random
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import groupby

from dueline.core import features
from dueline.core.attempt import Crashed, Done, Ended, Expired, Outcome, Settled, Snoozed
from dueline.core.call_options import read_options
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Claim, Job
from dueline.core.lane import LIMIT_MARK, bucket_of, limits_of
from dueline.core.logging import log
from dueline.core.retry import Decision, Retry, RetryLater, cancelled, decide
from dueline.core.store import Drop, Extend, Group, Move, Row, Verdict
from dueline.core.tuples import field, made
from dueline.jobs.completion import (
    Finished,
    complete,
    end_of,
    finish,
    finish_of,
    joined,
    release,
    stored,
    successes,
)
from dueline.jobs.history import attempt_of, died, row_of
from dueline.limits.permits import suspend
from dueline.tasks.batch_handler import ChunkHandler
from dueline.tasks.handler import Handler
from dueline.tasks.hooks import Hooks
from dueline.worker.claimer import ClaimedJob
from dueline.worker.context_controls import Remembered
from dueline.worker.hook_events import settle_event
from dueline.worker.log import log_ending, log_over
from dueline.worker.triage import Over

UNREADABLE_US = 60 * SECOND_US
"""How long a job is set aside whose outcome cannot be read: a newer version may read it."""

_DEFAULT_RETRY = Retry()

PUT_BACK = ("snoozed", "given_back")
"""Endings of attempts after which a job waits for a time without having failed."""


class Settler:
    """Decides what becomes of attempts, and writes it: verdict and effects as one."""

    def __init__(
        self,
        engine: Engine,
        handlers: Mapping[str, Handler],
        chance: random.Random,
        hooks: Hooks | None = None,
    ) -> None:
        """Take the engine, the handlers by task (for their retry policies), and randomness.

        Args: hooks: who wants to hear what became of attempts.
        """
        self._hooks = hooks or Hooks()
        self._told_lost = Remembered()
        self._engine = engine
        self._handlers = handlers
        self._limited = {name: one for name, one in handlers.items() if one.limits}
        self.chunked = {n: one for n, one in handlers.items() if isinstance(one, ChunkHandler)}
        self._chance = chance

    def settle(
        self, ended: Sequence[Ended], started: Sequence[Job], wished: Container[Claim] = ()
    ) -> list[Job]:
        """Write the verdicts of ended attempts, and that some handlers were started.

        Everything goes in one call; a verdict and its effects happen together or not at all.

        Args: wished: claims on jobs whose end is wished for: none of them is tried again.

        Returns: the jobs whose claims were lost; nothing was recorded for them.
        """
        kinds = set(map(type, map(_ending_of, ended)))
        if Settled in kinds:
            ended = self._unsettled(ended)
        if Snoozed in kinds:
            self._throttle(ended)
        are_done = kinds <= {Done}
        if are_done and self._leave_nothing(ended):
            return self._drop(ended, started)
        if self._engine.store.transactional and self._settle_as_one(
            ended, started, wished, are_done=are_done
        ):
            return []
        return self._settle_each(ended, started, wished)

    def _settle_as_one(
        self,
        ended: Sequence[Ended],
        started: Sequence[Job],
        wished: Container[Claim],
        *,
        are_done: bool,
    ) -> bool:
        """Settle everything as one group where most is done; tell whether each claim held."""
        done, others = ended, list[Ended]()
        if not are_done:
            done = [one for one in ended if isinstance(one.ending, Done)]
            others = [one for one in ended if not isinstance(one.ending, Done)]
        if len(done) <= len(others):
            return False
        settings = self._engine.catalog.settings
        groups = [successes(done, {queue: settings(queue) for queue in _queues_of(done)})]
        if groups[0].rows and len(done) > 1:
            self._engine.catalog.adopt(features.BUNDLES)
        rest = [(one, self._decide(one, wished)) for one in others]
        for one, decision in rest:
            if isinstance(decision, RetryLater):
                groups.append(self._again(one, decision))
            else:
                groups.append(end_of(self._finished(one, decision)))
        groups += [Group((self._mark(job),)) for job in started]
        if not self._engine.store.together([joined(groups)])[0]:
            return False
        over = [one for one, decision in rest if isinstance(decision, Outcome)]
        with_options = [job for job in map(_job_of, (*done, *over)) if job.opts]
        if with_options:
            release(self._engine.store, with_options)
        if log.isEnabledFor(logging.INFO) or self._hooks.has("done"):
            rest += [(one, Outcome("done", one.ended_us)) for one in done]
        for one, decision in rest:
            self._tell(one, decision, is_lost=False)
        return True

    def _settle_each(
        self, ended: Sequence[Ended], started: Sequence[Job], wished: Container[Claim]
    ) -> list[Job]:
        """Settle each attempt by itself, so that a claim that was lost costs no other."""
        over: list[tuple[Ended, Outcome]] = []
        again: list[tuple[Ended, RetryLater]] = []
        for one in ended:
            decision = self._decide(one, wished)
            if isinstance(decision, RetryLater):
                again.append((one, decision))
            else:
                over.append((one, decision))
        ends = [self._finished(one, outcome) for one, outcome in over]
        others = [self._again(one, decision) for one, decision in again]
        others += [Group((self._mark(job),)) for job in started]
        held = finish(self._engine.store, ends, others)
        self._engine.wake((one.job.lane.queue, decision.at_us) for one, decision in again)
        decided: list[tuple[Ended, Decision]] = [*over, *again]
        for (one, decision), sure in zip(decided, held, strict=False):
            self._tell(one, decision, is_lost=not sure)
        jobs = [one.job for one, _ in decided] + list(started)
        return [job for job, sure in zip(jobs, held, strict=True) if not sure]

    def _leave_nothing(self, ended: Sequence[Ended]) -> bool:
        """Tell whether these attempts leave neither result nor history, and their jobs no key."""
        settings = [self._engine.catalog.settings(queue) for queue in _queues_of(ended)]
        if not all(one.history == "off" and one.keep_us == 0 for one in settings):
            return False
        return not any(map(_opts_of, map(_job_of, ended)))

    def _drop(self, ended: Sequence[Ended], started: Sequence[Job]) -> list[Job]:
        """Settle attempts that leave nothing: bare verdicts do, without a group around each."""
        verdicts: list[Verdict] = [*made(Drop, [(one.job,) for one in ended])]
        verdicts += [self._mark(job) for job in started]
        held = self._engine.store.settle(verdicts)
        if all(held) and not log.isEnabledFor(logging.INFO) and not self._hooks.has("done"):
            return []
        for one, sure in zip(ended, held, strict=False):
            self._tell(one, Outcome("done", one.ended_us), is_lost=not sure)
        return [one.job for one, sure in zip(verdicts, held, strict=True) if not sure]

    def extend(
        self,
        jobs: Sequence[Job],
        running: set[Claim],
        bounded: Callable[[Job, int], int] = lambda _, until_us: until_us,
        note: Callable[[Mapping[Claim, int]], object] = lambda _: None,
    ) -> list[Job]:
        """Extend claims by their queues' leases; answer those that were lost.

        Args: bounded: says until when a claim may last, if not for a lease. note: called with
        the claims that were extended, and until when.
        """
        verdicts: list[Extend] = []
        for job in jobs:
            until_us = bounded(job, self._lease_end_us(job))
            verdicts.append(Extend(job, until_us, job.claim() in running))
        held = self._engine.store.settle(verdicts)
        lost = [job for job, sure in zip(jobs, held, strict=True) if not sure]
        sure_of = [one for one, sure in zip(verdicts, held, strict=True) if sure]
        note({one.job.claim(): one.at_us for one in sure_of})
        for job in lost:
            self._tell_lost(job)
        return lost

    def _unsettled(self, ended: Sequence[Ended]) -> Sequence[Ended]:
        """Leave out attempts that ended their jobs themselves, and tell of them."""
        if not any(isinstance(one.ending, Settled) for one in ended):
            return ended
        for one in ended:
            if isinstance(one.ending, Settled):
                self._tell(one, Outcome("done", one.ended_us), is_lost=False)
        return [one for one in ended if not isinstance(one.ending, Settled)]

    def _throttle(self, ended: Sequence[Ended]) -> None:
        """Close the limits of jobs whose handlers say so, before anything else of them is told."""
        for one in ended:
            if isinstance(one.ending, Snoozed) and one.ending.throttles:
                until_us = one.ended_us + one.ending.after_us
                suspend(self._engine, limits_of(one.job.lane), until_us)

    def _tell(self, ended: Ended, decision: Decision, *, is_lost: bool) -> None:
        """Log what became of an attempt, and call who wants to hear of it."""
        log_ending(ended, decision, is_lost=is_lost)
        if is_lost:
            self._tell_lost(ended.job)
        elif isinstance(decision, Outcome):
            if self._hooks.has(decision.state):
                event = settle_event(ended.job, decision.error, ended_us=ended.ended_us)
                self._hooks.tell(decision.state, event)
        elif decision.error and self._hooks.has("retry"):
            event = settle_event(ended.job, decision.error, decision.at_us, ended_us=ended.ended_us)
            self._hooks.tell("retry", event)

    def _tell_lost(self, job: Job) -> None:
        """Call who wants to hear of lost claims, once for each: it may be noticed twice."""
        if self._hooks.has("lease_lost") and job.claim() not in self._told_lost:
            self._told_lost.add([job.claim()])
            self._hooks.tell("lease_lost", settle_event(job, ""))

    def end(self, over: Sequence[Over]) -> None:
        """End claimed jobs that are not run any more: lost, poison, expired."""
        ends = []
        for job, outcome, attempt in over:
            settings = self._engine.catalog.settings(job.lane.queue)
            ends.append(Finished(job, finish_of(job, outcome, attempt, settings)))
            log_over(job, outcome)
        held = finish(self._engine.store, ends, ()) if ends else []
        for (job, outcome, _), sure in zip(over, held, strict=True):
            if sure and self._hooks.has(outcome.state):
                event = settle_event(job, outcome.error, ended_us=outcome.ended_us)
                self._hooks.tell(outcome.state, event)

    def complete(self, jobs: Sequence[Job]) -> None:
        """Finish what another worker decided and did not see through.

        A job whose outcome cannot be read is set aside for a while, as it is: it has ended, so
        its handler must not run, and how it ended is not known.
        """
        ends: list[Finished] = []
        unread: list[Verdict] = []
        for job in jobs:
            try:
                ends.append(stored(job))
            except StoreCorrupt as error:
                log.error("job %s is set aside: %s", job.id.hex(), error)
                unread.append(self._set_aside(job, error))
        if unread:
            self._engine.store.settle(unread)
        if ends:
            complete(self._engine.store, ends)

    def _set_aside(self, job: Job, error: StoreCorrupt) -> Move:
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
            error=f"How the job ended cannot be read. {error.message}",
        )

    def tell_died(self, taken: Sequence[ClaimedJob]) -> None:
        """Write the history of attempts whose workers died, which only the next claimer can."""
        catalog = self._engine.catalog
        rows = [
            row_of(died(before), before)
            for _, before in taken
            if before and catalog.settings(before.lane.queue).history != "off"
        ]
        if rows:
            self._engine.store.append(rows)

    def _decide(self, ended: Ended, wished: Container[Claim]) -> Decision:
        handler = self._handlers.get(ended.job.task)
        retry = handler.retry if handler else _DEFAULT_RETRY
        is_once = self._engine.catalog.settings(ended.job.lane.queue).is_once
        decision = decide(ended, retry, self._chance.random(), is_once=is_once)
        if isinstance(decision, RetryLater) and ended.job.claim() in wished:
            return cancelled(ended.ended_us, decision.error)
        return decision

    def taking_context(self, jobs: Sequence[Job]) -> list[Job]:
        """List the jobs whose handlers take a Context."""
        tasks = {
            task
            for task in set(map(_task_of, jobs))
            if task in self.chunked
            or ((handler := self._handlers.get(task)) is not None and handler.takes_context)
        }
        return [job for job in jobs if job.task in tasks] if tasks else []

    def tells_fences(self, jobs: Sequence[Job]) -> bool:
        """Tell whether a handler or a hook is told the fence of some of these jobs."""
        return bool(jobs) and (self._hooks.hear_runs or bool(self.taking_context(jobs)))

    def _mark(self, job: Job) -> Extend:
        """Say that a handler was started. What needs permits is not extended without them."""
        is_limited = LIMIT_MARK in job.lane.tenant
        return Extend(job, job.at_us if is_limited else self._lease_end_us(job), started=True)

    def _lease_end_us(self, job: Job) -> int:
        lease_us = self._engine.catalog.settings(job.lane.queue).lease_us
        return self._engine.time.latest_us() + lease_us

    @property
    def limited(self) -> Mapping[str, Handler]:
        """The handlers of tasks with limits."""
        return self._limited

    def _finished(self, ended: Ended, outcome: Outcome) -> Finished:
        settings = self._engine.catalog.settings(ended.job.lane.queue)
        if isinstance(ended.ending, Expired):
            ended = ended._replace(started_us=0)  # no handler was called
        attempt = None
        if settings.history != "off":
            attempt = attempt_of(ended, outcome=outcome.state, error=outcome.error)
        job = _counted(ended.job, ended) if outcome.state == "dead" else ended.job
        return Finished(ended.job, finish_of(job, outcome, attempt, settings))

    def _again(self, ended: Ended, again: RetryLater) -> Group:
        settings = self._engine.catalog.settings(ended.job.lane.queue)
        rows: tuple[Row, ...] = ()
        if settings.history != "off":
            attempt = attempt_of(ended, outcome=again.word, error=again.error)
            rows = (row_of(attempt, ended.job),)
        move = Move(
            ended.job,
            again.at_us,
            self._engine.ids.token(),
            bucket_of(again.at_us, settings.width_us),
            again.errors,
            again.crashes,
            again.alone,
            error=again.error,
            opts=_opts_after(ended, again),
        )
        return Group((move,), rows=rows)


_job_of, _ending_of = field(Ended, "job"), field(Ended, "ending")
_lane_of, _task_of, _opts_of = (field(Job, name) for name in ("lane", "task", "opts"))


def _opts_after(ended: Ended, again: RetryLater) -> bytes | None:
    """Note in a job's options that its attempt did not fail; None where it did, or runs on now."""
    if again.word not in PUT_BACK or again.at_us <= ended.ended_us:
        return None
    try:
        options = read_options(ended.job.opts)
    except StoreCorrupt:  # whatever runs it says so
        return None
    return options.changed(put_back=(again.word, again.at_us)).to_bytes()


def _queues_of(ended: Sequence[Ended]) -> set[str]:
    return {lane.queue for lane, _ in groupby(map(_lane_of, map(_job_of, ended)))}


def _counted(job: Job, ended: Ended) -> Job:
    """Count the attempt that made the job dead."""
    if isinstance(ended.ending, Crashed):
        return job._replace(crashes=job.crashes + 1)
    return job._replace(errors=job.errors + 1)
