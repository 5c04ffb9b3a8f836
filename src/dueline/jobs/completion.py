"""Ends jobs for good: verdicts and effects.

The effects of an ending are its result, its dead-letter row and its history row. If `together` is
a transaction, they and the `Drop` are one. Otherwise the outcome comes first: it is written into
the row under the claim's token, and decides who finished. Then the effects follow from the stored
outcome, under derived ids, and then the `Drop`. A process that finds a row with an outcome repeats
the effects, which adds nothing, and drops the row. The handler never runs again (rule P5).
Hot path: the benchmark `default`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from dueline.core.attempt import Attempt, Done, Ended, Outcome
from dueline.core.call_options import Rule, read_options
from dueline.core.codec import decode, encode
from dueline.core.errors import StoreCorrupt, StoreUnavailable
from dueline.core.ids import derived
from dueline.core.job import UNCLAIMED_TOKEN, Job, State, Token
from dueline.core.lane import bucket_of, dead_queue
from dueline.core.queue_settings import QueueSettings
from dueline.core.store import Commit, Drop, Group, Move, Row, Store
from dueline.core.tuples import field, made
from dueline.jobs import results, unique_records
from dueline.jobs.history import AttemptAndJob, happened, row_of, rows_of_ended
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


class Finished(NamedTuple):
    """A job that ends, and how."""

    job: Job
    finish: Finish


def finish_of(
    job: Job, outcome: Outcome, attempt: Attempt | None, settings: QueueSettings
) -> Finish:
    """Return what the effects depend on; `job` with its last attempt counted."""
    if attempt is None and settings.tells_all:  # it ends without having been claimed
        attempt = happened(job, outcome.state, outcome.ended_us, error=outcome.error)
    return Finish(
        outcome,
        attempt if settings.history != "off" else None,
        results.kept_us(job, settings.keep_us),
        bucket_of(outcome.ended_us, settings.width_us),
        job.errors,
        job.crashes,
        job.fence,
        job.claimed_us,
    )


def finish(store: Store, ends: Sequence[Finished], others: Sequence[Group]) -> list[bool]:
    """End jobs, and apply other groups with them.

    Args:
        store: The store.
        ends: The jobs that end.
        others: Groups of one verdict each, with rows to append before it.

    Returns:
        For each end, then for each other group, whether its verdict held. If not, nothing of it was
        recorded, except for rows of other groups on stores without transactions: readers
        deduplicate those by their ids.
    """
    if store.transactional:
        held = list(store.together([*map(end_of, ends), *others]))
        _release(store, [one for one, sure in zip(ends, held, strict=False) if sure])
        return held
    decision = decide(store, ends, others)
    complete_decided(store, decision.decided)
    return list(decision.held)


class Decision(NamedTuple):
    """What `decide` stored.

    Attributes:
      held: As `finish` returns it.
      decided: The ends whose effects are still to be written, with their rows as they are now.
    """

    held: Sequence[bool]
    decided: Sequence[Finished]


def decide(
    store: Store, ends: Sequence[Finished], others: Sequence[Group], *, keeps_rows: bool = False
) -> Decision:
    """Store outcomes, and apply other groups, without the effects of the outcomes.

    For stores without transactions; the arguments are those of `finish`. keeps_rows: the rows of
    endings without effects are not deleted at once, either.
    """
    rows = [row for group in others for row in group.rows]
    if rows:
        store.append(rows)
    outright = [
        not keeps_rows and end.attempt is None and not any(effects(job, end)) for job, end in ends
    ]
    verdicts = [
        Drop(job) if is_outright else _decide(job, end)
        for (job, end), is_outright in zip(ends, outright, strict=True)
    ]
    more = [verdict for group in others for verdict in group.verdicts]
    held = list(store.settle([*verdicts, *more]))
    decided = [
        Finished(verdict.job._replace(token=verdict.token, outcome=verdict.outcome), end)
        for verdict, sure, (_, end) in zip(verdicts, held, ends, strict=False)
        if sure and isinstance(verdict, Move)
    ]
    if any(outright):
        gone = zip(ends, outright, held, strict=False)
        with suppress(StoreUnavailable):
            _release(store, [one for one, is_outright, sure in gone if is_outright and sure])
    return Decision(held, decided)


def complete_decided(store: Store, ends: Sequence[Finished]) -> None:
    """Write the effects of outcomes; if that fails, the next claimer of the rows repeats it."""
    if ends:
        with suppress(StoreUnavailable):
            complete(store, ends)


def _decide(job: Job, end: Finish) -> Move:
    """Return the write of an outcome, with a token by which each repeat finds its own (rule U5)."""
    outcome = encode(end)
    token = Token(derived(job.token + outcome, 0))
    at_us = max(job.at_us, end.outcome.ended_us + OUTCOME_LEASE_US)
    return Move(job, at_us, token, end.bucket, end.errors, end.crashes,
                outcome=outcome, error=end.outcome.error)  # fmt: skip


def stored(job: Job) -> Finished:
    """Return how a row with an outcome ended."""
    return Finished(job, decode(job.outcome, Finish))


def complete(store: Store, ends: Sequence[Finished]) -> None:
    """Repeat the effects of stored outcomes, then drop their rows."""
    # First, so that a reader of a job's end also finds its successor.
    for job, end in ends:
        for commit in _takes(job, end):
            store.commit(commit.partition, commit.writes)
    groups = [_lasting(job, end) for job, end in ends]
    group = joined(groups)._replace(rows=_history_of(ends))
    if any(group):
        store.together([group])
    store.settle([Drop(job) for job, _ in ends])
    _release(store, ends)


def _history_of(ends: Sequence[Finished]) -> list[Row]:
    """Return the history rows of endings.

    Attempts that succeeded share rows. An end that another process decided has a row of its own,
    since its row shows another claim (rule F3).
    """
    done: list[Ended] = []
    rows: list[Row] = []
    for job, end in ends:
        attempt = end.attempt
        if attempt is None:
            continue
        is_own = (attempt.worker, attempt.fence) == (job.worker, job.fence)
        if end.outcome.state == "done" and is_own and attempt.worker:
            ending = Done(end.outcome.value.encode())
            done.append(Ended(job, ending, attempt.started_us, attempt.ended_us))
        else:
            rows.append(row_of(attempt, job))
    return rows + rows_of_ended(done)


def effects(job: Job, end: Finish) -> Group:
    """Return what an ending leaves behind; the same for every repeat."""
    rows = () if end.attempt is None else (row_of(end.attempt, job),)
    return _lasting(job, end)._replace(rows=rows)


def _lasting(job: Job, end: Finish) -> Group:
    """Return what an ending leaves behind, without its history row."""
    commits: tuple[Commit, ...] = ()
    added: tuple[Job, ...] = () if end.successor is None else (end.successor,)
    if end.outcome.state == "dead":
        added = (*added, _dead_row(job, end))
    elif end.keep_us:
        commits = (results.keep(job.id, end.outcome, keep_us=end.keep_us),)
    if job.opts:  # it may be a workflow step (rule W2)
        commits = (*commits, *records.record(job, end.outcome))
    return Group(commits=commits, jobs=added)


def end_of(finished: Finished, *, recorded: bool = False) -> Group:
    """Return the group that ends a job, for stores where a group is a transaction.

    Args:
        finished: The job and how it ends.
        recorded: Whether its history row is written beside the group.
    """
    group = _lasting(*finished) if recorded else effects(*finished)
    return group._replace(
        verdicts=(Drop(finished.job),), commits=(*group.commits, *_takes(*finished))
    )


def successes(
    done: Sequence[Ended],
    settings: Mapping[str, QueueSettings],
    noted: Sequence[AttemptAndJob] = (),
) -> Group:
    """Return one group of successful jobs, for stores where a group is a transaction.

    The effects are those that `finish` makes of each, at less cost. If the group is refused,
    nothing was stored: end each job separately then.

    Args:
        done: The successful attempts.
        settings: Settings of each queue among them.
        noted: Other attempts, whose history rows are part of the group.
    """
    recorded: list[Ended] = []
    commits: list[Commit] = []
    for queue, same in _by_queue(done, settings):
        if settings[queue].history != "off":
            recorded += same
        for keep_us, some in _by_keeping(same, settings[queue].keep_us):
            jobs, endings, _, ended_us = zip(*some, strict=True)
            values = list(map(_value_of, endings))
            commits += results.keep_done(jobs, ended_us, values, keep_us=keep_us)
    if any(map(_opts_of, map(_job_of, done))):
        steps = [
            (attempt.job, attempt.ended_us, _value(attempt)) for attempt in done if attempt.job.opts
        ]
        commits += records.record_done(steps)
    drops = made(Drop, [(attempt.job,) for attempt in done])
    return Group(drops, commits, rows=rows_of_ended(recorded, noted))


_job_of, _value_of = field(Ended, "job"), field(Done, "value")
_opts_of = field(Job, "opts")


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


def finish_together(
    store: Store,
    done: Sequence[Ended],
    settings: Mapping[str, QueueSettings],
    ends: Sequence[Finished],
    others: Sequence[Group],
    *,
    noted: Sequence[AttemptAndJob] = (),
) -> bool:
    """End successful jobs, end others, and apply groups, in one transaction.

    Args:
        store: The store.
        done: The successful attempts.
        settings: Settings of each queue among them.
        ends: Other jobs that end.
        others: Groups to apply.
        noted: The attempts of `others`; they share history rows with those that end.

    Returns:
        Whether all their claims held; otherwise nothing was recorded.
    """
    ended: list[Group] = []
    attempts = list(noted)
    for end in ends:
        attempt = end.finish.attempt
        if attempt is None or not attempt.worker:
            ended.append(end_of(end))
        else:
            attempts.append((attempt, end.job))
            ended.append(end_of(end, recorded=True))
    group = joined([successes(done, settings, attempts), *ended, *others])
    if not store.together([group])[0]:
        return False
    keyed = [job for job in (*map(_job_of, done), *(job for job, _ in ends)) if job.opts]
    if keyed:
        release(store, keyed)
    return True


def joined(groups: Sequence[Group]) -> Group:
    """Join groups to one, which holds or fails as a whole."""
    if len(groups) == 1:
        return groups[0]._replace(commits=results.merged(groups[0].commits))
    return Group(
        [verdict for group in groups for verdict in group.verdicts],
        results.merged([commit for group in groups for commit in group.commits]),
        [job for group in groups for job in group.jobs],
        [row for group in groups for row in group.rows],
    )


def _value(ended: Ended) -> str:
    assert isinstance(ended.ending, Done), "only successes are ended together"
    return ended.ending.value.decode()


def _takes(job: Job, end: Finish) -> Sequence[Commit]:
    """Give the job's unique key to its successor, once: a repeat finds another version."""
    if end.successor is None or (rule := _rule_of(end.successor)) is None:
        return ()
    return (unique_records.take(end.successor, rule, expect=job.id),)


def _release(store: Store, ends: Sequence[Finished]) -> None:
    release(store, [job for job, end in ends if job.opts and end.successor is None])


def release(store: Store, jobs: Sequence[Job]) -> None:
    """Release the unique keys of jobs that ended.

    This is not part of their endings, since it must not stop one. A key is released if this very
    job holds it. A key that is left behind is stale, and the next call for it notices.
    """
    groups = []
    for job in jobs:
        rule = _rule_of(job)
        if rule is not None and not rule.within_us:
            groups.append(Group(commits=(unique_records.release(job, rule),)))
    if groups:
        with suppress(StoreUnavailable):
            store.together(groups)


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
    return job._replace(
        lane=lane,
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
