"""Decides what becomes of claimed jobs before they run. Hot path: the benchmark `default`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, repeat
from typing import NamedTuple

from dueline.core.attempt import Attempt, Ended, Expired, Outcome
from dueline.core.call_options import durable_place, is_awaited, is_past
from dueline.core.errors import StoreCorrupt
from dueline.core.job import Job, JobId
from dueline.core.queue_settings import QueueSettings
from dueline.core.retry import dead_of_poison, is_poison, lost, uncertain
from dueline.core.tuples import field, made
from dueline.jobs.history import attempt_of, died_as
from dueline.jobs.results import kept_us
from dueline.tasks.progress import Progress
from dueline.worker.assignment import Assignment
from dueline.worker.claimer import ClaimedJob


class EndedBeforeRun(NamedTuple):
    """A claimed job that does not run; attempt: its end in the history."""

    job: Job
    outcome: Outcome
    attempt: Attempt


class Triage(NamedTuple):
    """Claimed jobs, sorted.

    Attributes:
      decided: Their outcomes are stored in their rows.
      over: They end without running.
      died: Their last attempts, whose workers died, are to be recorded.
      fit: They run.
      deaths: Those whose last attempts ended with their workers, whatever becomes of them.
    """

    decided: list[Job]
    over: list[EndedBeforeRun]
    died: list[ClaimedJob]
    fit: list[ClaimedJob]
    deaths: list[ClaimedJob]

    @property
    def gone(self) -> list[Job]:
        """The jobs that do not run."""
        return [*self.decided, *(ended.job for ended in self.over)]


def triage(
    taken: Sequence[ClaimedJob],
    settings: Callable[[str], QueueSettings],
    now_us: int,
    open_in: Callable[[Sequence[Job]], Mapping[JobId, str]],
) -> Triage:
    """Sort claimed jobs.

    A stored outcome comes first (rule P5): such a job never runs again. Then whether its last
    attempt ended in a section that must not repeat (rule P14), whether an at-most-once queue's
    handler was already called (rule P7), whether the job is poison, and its expiry.

    Args:
        taken: The jobs.
        settings: Returns the settings of a queue.
        now_us: The current time.
        open_in: Returns the open sections of jobs whose workers died, as words.
    """
    jobs = list(map(_job_of, taken))
    once = _once(jobs, settings)
    if not (
        once
        or any(map(_before_of, taken))
        or any(any(map(read, jobs)) for read in (_outcome_of, _alone_of, _opts_of))
    ):
        return Triage([], [], [], list(taken), [])
    sorted_ = Triage([], [], [], [], [claimed for claimed in taken if claimed.before is not None])
    suspects = [job for job, before in taken if before is not None or job.alone]
    opened = open_in(suspects) if suspects else {}
    for claimed in taken:
        job, before = claimed
        if job.outcome:
            sorted_.decided.append(job)
            continue
        is_once = job.lane.queue in once
        over = _over(claimed, now_us, is_once=is_once, open_section=opened.get(job.id, ""))
        if over is not None:
            sorted_.over.append(over)
        else:
            sorted_.fit.append(claimed)
        if before is not None and (over is None or over.attempt.fence == job.fence):
            sorted_.died.append(claimed)
    return sorted_


def parted(
    taken: Sequence[ClaimedJob], settings: Callable[[str], QueueSettings]
) -> tuple[list[Job], list[Job]]:
    """Separate jobs that just run from those that are marked as started first.

    The latter are jobs whose last claim died, suspects, and all jobs of at-most-once queues.
    """
    jobs = list(map(_job_of, taken))
    once = _once(jobs, settings)
    if not (once or any(map(_before_of, taken)) or any(map(_alone_of, jobs))):
        return jobs, []
    plain: list[Job] = []
    careful: list[Job] = []
    for job, before in taken:
        is_careful = job.alone or before is not None or job.lane.queue in once
        (careful if is_careful else plain).append(job)
    return plain, careful


def assigned(
    jobs: Sequence[Job],
    settings: Callable[[str], QueueSettings],
    last: Mapping[JobId, Progress],
    given: Mapping[JobId, bytes],
    now_us: int = 0,
) -> list[Assignment]:
    """Make assignments of jobs.

    Args:
        jobs: The jobs.
        settings: Returns the settings of a queue.
        last: Progress that earlier attempts reported.
        given: First arguments of workflow steps.
        now_us: The monotonic clock.
    """
    each = {queue: settings(queue) for queue in queues_of(jobs)}
    keep = {queue: queue_settings.keep_us for queue, queue_settings in each.items()}
    firm = {queue: queue_settings.aging_us > 0 for queue, queue_settings in each.items()}
    queues = [job.lane.queue for job in jobs] if len(each) > 1 else [*each] * len(jobs)
    reported = map(last.get, map(_id_of, jobs)) if last else repeat(None)
    keep_us = map(keep.__getitem__, queues)
    kept: Iterable[bool] = map(bool, keep_us)
    if any(map(_opts_of, jobs)):  # a step's result is always kept
        kept = [
            kept_us(job, us) > 0 or is_awaited(job) for us, job in zip(keep_us, jobs, strict=True)
        ]
    return made(
        Assignment,
        zip(
            jobs,
            kept,
            map(_alone_of, jobs),
            reported,
            map(firm.__getitem__, queues),
            [given.get(job.id, b"") for job in jobs] if given else repeat(b""),
            repeat(()),
            repeat(now_us),
            repeat(0),
            strict=False,  # what repeats has no end
        ),
    )


# Read by C code: a Python function for each job would double the cost of this module.
_job_of, _before_of = field(ClaimedJob, "job"), field(ClaimedJob, "before")
_lane_of, _id_of, _opts_of, _alone_of, _outcome_of = (
    field(Job, name) for name in ("lane", "id", "opts", "alone", "outcome")
)


def queues_of(jobs: Iterable[Job]) -> set[str]:
    """Return the queues of jobs; jobs of one claim share lanes, so runs are grouped first."""
    return {lane.queue for lane, _ in groupby(map(_lane_of, jobs))}


def _once(jobs: Iterable[Job], settings: Callable[[str], QueueSettings]) -> set[str]:
    """Return those of the queues that deliver at most once."""
    return {queue for queue in queues_of(jobs) if settings(queue).is_once}


def _over(
    taken: ClaimedJob, now_us: int, *, is_once: bool, open_section: str
) -> EndedBeforeRun | None:
    """Return how a claimed job ends without running; None if it runs."""
    job, before = taken
    outcome: Outcome | None = None
    if durable_place(job) is not None:  # whatever ends it, its compensations run first
        return None
    if open_section:
        outcome = uncertain(open_section, now_us)
    elif is_once and job.crashes:
        # Counted, not read from the last claim: its worker may have died before it ended the job.
        outcome = lost(now_us)
    elif before is not None and is_poison(job.crashes):
        outcome = dead_of_poison(job.crashes, now_us)
    if outcome is not None and before is not None:  # the attempt in which the last worker died
        return EndedBeforeRun(job, outcome, died_as(before, outcome.state, outcome.error))
    if outcome is None:
        outcome = _unfit(job, now_us)
    if outcome is None:
        return None
    ended = Ended(job, Expired(), 0, now_us)
    return EndedBeforeRun(
        job, outcome, attempt_of(ended, outcome=outcome.state, error=outcome.error)
    )


def _unfit(job: Job, now_us: int) -> Outcome | None:
    """Return how a job ends because of its options; None if it runs."""
    try:
        return Outcome("expired", now_us) if is_past(job, now_us) else None
    except StoreCorrupt as error:
        return Outcome("dead", now_us, error=error.message)
