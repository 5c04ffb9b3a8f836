"""Ends of jobs: what an end is, and what it leaves behind.

An end is a decision (`decisions.py`): the outcome, which is written into the row under the claim's
token, decides who finished. It carries a result, a dead-letter row and a history row, under derived
ids, and is closed by the `Drop` of the row. The handler never runs again (rule P5).
Hot path: the benchmark `default`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from dueline.batches import ends as batch_ends
from dueline.batches.ends import DONE, End
from dueline.core.attempt import Attempt, Done, Ended, Outcome
from dueline.core.batch_ids import has_batched, is_batched
from dueline.core.call_options import Rule, order_of, read_options
from dueline.core.codec import decode, encode
from dueline.core.errors import StoreCorrupt
from dueline.core.ids import derived
from dueline.core.job import UNCLAIMED_TOKEN, Job, State, Token
from dueline.core.lane import bucket_of, dead_queue
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Commit, Drop, Group, Move, Store
from dueline.core.tuples import field, made
from dueline.jobs import called_jobs, decisions, dependents, results, unique_records, webhooks
from dueline.jobs.decisions import Cell, Decision
from dueline.jobs.history import AttemptAndJob, happened, rows_of_ended
from dueline.jobs.results import Kept
from dueline.workflows import records

OUTCOME_LEASE_US = 30_000_000
"""How long the finisher has for the effects before another process may repeat them."""


@dataclass(frozen=True, slots=True)
class Finish:
    """All that the effects of an ending depend on, besides what the job was enqueued with.

    Attributes:
      attempt: Its history row, None for none.
      keep_us: How long the result is kept.
      bucket: Bucket of the dead-letter row.
      errors, crashes: With the last attempt counted.
      fence, claimed_us: Of the claim that ended; a process that repeats the effects has another.
      successor: The row of a job that this ending inserts, and that takes over its unique key.
      skips: The dead job lets the others of its order key go on, as its queue said.
    """

    outcome: Outcome
    attempt: Attempt | None
    keep_us: int
    bucket: int
    errors: int
    crashes: int
    fence: int
    claimed_us: int
    successor: Job | None = None
    skips: bool = False


class Finished(NamedTuple):
    """A job that ends, and how."""

    job: Job
    finish: Finish


def finish_of(
    job: Job, outcome: Outcome, attempt: Attempt | None, settings: QueueSettings, note: str = ""
) -> Finish:
    """Return what the effects depend on; `job` with its last attempt counted.

    note: who ends it by hand, for its history.
    """
    if attempt is None and (settings.tells_all or note):  # it ends without having been claimed
        attempt = happened(job, outcome.state, outcome.ended_us, error=outcome.error or note)
    return Finish(
        outcome,
        attempt if settings.history != "off" else None,
        results.kept_us(job, settings.keep_us),
        bucket_of(outcome.ended_us, settings.width_us),
        job.errors,
        job.crashes,
        job.fence,
        job.claimed_us,
        skips=outcome.state == "dead" and _is_skipped(job, settings),
    )


def _is_skipped(job: Job, settings: QueueSettings) -> bool:
    """Return whether the queue lets others of a job's order key go on; False if the call says."""
    order = order_of(job)
    return order is not None and order.skips is None and settings.dead_in_order == "skip"


def finish(store: Store, ends: Sequence[Finished]) -> list[bool]:
    """End jobs, each by itself; return for each whether its verdict held, as `settle` does."""
    return decisions.settle(store, list(map(decision_of, ends)))


def stored(job: Job) -> Finished:
    """Return how a row with an outcome ended."""
    return Finished(job, decode(job.outcome, Finish))


def complete(store: Store, ends: Sequence[Finished]) -> None:
    """Repeat the effects of stored outcomes, then drop their rows."""
    decisions.complete_rows(store, list(map(decision_of, ends)))


def decision_of(finished: Finished) -> Decision:
    """Return the decision that ends a job; of a row with an outcome, the one that ended it."""
    job, end = finished
    attempt = None if end.attempt is None else (end.attempt, job)
    cell = partial(_cell_of, job, end)
    decision = Decision(
        Drop(job), _effects(job, end), cell, attempt, _kept_together(job, end), _batched(job, end)
    )
    if not job.opts:
        return decision
    if end.successor is None:
        return decision._replace(frees=frees_of(job), is_awaited=True)
    rule = _rule_of(end.successor)
    # The successor takes over the key, once: a repeat finds another version.
    takes = () if rule is None else (unique_records.take(end.successor, rule, expect=job.id),)
    return decision._replace(takes=takes, is_awaited=True)


def _cell_of(job: Job, end: Finish) -> Cell:
    """Return the write of an outcome, with a token by which each repeat finds its own (rule U5)."""
    outcome = job.outcome or encode(end)
    token = job.token if job.outcome else Token(derived(job.token + outcome, 0))
    at_us = max(job.at_us, end.outcome.ended_us + OUTCOME_LEASE_US)
    move = Move(job, at_us, token, end.bucket, end.errors, end.crashes,
                outcome=outcome, error=end.outcome.error)  # fmt: skip
    return Cell(move, Drop(job._replace(token=token, outcome=outcome)))


def _batched(job: Job, end: Finish) -> End | None:
    """Return how a job of a batch ended; None for other jobs."""
    if not is_batched(job.id):
        return None
    return End(job.id, job.hop, end.outcome.state, end.outcome.ended_us)


def _kept_together(job: Job, end: Finish) -> Kept | None:
    """Return the result of a job whose record others may share."""
    if job.opts or end.outcome.state != "done" or not end.keep_us:
        return None
    return Kept(job, end.outcome.ended_us, end.outcome.value.encode(), end.keep_us)


def _effects(job: Job, end: Finish) -> Group:
    """Return what an ending leaves behind, next to its history row and a result that is shared.

    It is the same for every repeat.
    """
    commits: tuple[Commit, ...] = ()
    added = () if end.successor is None else unique_records.inserted(end.successor)
    if end.outcome.state == "dead":
        added = (*added, _dead_row(job, end))
    elif end.keep_us and (job.opts or end.outcome.state != "done"):
        commits = (results.keep(job.id, end.outcome, keep_us=end.keep_us),)
    if job.opts:  # of a workflow (W2), a call (D3), awaited (J3), or with a webhook (rule T3)
        commits = (*commits, *records.record(job, end.outcome))
        commits = (*commits, *called_jobs.record(job, end.outcome))
        commits = (*commits, *dependents.record(job, end.outcome))
        added = (*added, *webhooks.deliveries(job, end.outcome))
    return Group(commits=commits, jobs=added)


def successes(
    done: Sequence[Ended],
    settings: Mapping[str, QueueSettings],
    noted: Sequence[AttemptAndJob] = (),
) -> Group:
    """Return one group of successful jobs, for stores where a group is a transaction.

    The effects are those of `decision_of`, at less cost. If the group is refused, nothing was
    stored: end each job separately then.

    Args:
        done: The successful attempts.
        settings: Settings of each queue among them.
        noted: Other attempts, whose history rows are part of the group.
    """
    recorded: list[Ended] = []
    commits: list[Commit] = []
    delivered: list[Job] = []
    for queue, same in _by_queue(done, settings):
        if settings[queue].history != "off":
            recorded += same
        for keep_us, ended in _by_keeping(same, settings[queue].keep_us):
            jobs, endings, _, ended_us = zip(*ended, strict=True)
            values = list(map(_value_of, endings))
            commits += results.keep_done(jobs, ended_us, values, keep_us=keep_us)
    if any(map(_opts_of, map(_job_of, done))):
        steps = [
            (attempt.job, attempt.ended_us, _value(attempt)) for attempt in done if attempt.job.opts
        ]
        commits += records.record_done(steps)
        for job, at_us, value in steps:
            outcome = Outcome("done", at_us, value=value)
            commits += [*called_jobs.record(job, outcome), *dependents.record(job, outcome)]
            delivered += webhooks.deliveries(job, outcome)
    if has_batched(map(_id_of, map(_job_of, done))):
        commits += batch_ends.commits_of(
            End(attempt.job.id, attempt.job.hop, DONE, attempt.ended_us) for attempt in done
        )
    drops = made(Drop, [(attempt.job,) for attempt in done])
    return Group(drops, commits, delivered, rows_of_ended(recorded, noted))


_job_of, _value_of = field(Ended, "job"), field(Done, "value")
_opts_of, _id_of = field(Job, "opts"), field(Job, "id")


def _by_queue(
    done: Sequence[Ended], queues: Collection[str]
) -> Iterable[tuple[str, Sequence[Ended]]]:
    """Group attempts by their queues."""
    if len(queues) == 1:
        return zip(queues, (done,), strict=True)
    groups: dict[str, list[Ended]] = {}
    for attempt in done:
        groups.setdefault(attempt.job.lane.queue, []).append(attempt)
    return groups.items()


def _by_keeping(done: Sequence[Ended], keep_us: int) -> Iterable[tuple[int, Sequence[Ended]]]:
    """Group attempts of a queue by how long their results are kept, if they are."""
    if not any(map(_opts_of, map(_job_of, done))):
        return [(keep_us, done)] if keep_us else []
    groups: dict[int, list[Ended]] = {}
    for attempt in done:
        groups.setdefault(results.kept_us(attempt.job, keep_us), []).append(attempt)
    groups.pop(0, None)
    return groups.items()


def _value(ended: Ended) -> str:
    assert isinstance(ended.ending, Done), "only successes are ended together"
    return ended.ending.value.decode()


def frees_of(job: Job) -> Sequence[Commit]:
    """Return the write that releases the unique key of a job that ended, if this very job holds it.

    A key that is left behind is stale, and the next call for it notices.
    """
    rule = _rule_of(job)
    return () if rule is None or rule.within_us else (unique_records.release(job, rule),)


def _rule_of(job: Job) -> Rule | None:
    if not job.opts:
        return None
    try:
        return read_options(job.opts).unique
    except StoreCorrupt:
        return None


def _dead_row(job: Job, end: Finish) -> Job:
    """Return the dead-letter row of a job: in the reserved queue, at the time of its death."""
    lane = job.lane._replace(queue=dead_queue(job.lane.queue), bucket=end.bucket)
    opts = job.opts
    if end.skips and (order := order_of(job)) is not None:
        opts = read_options(opts).changed(order=order._replace(skips=True)).to_bytes()
    return job._replace(
        lane=lane,
        opts=opts,
        pos_us=end.outcome.ended_us,
        hop=job.hop + 1,
        at_us=end.outcome.ended_us,
        fence=end.fence,
        token=UNCLAIMED_TOKEN,
        worker="",
        claimed_us=end.claimed_us,
        errors=end.errors,
        crashes=end.crashes,
        alone=False,
        state=State.DEAD,
        outcome=b"",
        error=end.outcome.epitaph(),
    )
