"""What a worker logs about its jobs."""

import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from dueline.core.attempt import Ended, Failed, Outcome
from dueline.core.call_options import is_past
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Job
from dueline.core.logging import log
from dueline.core.retry import Decision, RetryLater
from dueline.core.text import indented, one_line

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
