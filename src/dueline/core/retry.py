"""Retry policies, and the decision after each attempt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, Self

from dueline.core.attempt import (
    ERROR_CHARACTERS_MAX,
    Cancelled,
    Crashed,
    Done,
    Each,
    Ended,
    Ending,
    Expired,
    Failed,
    GivenBack,
    Outcome,
    Parked,
    Settled,
    Snoozed,
    Uncertain,
    epitaph_of,
)
from dueline.core.clock import DAY_US, SECOND_US, SPAN_US_MAX
from dueline.core.constraints import check_constraints, check_value, constraint, integer
from dueline.core.errors import BadInput
from dueline.core.job import Job
from dueline.core.text import storable
from dueline.core.user_code import raise_interrupt

CRASHES_MAX = 3
"""Number of crashed claims after which a job counts as poison."""

ATTEMPTS_MAX = 100
_ATTEMPTS = 8
_BASE_S = 2.0
_CAP_S = 3600.0

WAIT_US_MAX = 3660 * DAY_US
"""Maximum wait: ten years, as for due times. Stores keep 64-bit timestamps."""


_FAMILIAR: Final = {
    **dict.fromkeys(("max_retries", "retries"), "Use attempts=, one more than the retries."),
    **dict.fromkeys(("max_attempts", "tries", "times"), "Use attempts=."),
    **dict.fromkeys(("delay", "countdown", "interval"), "Use Retry.fixed(60), or delays=[60]."),
    **dict.fromkeys(("backoff", "min_backoff", "factor"), "Use base=, in seconds."),
    **dict.fromkeys(("max_delay", "max_backoff", "backoff_max"), "Use cap=, in seconds."),
    **dict.fromkeys(("exceptions", "autoretry_for", "retry_on"), "Use on=(ConnectionError,)."),
}
"""Options of other queues, and what to write."""

_Seconds = Annotated[
    float,
    constraint(
        "a number of seconds, from 0 to a million days",
        "Use 0 or more, as in 30.",
        ge=0,
        le=SPAN_US_MAX / SECOND_US,
    ),
]


_Share = Annotated[
    float, constraint("a number from 0 to 1", "Use 0 for none, 1 for all.", ge=0, le=1)
]


class RetryTerms(NamedTuple):
    """The attempts and waits of a policy, as they are stored with a call."""

    attempts: int
    base: float
    cap: float
    delays: tuple[float, ...]
    jitter: float


@dataclass(frozen=True, slots=True)
class Retry:
    """How failed attempts of a job are retried, such as `Retry(attempts=5, base=10)`.

    The n-th retry waits a random duration of at most `min(cap, base * 2 ** (n - 1))` seconds
    (full jitter: aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter). With `delays`,
    it waits the n-th of them, or the last one: `Retry(delays=[10, 30, 60])`.

    Attributes:
        attempts: Number of attempts, 1 to 100: one more than the retries. Then the job becomes a
            dead-letter job. By default 8, or one more than there are `delays`.
        base: Upper bound of the first wait in seconds; it doubles with each failure.
        cap: Largest upper bound of a wait, in seconds.
        on: Exceptions that are retried; other exceptions dead-letter the job at once.
        unless: Exceptions of `on` that are not retried.
        delays: Waits in seconds or as timedeltas, instead of `base` and `cap`.
        jitter: Random share of each wait, 0 to 1: with 0.2, a wait is 80 to 100 % of its full
            duration. By default 1, or 0 with `delays`.
        per_error: Policies for some exceptions; the first class that fits decides, and its policy
            replaces this one. Attempts count all failures of the job, whatever raised them.

    Raises:
        BadInput: A value is out of range, or `on` or `unless` is not a tuple of exceptions.
    """

    attempts: Annotated[int, integer(1, ATTEMPTS_MAX)] = None  # type: ignore[assignment]  # see below
    base: _Seconds = _BASE_S
    cap: _Seconds = _CAP_S
    on: tuple[type[BaseException], ...] = (Exception,)
    unless: tuple[type[BaseException], ...] = ()
    delays: Sequence[float | timedelta] = ()
    jitter: _Share = None  # type: ignore[assignment]  # see below
    per_error: Mapping[type[BaseException], "Retry"] = field(default=None, hash=False)  # type: ignore[arg-type]  # see below

    if not TYPE_CHECKING:  # for mypy, such an argument does not exist

        def __new__(cls, *_: object, **given: object) -> Self:
            """Name what to write instead of an option of another queue."""
            for name in given.keys() - cls.__dataclass_fields__.keys():
                word = _FAMILIAR.get(name, "")
                raise BadInput(
                    f"`Retry` has no option `{name}`.",
                    hint=word or f"Its options are {', '.join(cls.__dataclass_fields__)}.",
                )
            return object.__new__(cls)

    def __post_init__(self) -> None:
        """Check the values, and set the defaults that depend on others."""
        kinds: tuple[object, ...] = (self.on, self.unless)
        if not all(isinstance(errors, tuple) and all(map(_is_error, errors)) for errors in kinds):
            raise BadInput(
                "`on` and `unless` must be tuples of exception classes.",
                hint="Use on=(ConnectionError,).",
            )
        object.__setattr__(self, "delays", _read_delays(self.delays))
        if self.delays and (self.base, self.cap) != (_BASE_S, _CAP_S):
            raise BadInput(
                "`delays` and `base` or `cap` exclude each other.", hint="Pass the delays alone."
            )
        if self.attempts is None:
            attempts = len(self.delays) + 1 if self.delays else _ATTEMPTS
            object.__setattr__(self, "attempts", attempts)
        if self.jitter is None:
            object.__setattr__(self, "jitter", 0.0 if self.delays else 1.0)
        if self.per_error is None:
            object.__setattr__(self, "per_error", {})
        check_constraints(self)
        _check_policies(self.per_error)

    @classmethod
    def fixed(
        cls,
        delay: float | timedelta,
        *,
        attempts: int = _ATTEMPTS,
        jitter: float = 0.0,
        on: tuple[type[BaseException], ...] = (Exception,),
        unless: tuple[type[BaseException], ...] = (),
    ) -> Self:
        """Return a policy whose waits are all equal, such as `Retry.fixed(60, attempts=5)`.

        Args:
            delay: Every wait, a timedelta or seconds.
            attempts: Number of attempts, one more than the retries.
            jitter: Random share of each wait, 0 to 1.
            on: Exceptions that are retried.
            unless: Exceptions of `on` that are not retried.
        """
        return cls(attempts, delays=[delay], jitter=jitter, on=on, unless=unless)

    def case_of(self, error: BaseException) -> int:
        """Return which policy of `per_error` holds for an error, from 1; 0 for this policy."""
        try:
            fitting = (n for n, kind in enumerate(self.per_error, 1) if isinstance(error, kind))
            return next(fitting, 0)
        except BaseException as raised:  # noqa: BLE001  (see `contain`)
            raise_interrupt(raised)
            return 0

    def of_case(self, case: int) -> "Retry":
        """Return the policy that `case_of` found; this one for an unknown number."""
        return dict(enumerate(self.per_error.values(), 1)).get(case, self)

    def terms(self) -> RetryTerms:
        """Return the attempts and waits, for a call whose task says which errors are retried.

        Raises: BadInput: the policy has other values than that.
        """
        if self.unless or self.per_error or self.on != (Exception,):
            raise BadInput(
                "The `retry` of a call has attempts and waits only: exceptions are not stored.",
                hint="Set `on`, `unless` and `per_error` at the task.",
            )
        assert isinstance(self.delays, tuple)
        return RetryTerms(self.attempts, self.base, self.cap, self.delays, self.jitter)

    def with_terms(self, terms: RetryTerms | None) -> "Retry":
        """Return the policy with the attempts and waits of a call."""
        return self if terms is None else replace(self, **terms._asdict())

    def wants(self, error: BaseException) -> bool:
        """Return whether this error is retried; also if its class raises when it is asked."""
        policy = self.of_case(self.case_of(error)) if self.per_error else self
        try:
            return isinstance(error, policy.on) and not isinstance(error, policy.unless)
        except BaseException as raised:  # noqa: BLE001  (see `contain`)
            raise_interrupt(raised)
            return True

    def wait_us(self, errors: int, chance: float) -> int:
        """Return the wait after the n-th failure. chance: random in [0, 1)."""
        if self.delays:
            full_s = self.delays[min(errors, len(self.delays)) - 1]
            assert isinstance(full_s, float)
        else:
            full_s = min(self.cap, self.base * 2.0 ** (errors - 1))
        return round(full_s * (1 - self.jitter + self.jitter * chance) * SECOND_US)


def _read_delays(delays: object) -> tuple[float, ...]:
    """Return delays in seconds."""
    if isinstance(delays, str) or not isinstance(delays, Sequence):
        raise BadInput(
            f"`delays` must be a list of waits (got {delays!r:.80}).",
            hint="Use delays=[10, 30, 60], or Retry.fixed(60).",
        )
    seconds = [delay.total_seconds() if isinstance(delay, timedelta) else delay for delay in delays]
    for second in seconds:
        check_value(second, _Seconds, "delays")
    return tuple(map(float, seconds))


def _check_policies(policies: object) -> None:
    """Raise BadInput if this is not a mapping of exceptions to policies without `per_error`."""
    if not isinstance(policies, Mapping) or not all(
        _is_error(kind) and isinstance(policy, Retry) and not policy.per_error
        for kind, policy in policies.items()
    ):
        raise BadInput(
            "`per_error` must map exception classes to policies that have no `per_error`.",
            hint="Use per_error={ConnectionError: Retry.fixed(60)}.",
        )


@dataclass(frozen=True, slots=True)
class RetryLater:
    """The job stays and is next due at `at_us`. word: the attempt's outcome in the history."""

    at_us: int
    errors: int
    crashes: int
    alone: bool
    error: str
    word: str


Decision = Outcome | RetryLater


def decide(  # noqa: C901, PLR0912  (one case for each kind of ending)
    ended: Ended, retry: Retry, chance: float, *, is_once: bool = False
) -> Decision:
    """Return the outcome of a job after an attempt, or when it runs again.

    Args:
      ended: the attempt. retry: its task's policy. chance: random in [0, 1), for the jitter.
      is_once: whether its queue delivers at most once.
    """
    job, ending, now_us = ended.job, ended.ending, ended.ended_us
    if is_once and (outcome := _ended_once(ending, now_us)):
        return outcome
    match ending:
        case Done(value):
            return Outcome("done", now_us, value=value.decode())
        case Failed():
            errors = 1 if ending.is_fresh else job.errors + 1
            retry = retry.of_case(ending.case) if ending.case else retry
            if not ending.retry or errors >= (ending.attempts or retry.attempts):
                return _dead(ending, now_us)
            wait_us = ending.retry_after_us
            if wait_us is None:
                wait_us = retry.wait_us(errors, chance)
            at_us = now_us + min(max(wait_us, 0), WAIT_US_MAX)
            error = _error_of(ending)
            # An error shows that the job does not kill its process: it need not run alone.
            return RetryLater(at_us, errors, job.crashes, alone=False, error=error, word="retried")
        case Cancelled(reason):
            return Outcome("cancelled", now_us, error=_cut(reason))
        case Expired():
            return Outcome("expired", now_us)
        case Snoozed(after_us):
            return _as_it_was(job, _later(now_us, after_us), "snoozed")
        case Parked(at_us, _, errors, crashes, word, error):
            return RetryLater(at_us, errors, crashes, alone=False, error=_cut(error), word=word)
        case GivenBack(after_us, misfit):
            at_us = _later(now_us, after_us) if after_us else _own_place(job, now_us)
            waits = _as_it_was(job, at_us, "given_back")
            return replace(waits, error=_cut(misfit)) if misfit else waits
        case Crashed(detail):
            crashes = job.crashes + 1
            if is_poison(crashes):
                return dead_of_poison(crashes, now_us, detail)
            return RetryLater(
                now_us, job.errors, crashes, alone=True, error=_cut(detail), word="crashed"
            )
        case Uncertain(detail):
            return uncertain(detail, now_us)
        case Settled() | Each():
            raise AssertionError("settled attempts and batches are not decided here")


def _ended_once(ending: Ending, now_us: int) -> Outcome | None:
    """Return the outcome of a called handler that never runs again; None if it was not called."""
    match ending:
        case Failed():
            return _dead(ending, now_us)
        case Snoozed():
            error = "The handler snoozed, but the queue delivers at most once."
            return Outcome("dead", now_us, error=error)
        case Crashed(detail):
            return lost(now_us, detail)
    return None


WORKER_DIED: Final = "The worker died, or lost its lease."
"""Error of an attempt that only the next claim ends."""


def lost(now_us: int, detail: str = WORKER_DIED) -> Outcome:
    """Return the outcome of an at-most-once job whose worker died in the handler."""
    return Outcome("lost", now_us, error=_cut(f"{detail} It may have run."))


def _dead(ending: Failed, now_us: int) -> Outcome:
    error, traceback = epitaph_of(_error_of(ending), ending.traceback, ending.message)
    return Outcome("dead", now_us, error=error, traceback=traceback)


def _error_of(ending: Failed) -> str:
    text = f"{ending.error_type}: {ending.message}" if ending.message else ending.error_type
    return _cut(text)


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def _later(now_us: int, wait_us: int) -> int:
    return now_us + min(max(wait_us, 0), WAIT_US_MAX)


def _as_it_was(job: Job, at_us: int, word: str) -> RetryLater:
    return RetryLater(at_us, job.errors, job.crashes, alone=job.alone, error=job.error, word=word)


def _own_place(job: Job, now_us: int) -> int:
    """Return the original position of a released job, so that later jobs do not overtake it."""
    return now_us if job.errors or job.crashes else min(job.pos_us, now_us)


POISON: Final = "Poison: "
"""Start of the error of a job that is dead since its workers died."""


def is_poison(crashes: int) -> bool:
    """Return whether a job crashed too many processes to run again (rule A1)."""
    return crashes >= CRASHES_MAX


def dead_of_poison(crashes: int, now_us: int, detail: str = "") -> Outcome:
    """Return the outcome of a poison job."""
    return Outcome("dead", now_us, error=_cut(f"{POISON}{crashes} workers died on it. {detail}"))


UNCERTAIN: Final = "Uncertain: "
"""Start of the error of a job that is dead since nobody knows how far a section of it came."""


def uncertain(detail: str, now_us: int) -> Outcome:
    """Return the outcome of a job whose attempt ended in a section that must not repeat."""
    return Outcome("dead", now_us, error=_cut(f"{UNCERTAIN}{detail}"))


def is_uncertain(error: str) -> bool:
    """Return whether the error of a dead-letter job says that a section of it did not end."""
    return error.startswith(UNCERTAIN)


def with_cancel_request(decision: Decision, now_us: int) -> Decision:
    """Return the decision for a job whose cancellation was requested before it (rule P11).

    A success stays one, and what is uncertain is left to an operator. Otherwise the job is
    cancelled, whatever else it would become.
    """
    if isinstance(decision, Outcome) and (
        decision.state in ("done", "cancelled") or is_uncertain(decision.error)
    ):
        return decision
    text = f"Cancellation was requested. {decision.error}".rstrip()
    return Outcome("cancelled", now_us, error=_cut(text))


def _cut(text: str) -> str:
    return storable(text[:ERROR_CHARACTERS_MAX])
