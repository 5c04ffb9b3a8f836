"""What becomes of a job whose attempt is over (C4, H11)."""

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueline.core.attempt import (
    ERROR_CHARACTERS_MAX,
    Cancelled,
    Crashed,
    Done,
    Ended,
    Ending,
    Failed,
    GivenBack,
    Outcome,
    Settled,
    Snoozed,
)
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import BadInput
from dueline.core.job import Job
from dueline.core.retry import (
    CRASHES_MAX,
    Decision,
    Retry,
    RetryLater,
    dead_of_poison,
    decide,
    is_poison,
)
from tests.harness.calls import row_of
from tests.harness.clocks import NOW_US

BORN_US = NOW_US - 60 * SECOND_US
RETRY = Retry()


DEAD = Outcome("dead", NOW_US, error="ValueError: no", traceback="Traceback …")


def failed(message: str = "no", *, retry: bool = True, after_us: int | None = None) -> Failed:
    """Make a failure."""
    return Failed("ValueError", message, "Traceback …", retry, after_us)


def decided(
    ending: Ending, job: Job | None = None, *, retry: Retry = RETRY, chance: float = 0.5
) -> Decision:
    """Decide on an attempt that ends now."""
    ended = Ended(job or row_of(at_us=BORN_US), ending, NOW_US - 5, NOW_US)
    return decide(ended, retry, chance)


def again(decision: Decision) -> RetryLater:
    """Make sure that the job goes on."""
    assert isinstance(decision, RetryLater)
    return decision


def test_what_is_settled_is_not_decided_again() -> None:
    with pytest.raises(AssertionError):
        decided(Settled())


def test_a_handler_that_returns_is_done_with_its_value() -> None:
    assert decided(Done(b"[1]")) == Outcome("done", NOW_US, value="[1]")


def test_a_handler_that_cancels_ends_its_job_with_the_reason() -> None:
    # C19
    assert decided(Cancelled("not wanted")) == Outcome("cancelled", NOW_US, error="not wanted")


# --- retry -----------------------------------------------------------------------------------


def test_a_failure_counts_and_waits_and_is_told() -> None:
    # R2
    found = again(decided(failed(), retry=Retry(base=2), chance=0.5))
    assert found == RetryLater(
        NOW_US + SECOND_US, 1, 0, alone=False, error="ValueError: no", word="retried"
    )


def test_an_error_without_a_message_is_told_by_its_type() -> None:
    assert again(decided(failed(""))).error == "ValueError"


def test_the_last_attempt_is_the_one_the_policy_names() -> None:
    # R2, R3
    job = row_of(at_us=BORN_US)
    policy = Retry(attempts=3)
    words = [decided(failed(), job._replace(errors=errors), retry=policy) for errors in range(4)]
    assert [isinstance(one, RetryLater) for one in words] == [True, True, False, False]
    assert words[2] == DEAD


def test_a_policy_can_be_a_key() -> None:
    per_error: dict[type[BaseException], Retry] = {OSError: Retry.fixed(60)}
    assert {Retry(): 1, Retry(per_error=per_error): 2}[Retry()] == 1


def test_one_attempt_means_no_retry() -> None:
    assert decided(failed(), retry=Retry(attempts=1)) == DEAD


def test_an_error_the_policy_does_not_want_is_dead_at_once() -> None:
    assert decided(failed(retry=False)) == DEAD


def test_an_error_that_says_when_to_come_again_is_obeyed_beyond_the_cap() -> None:
    # R2: retry-after from the exception
    found = again(decided(failed(after_us=DAY_US), retry=Retry(cap=1), chance=0.999))
    assert (found.at_us, found.errors) == (NOW_US + DAY_US, 1)
    assert again(decided(failed(after_us=0))).at_us == NOW_US


def test_retry_after_spends_an_attempt() -> None:
    assert isinstance(decided(failed(after_us=5), retry=Retry(attempts=1)), Outcome)


@given(
    st.integers(1, 100),
    st.floats(0, 1e6, allow_nan=False),
    st.floats(0, 1e6, allow_nan=False),
    st.floats(0, 1, exclude_max=True),
)
def test_full_jitter_waits_between_nothing_and_the_bound(
    errors: int, base: float, cap: float, chance: float
) -> None:
    # R2
    waits_us = Retry(base=base, cap=cap).wait_us(errors, chance)
    bound_s = min(cap, base * 2 ** (errors - 1))
    assert 0 <= waits_us <= bound_s * SECOND_US + 1
    assert waits_us == pytest.approx(chance * bound_s * SECOND_US, abs=1)


def test_the_bound_doubles_with_each_failure_up_to_the_cap() -> None:
    # R2: 2 s, then twice that each time, at most an hour
    bounds = [RETRY.wait_us(errors, 1.0) / SECOND_US for errors in range(1, 14)]
    assert bounds[:5] == [2, 4, 8, 16, 32]
    assert bounds[10:] == [2048, 3600, 3600]


def test_the_default_is_eight_attempts() -> None:
    assert (RETRY.attempts, RETRY.base, RETRY.cap) == (8, 2.0, 3600.0)


class TooMany(OSError):
    pass


@pytest.mark.parametrize(
    ("policy", "error", "wanted"),
    [
        (Retry(), ValueError(), True),
        (Retry(), SystemExit(), False),
        (Retry(on=(OSError,)), ValueError(), False),
        (Retry(on=(OSError,)), TooMany(), True),
        (Retry(on=(OSError,), unless=(TooMany,)), TooMany(), False),
        (Retry(on=(OSError,), unless=(TooMany,)), OSError(), True),
        (Retry(unless=(ValueError,)), UnicodeError(), False),
        (Retry(on=(BaseException,)), SystemExit(), True),
        (Retry(on=()), ValueError(), False),
    ],
)
def test_on_and_unless_go_by_the_class_of_the_error(
    policy: Retry, error: BaseException, *, wanted: bool
) -> None:
    # R2: per exception
    assert policy.wants(error) is wanted


# --- delays, jitter, policies of errors ------------------------------------------------------


def waits_s(policy: Retry, chance: float = 0.5) -> list[float]:
    """Return the waits of a policy between its attempts."""
    return [policy.wait_us(errors, chance) / SECOND_US for errors in range(1, policy.attempts)]


def test_listed_delays_are_waited_exactly_and_give_one_more_attempt() -> None:
    policy = Retry(delays=[10, timedelta(seconds=30), 60])
    assert policy.attempts == 4
    assert waits_s(policy) == [10, 30, 60]
    assert waits_s(policy, 0.0) == [10, 30, 60]


def test_the_last_delay_repeats_up_to_the_attempts() -> None:
    assert waits_s(Retry(attempts=5, delays=[1, 2])) == [1, 2, 2, 2]
    assert waits_s(Retry.fixed(60, attempts=5)) == [60] * 4
    assert Retry.fixed(timedelta(minutes=1)).attempts == 8


@given(st.floats(0, 1), st.floats(0, 1, exclude_max=True))
def test_jitter_is_the_random_share_of_a_wait(jitter: float, chance: float) -> None:
    expected_s = 60 * (1 - jitter + jitter * chance)
    for policy in (Retry.fixed(60, jitter=jitter), Retry(base=60, jitter=jitter)):
        wait_s = policy.wait_us(1, chance) / SECOND_US
        assert wait_s == pytest.approx(expected_s, abs=1e-6)
        assert 60 * (1 - jitter) - 1e-6 <= wait_s <= 60


def test_no_jitter_waits_the_full_exponential() -> None:
    assert waits_s(Retry(attempts=5, base=2, cap=10, jitter=0), 0.01) == [2, 4, 8, 10]


def test_an_error_with_a_policy_of_its_own_follows_it() -> None:
    policy = Retry(
        attempts=3,
        per_error={TooMany: Retry.fixed(60, attempts=5), OSError: Retry(attempts=1)},
        on=(ValueError,),
    )
    assert [policy.case_of(error) for error in (ValueError(), TooMany(), OSError())] == [0, 1, 2]
    assert policy.wants(TooMany())
    assert policy.wants(ValueError())
    assert not policy.wants(KeyError())
    job = row_of(at_us=BORN_US)._replace(errors=3)
    limited = failed()._replace(case=1)
    assert again(decided(limited, job, retry=policy)).at_us == NOW_US + 60 * SECOND_US
    assert decided(failed(), job, retry=policy) == DEAD
    assert decided(limited, job._replace(errors=4), retry=policy) == DEAD
    assert decided(failed()._replace(case=2), retry=policy) == DEAD


@pytest.mark.parametrize(
    "terms",
    [
        {"delays": "10"},
        {"delays": 10},
        {"delays": [10, -1]},
        {"delays": [math.nan]},
        {"delays": ["10"]},
        {"delays": [10], "base": 5},
        {"delays": [10], "cap": 5},
        {"jitter": 1.1},
        {"jitter": -0.1},
        {"jitter": "full"},
        {"per_error": [OSError]},
        {"per_error": {"OSError": Retry()}},
        {"per_error": {OSError: 5}},
        {"per_error": {OSError: Retry(per_error={TooMany: Retry()})}},
    ],
)
def test_other_waits_out_of_range_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(BadInput) as raised:
        Retry(**terms)
    assert raised.value.hint


@pytest.mark.parametrize("attempts", [0, -1, 101])
def test_attempts_out_of_range_are_refused(attempts: int) -> None:
    with pytest.raises(BadInput, match=rf"`attempts` must be .*got {attempts}\)"):
        Retry(attempts=attempts)


@pytest.mark.parametrize("seconds", [-1, -0.001, math.nan, math.inf])
def test_waits_that_are_no_number_of_seconds_are_refused(seconds: float) -> None:
    with pytest.raises(BadInput, match=r"`(base|cap)` must be"):
        Retry(base=seconds)
    with pytest.raises(BadInput, match=r"`(base|cap)` must be"):
        Retry(cap=seconds)


@pytest.mark.parametrize(
    "ending",
    [failed(after_us=10**30), Snoozed(10**30), GivenBack(10**30), failed()],
    ids=["retry after", "snooze", "given back", "jitter"],
)
def test_no_wait_is_longer_than_ten_years(ending: Ending) -> None:
    # a store keeps instants as 64-bit integers: what is out of range would stop the worker
    endless = Retry(attempts=100, base=8e10, cap=8e10)
    found = again(decided(ending, retry=endless, chance=0.99))
    assert found.at_us == NOW_US + 3660 * DAY_US


def test_a_wait_below_nothing_is_none() -> None:
    assert again(decided(Snoozed(-5))).at_us == NOW_US


# --- what spends no attempt ------------------------------------------------------------------


def worn() -> Job:
    """Make a row that has been through something."""
    return row_of(at_us=BORN_US)._replace(errors=2, crashes=1, alone=True, error="OSError: x")


def test_a_snooze_spends_nothing() -> None:
    # the job stays the same, only later
    found = again(decided(Snoozed(7 * SECOND_US), worn()))
    assert found == RetryLater(
        NOW_US + 7 * SECOND_US, 2, 1, alone=True, error="OSError: x", word="snoozed"
    )


def test_a_job_that_was_given_back_keeps_its_place() -> None:
    # R11: at once, no attempt spent, and not overtaken by what came after it
    job = row_of(at_us=BORN_US)
    found = again(decided(GivenBack(), job._replace(at_us=NOW_US + 30)))
    assert found == RetryLater(BORN_US, 0, 0, alone=False, error="", word="given_back")


def test_a_job_given_back_before_its_own_time_is_due_now() -> None:
    assert again(decided(GivenBack(), row_of(at_us=NOW_US + 9))).at_us == NOW_US


def test_a_job_that_failed_before_goes_back_to_the_present() -> None:
    assert again(decided(GivenBack(), worn())) == RetryLater(
        NOW_US, 2, 1, alone=True, error="OSError: x", word="given_back"
    )


def test_a_job_given_back_for_a_while_waits() -> None:
    assert again(decided(GivenBack(30), row_of(at_us=BORN_US))).at_us == NOW_US + 30


# --- crashes ---------------------------------------------------------------------------------


def test_a_crash_counts_and_makes_a_suspect() -> None:
    # R4
    found = again(decided(Crashed("signal 9"), row_of(at_us=BORN_US)._replace(errors=2)))
    assert found == RetryLater(NOW_US, 2, 1, alone=True, error="signal 9", word="crashed")


def test_an_error_clears_a_suspect_and_keeps_the_count() -> None:
    found = again(decided(failed(), worn()))
    assert (found.alone, found.crashes, found.errors) == (False, 1, 3)


def test_a_job_that_crashed_as_often_as_allowed_is_poison() -> None:
    # R4
    assert [is_poison(crashes) for crashes in range(5)] == [False, False, False, True, True]
    last = row_of(at_us=BORN_US)._replace(crashes=CRASHES_MAX - 1)
    assert decided(Crashed("signal 9"), last) == Outcome(
        "dead", NOW_US, error="Poison: 3 workers died on it. signal 9"
    )
    assert decided(Crashed("signal 9"), last) == dead_of_poison(3, NOW_US, "signal 9")


def test_no_error_is_longer_than_its_cell() -> None:
    long = "x" * 10_000
    for ending in (failed(long), Cancelled(long), Crashed(long)):
        assert len(decided(ending).error) == ERROR_CHARACTERS_MAX
    dead = decided(failed(long, retry=False))
    assert isinstance(dead, Outcome)
    assert 3000 < len(dead.error) < len(dead.epitaph()) < ERROR_CHARACTERS_MAX
