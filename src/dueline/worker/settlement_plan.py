"""Decides what becomes of ended attempts, and what is stored of it.

Pure: everything that a decision depends on was read before, and is passed in.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from dueline.core.attempt import (
    Attempt,
    Cancelled,
    Crashed,
    Ended,
    Expired,
    GivenBack,
    Outcome,
    Parked,
    Snoozed,
    Uncertain,
    misfit_of,
)
from dueline.core.call_options import THROTTLED, CallOptions
from dueline.core.job import Token
from dueline.core.lane import Lane, after_refusal, bucket_of, task_of, with_task
from dueline.core.queue_settings import QueueSettings
from dueline.core.retry import Decision, Retry, RetryLater, decide, with_cancel_request
from dueline.core.store import Move
from dueline.jobs import completion, decisions
from dueline.jobs.completion import Finished, finish_of
from dueline.jobs.history import attempt_of
from dueline.tasks.handler import Handler

_DEFAULT_RETRY = Retry()

PUT_BACK = ("snoozed", "given_back")
"""Endings after which a job waits without having failed."""


class Attempted(NamedTuple):
    """An ended attempt, with all that decides what becomes of its job.

    Attributes:
      options: Of the job's call; None if they cannot be read, which is reported when it runs.
      handler: Of the job's task; None if this process has none.
      is_cancelled: Whether the cancellation of the job was requested.
      chance: Random in [0, 1), for the jitter of a retry.
      token: The new token of the row, if the job stays.
    """

    ended: Ended
    settings: QueueSettings
    options: CallOptions | None
    handler: Handler | None
    is_cancelled: bool
    chance: float
    token: Token


class Planned(NamedTuple):
    """What becomes of an attempt, and what is stored of it.

    Attributes:
      attempt: Its row of the history; None if that is off.
      change: How the job ends, or the verdict by which it stays.
    """

    ended: Ended
    decision: Decision
    attempt: Attempt | None
    change: Finished | Move


def plan(attempts: Iterable[Attempted]) -> list[Planned]:
    """Decide what becomes of attempts; those that end their jobs come first."""
    over: list[Planned] = []
    again: list[Planned] = []
    for attempted in attempts:
        decision = _decided(attempted)
        if isinstance(decision, Outcome):
            over.append(_end(attempted, decision))
        else:
            again.append(_retry(attempted, decision))
    return over + again


def decision_of(planned: Planned) -> decisions.Decision:
    """Return what is stored of an attempt."""
    if isinstance(planned.change, Finished):
        return completion.decision_of(planned.change)
    attempt = None if planned.attempt is None else (planned.attempt, planned.ended.job)
    return decisions.Decision(planned.change, attempt=attempt)


def _decided(attempted: Attempted) -> Decision:
    ended, settings, options, handler, is_cancelled, chance, _ = attempted
    if options is not None and options.durable is not None:
        # Only a claim ends it: the function is notified, and its compensations run.
        is_cancelled = False
        if not ended.started_us and isinstance(ended.ending, Cancelled | Expired):
            ended = ended._replace(ending=GivenBack())
    retry = _DEFAULT_RETRY if handler is None else handler.retry
    if options is not None and options.terms is not None:
        retry = retry.with_terms(options.terms.retry)
    decision = decide(ended, retry, chance, is_once=settings.deliver == "at_most_once")
    if is_cancelled:
        decision = with_cancel_request(decision, ended.ended_us)
    expires_us = options.expires_us if options is not None else None
    if isinstance(decision, Outcome) or expires_us is None or decision.at_us <= expires_us:
        return decision
    # The worker that claims the job then ends it, and what waits for its end goes on.
    return replace(decision, at_us=max(expires_us, ended.ended_us))


def _end(attempted: Attempted, outcome: Outcome) -> Planned:
    ended, settings = attempted.ended, attempted.settings
    attempt = None
    if settings.history != "off":
        ran = ended._replace(started_us=0) if isinstance(ended.ending, Expired) else ended
        attempt = attempt_of(ran, outcome=outcome.state, error=outcome.error)
    job = ended.job
    if outcome.state == "dead" and isinstance(ended.ending, Crashed | Uncertain):
        job = job._replace(crashes=job.crashes + 1)
    elif outcome.state == "dead":
        job = job._replace(errors=job.errors + 1)
    finish = finish_of(job, outcome, attempt, settings)
    return Planned(ended, outcome, attempt, Finished(ended.job, finish))


def _retry(attempted: Attempted, decision: RetryLater) -> Planned:
    ended, settings, at_us = attempted.ended, attempted.settings, decision.at_us
    attempt = None
    is_noted = not isinstance(ended.ending, Parked) or settings.tells_all
    if settings.history != "off" and is_noted:
        attempt = attempt_of(ended, outcome=decision.word, error=decision.error, again_us=at_us)
    opts = _opts_after(attempted, decision)
    listing = bucket_of(at_us, settings.width_us)
    move = Move(ended.job, at_us, attempted.token, listing, decision.errors, decision.crashes,
                decision.alone, error=decision.error, opts=opts,
                to=_lane_after(attempted, listing))  # fmt: skip
    return Planned(ended, decision, attempt, move)


def _lane_after(attempted: Attempted, listing: int) -> Lane | None:
    """Return the lane to which the job of an attempt moves; None if it stays in its own.

    A durable function that is parked takes turns with new jobs in the lane of its task (rule D16),
    and does not go on behind a backlog. A job whose arguments do not fit waits in the lane that
    other versions of the task claim from (rule P13).
    """
    ended, handler = attempted.ended, attempted.handler
    job = ended.job
    if misfit_of(ended.ending) and handler is not None:
        waits = after_refusal(
            job.lane, job.task, job.codec, handler.arguments.signature,
            wait_us=attempted.settings.version_wait_us, now_us=ended.ended_us,
        )  # fmt: skip
        return waits._replace(bucket=listing)
    if not isinstance(ended.ending, Parked) or task_of(job.lane):
        return None
    return with_task(job.lane, job.task, job.codec)


def _opts_after(attempted: Attempted, decision: RetryLater) -> bytes | None:
    """Note in a job's options why it waits, if its attempt did not fail; None keeps them."""
    ending, options = attempted.ended.ending, attempted.options
    if isinstance(ending, Parked) and options is not None:
        return options.changed(durable=ending.place).to_bytes()
    if (
        options is None
        or decision.word not in PUT_BACK
        or decision.at_us <= attempted.ended.ended_us
    ):
        return None
    is_throttled = isinstance(ending, Snoozed) and ending.throttles
    word = THROTTLED if is_throttled else decision.word
    return options.changed(put_back=(word, decision.at_us)).to_bytes()
