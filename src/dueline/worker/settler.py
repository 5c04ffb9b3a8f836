"""Turns endings into verdicts and effects."""

import random
from collections.abc import Mapping, Sequence

from dueline.attempt import Crashed, Ended, Outcome
from dueline.handler import Handler
from dueline.history import attempt_row, died_row
from dueline.ids import derived
from dueline.job import Job, JobId
from dueline.lane import bucket_of
from dueline.policy import Again, Decision, Retry, dead_of_poison, decide
from dueline.queue import Queues
from dueline.recipes import results
from dueline.store import Commit, Drop, Extend, Group, Move, Row, Verdict
from dueline.worker.log import log_ending, log_poison

_DEFAULT_RETRY = Retry()


class Settler:
    """Decides what becomes of attempts, and writes it: verdict and effects as one."""

    def __init__(
        self, queues: Queues, handlers: Mapping[str, Handler], chance: random.Random
    ) -> None:
        """Take the engine, the handlers by task (for their retry policies), and randomness."""
        self._queues = queues
        self._handlers = handlers
        self._chance = chance

    def settle(self, ended: Sequence[Ended], started: Sequence[Job]) -> list[Job]:
        """Write the verdicts of ended attempts, and that some handlers were started.

        Everything goes in one call; a verdict and its effects happen together or not at all.

        Returns: the jobs whose claims were lost; nothing was recorded for them.
        """
        decided = [(one, self._decide(one)) for one in ended]
        groups = [self._group(one, decision) for one, decision in decided]
        groups += [Group((self._extend(job, is_started=True),)) for job in started]
        held = self._queues.store.together(groups)
        for (one, decision), sure in zip(decided, held, strict=False):
            log_ending(one, decision, is_lost=not sure)
        jobs = [one.job for one in ended] + list(started)
        return [job for job, sure in zip(jobs, held, strict=True) if not sure]

    def extend(self, jobs: Sequence[Job], running: set[JobId]) -> list[Job]:
        """Extend claims by their queues' leases; answer those that were lost."""
        verdicts = [self._extend(job, is_started=job.id in running) for job in jobs]
        held = self._queues.store.settle(verdicts)
        return [job for job, sure in zip(jobs, held, strict=True) if not sure]

    def bury(self, poison: Sequence[Job]) -> None:
        """Carry jobs to the dead that have taken too many processes with them."""
        now_us = self._queues.time.latest_us()
        groups = []
        for job in poison:
            outcome = dead_of_poison(job.crashes, now_us)
            groups.append(Group((self._queues.bury(job, outcome.error),)))
            log_poison(job, outcome)
        self._queues.store.together(groups)

    def tell_died(self, before: Sequence[Job]) -> None:
        """Write the history of attempts whose workers died, which only the next claimer can."""
        rows = [
            died_row(row, row_id=derived(row.id, row.fence))
            for row in before
            if self._queues.catalog.settings(row.lane.queue).history != "off"
        ]
        if rows:
            self._queues.store.append(rows)

    def _decide(self, ended: Ended) -> Decision:
        handler = self._handlers.get(ended.job.task)
        retry = handler.retry if handler else _DEFAULT_RETRY
        return decide(ended, retry, self._chance.random())

    def _extend(self, job: Job, *, is_started: bool) -> Extend:
        lease_us = self._queues.catalog.settings(job.lane.queue).lease_us
        return Extend(job, self._queues.time.latest_us() + lease_us, is_started)

    def _group(self, ended: Ended, decision: Decision) -> Group:
        job = ended.job
        settings = self._queues.catalog.settings(job.lane.queue)
        rows: tuple[Row, ...] = ()
        if settings.history != "off":
            word = decision.word if isinstance(decision, Again) else decision.state
            row_id = derived(job.id, job.fence)
            rows = (attempt_row(ended, outcome=word, error=decision.error, row_id=row_id),)
        commits: tuple[Commit, ...] = ()
        verdict: Verdict
        if isinstance(decision, Again):
            verdict = self._move(job, decision, settings.width_us)
        elif decision.state == "dead":
            verdict = self._queues.bury(_counted(job, ended), decision.error)
        else:
            verdict = Drop(job)
            if settings.keep_us:
                commits = (self._keep(job, decision, settings.keep_us),)
        return Group((verdict,), commits, rows=rows)

    def _keep(self, job: Job, outcome: Outcome, keep_us: int) -> Commit:
        return results.keep(job.id, outcome, version=self._queues.ids.token(), keep_us=keep_us)

    def _move(self, job: Job, again: Again, width_us: int) -> Move:
        return Move(
            job,
            again.at_us,
            self._queues.ids.token(),
            bucket_of(again.at_us, width_us),
            again.errors,
            again.crashes,
            again.alone,
            error=again.error,
        )


def _counted(job: Job, ended: Ended) -> Job:
    """Count the attempt that made the job dead."""
    if isinstance(ended.ending, Crashed):
        return job._replace(crashes=job.crashes + 1)
    return job._replace(errors=job.errors + 1)
