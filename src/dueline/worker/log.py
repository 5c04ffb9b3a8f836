"""What a worker reports about its jobs: to the log, to hooks and to its metrics."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Final

from dueline.core.attempt import Done, Ended, Failed, Outcome, misfit_of
from dueline.core.call_options import is_past
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Job
from dueline.core.logging import log
from dueline.core.retry import Decision, RetryLater
from dueline.core.text import indented, one_line
from dueline.tasks.hooks import Hooks
from dueline.worker.context_controls import RecentClaims
from dueline.worker.hook_events import settled_event
from dueline.worker.settlement_plan import Planned
from dueline.worker.tally import Tally

LINES_MAX: Final = 20
"""More jobs that were done and stored together are logged as one line, unless at level DEBUG."""

TASKS_SHOWN: Final = 5


def log_together(done: Sequence[Ended]) -> bool:
    """Log many jobs that were done as one line; return whether they were."""
    if len(done) <= LINES_MAX or log.isEnabledFor(logging.DEBUG):
        return False
    if log.isEnabledFor(logging.INFO):
        counts = Counter(attempt.job.task for attempt in done).most_common()
        shown = [f"{one_line(task)} {count}" for task, count in counts[:TASKS_SHOWN]]
        more = ["..."] * (len(counts) > TASKS_SHOWN)
        log.info("jobs done: %d (%s)", len(done), ", ".join(shown + more))
    return True


def log_ending(ended: Ended, decision: Decision, *, is_lost: bool) -> None:
    """Log the end of an attempt as one record; failures with their traceback."""
    if decision.error == "" and not is_lost and not log.isEnabledFor(logging.INFO):
        return
    job, ending = ended.job, ended.ending
    about: dict[str, object] = {
        "job": job.id.hex(), "task": job.task, "attempt": job.errors + 1, "queue": job.lane.queue,
    }  # fmt: skip
    where = f"job={job.id.hex()} task={one_line(job.task)} attempt={job.errors + 1}"
    took_ms = (ended.ended_us - ended.started_us) / 1000 if ended.started_us else 0.0
    if is_lost:
        text = "%s lost its claim after %.1f ms; its result was discarded"
        log.warning(text, where, took_ms, extra=about)
        return
    if isinstance(decision, RetryLater):
        wait_s = max(0, decision.at_us - ended.ended_us) / 1e6
        next_text = "expires in" if _expires_first(job, decision) else "again in"
        text = f"{where} {decision.word}, {next_text} {wait_s:.1f} s"
        if misfit_of(ending):
            text = f"{where} waits for a worker that can take its arguments"
        about["outcome"] = decision.word
    else:
        text = f"{where} {decision.state} after {took_ms:.1f} ms"
        about["outcome"] = decision.state
    level = logging.INFO if decision.error == "" else logging.WARNING
    if not isinstance(decision, RetryLater) and decision.state in ("dead", "lost"):
        level = logging.ERROR
    # A handler's error may contain anything, even text that looks like a record of this log.
    if isinstance(ending, Failed) and ending.traceback:
        text = f"{text}\n{indented(ending.traceback.rstrip())}"
    elif decision.error:
        text = f"{text}: {one_line(decision.error)}"
    log.log(level, "%s", text, extra=about)


def _expires_first(job: Job, decision: RetryLater) -> bool:
    """Return whether a job has expired when it would run again."""
    with suppress(StoreCorrupt):  # reported when the job runs
        return is_past(job, decision.at_us)
    return False


def log_over(job: Job, outcome: Outcome) -> None:
    """Log that a job ended without running: poison and losses are errors."""
    level = logging.ERROR if outcome.state in ("dead", "lost") else logging.INFO
    log.log(
        level,
        "job=%s task=%s %s: %s",
        job.id.hex(),
        one_line(job.task),
        outcome.state,
        one_line(outcome.error) or "-",
    )


class SettlementReport:
    """Logs what became of attempts, counts it for metrics, and calls hooks."""

    def __init__(self, hooks: Hooks, tally: Tally | None) -> None:
        self._hooks = hooks
        self._tally = tally
        self._lost = RecentClaims()

    def done(self, done: Sequence[Ended]) -> None:
        """Report attempts that succeeded; many of them are one line of the log."""
        if self._tally is not None:
            self._tally.ended(zip(done, repeat("done"), strict=False))
        is_logged = log_together(done)
        if not is_logged or self._hooks.has("done"):
            for ended in done:
                self._notify(ended, Outcome("done", ended.ended_us), is_logged=is_logged)

    def planned(self, answers: Iterable[tuple[Planned, bool]]) -> None:
        """Report what became of attempts, each with whether its claim held."""
        done: list[Ended] = []
        for (ended, decision, *_), is_held in answers:
            if not is_held:
                log_ending(ended, decision, is_lost=True)
                self.lost(ended.job)
            elif isinstance(ended.ending, Done):
                done.append(ended)
            else:
                self._count(ended, decision)
                self._notify(ended, decision)
        self.done(done)

    def not_run(self, planned: Planned) -> None:
        """Report a job that ended without running, which is logged before."""
        self._count(planned.ended, planned.decision)
        self._notify(planned.ended, planned.decision, is_logged=True)

    def lost(self, job: Job) -> None:
        """Count a lost claim and call hooks, once for each claim."""
        if job.claim() not in self._lost:
            self._lost.add([job.claim()])
            if self._tally is not None:
                self._tally.lost(job)
            if self._hooks.has("lease_lost"):
                self._hooks.call("lease_lost", settled_event(job, ""))

    def _count(self, ended: Ended, decision: Decision) -> None:
        if self._tally is not None:
            word = decision.state if isinstance(decision, Outcome) else decision.word
            self._tally.ended([(ended, word)])

    def _notify(self, ended: Ended, decision: Decision, *, is_logged: bool = False) -> None:
        if not is_logged:
            log_ending(ended, decision, is_lost=False)
        job, error, ended_us = ended.job, decision.error, ended.ended_us
        if isinstance(decision, Outcome):
            if self._hooks.has(decision.state):
                self._hooks.call(decision.state, settled_event(job, error, ended_us=ended_us))
        elif error and not misfit_of(ended.ending) and self._hooks.has("retry"):
            event = settled_event(job, error, decision.at_us, ended_us=ended_us)
            self._hooks.call("retry", event)
