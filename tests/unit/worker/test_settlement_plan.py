"""What becomes of an attempt, and what is stored of it: pure, from all that was read."""

from dataclasses import replace

import pytest

from dueline.core.attempt import (
    Cancelled,
    Crashed,
    Done,
    Ended,
    Ending,
    Expired,
    Failed,
    GivenBack,
    Outcome,
    Snoozed,
)
from dueline.core.call_options import THROTTLED, CallOptions, CallTerms, read_options
from dueline.core.clock import SECOND_US
from dueline.core.job import Token
from dueline.core.queue_settings import QueueSettings
from dueline.core.retry import Retry, RetryLater
from dueline.core.store import Move
from dueline.jobs.completion import Finished
from dueline.jobs.decisions import group_of
from dueline.tasks.handler import Handler
from dueline.worker.settlement_plan import Attempted, Planned, decision_of, plan
from tests.harness.calls import WIDTH_US, row_of
from tests.harness.clocks import NOW_US

END_US = NOW_US + SECOND_US
WAIT_US = 60 * SECOND_US
FAILED = Failed("ValueError", "no", "Traceback …", retry=True)
TOKEN = Token(b"n" * 16)

DEFAULTS = QueueSettings()
ONCE = QueueSettings(deliver="at_most_once")
NO_HISTORY = QueueSettings(history="off")

PLAIN = CallOptions()
EXPIRES = CallOptions(expires_us=END_US + 5 * SECOND_US)
ONE_ATTEMPT = CallOptions(terms=CallTerms(retry=Retry(attempts=1).terms()))
UNREADABLE = None

Becomes = tuple[str, int]
"""The state of the job or the word of its attempt, and how long after the attempt's end."""


def handler(retry: Retry) -> Handler:
    return Handler(lambda _: None, name="tests.task", retry=retry, timeout_us=None)


def attempted(
    ending: Ending,
    options: CallOptions | None = PLAIN,
    *,
    is_cancelled: bool = False,
    settings: QueueSettings = DEFAULTS,
) -> Attempted:
    """Return an attempt of a job whose task waits a minute before each retry."""
    opts = b"?" if options is None else options.to_bytes()
    job = row_of(1)._replace(opts=opts, token=Token(b"c" * 16), worker="worker", fence=1)
    return Attempted(
        Ended(job, ending, NOW_US, END_US),
        settings,
        options,
        handler(Retry.fixed(60, attempts=3)),
        is_cancelled,
        chance=0.5,
        token=TOKEN,
    )


def planned(
    ending: Ending,
    options: CallOptions | None = PLAIN,
    *,
    is_cancelled: bool = False,
    settings: QueueSettings = DEFAULTS,
) -> Planned:
    (settlement,) = plan([attempted(ending, options, is_cancelled=is_cancelled, settings=settings)])
    return settlement


def word_of(settlement: Planned) -> Becomes:
    if isinstance(settlement.decision, Outcome):
        return settlement.decision.state, settlement.decision.ended_us - END_US
    return settlement.decision.word, settlement.decision.at_us - END_US


@pytest.mark.parametrize(
    ("ending", "plain", "expires", "one_attempt", "cancelled", "once"),
    [
        (Done(b"7"), ("done", 0), ("done", 0), ("done", 0), ("done", 0), ("done", 0)),
        (FAILED, ("retried", WAIT_US), ("retried", 5 * SECOND_US), ("dead", 0),
         ("cancelled", 0), ("dead", 0)),
        (FAILED._replace(retry=False), ("dead", 0), ("dead", 0), ("dead", 0),
         ("cancelled", 0), ("dead", 0)),
        (FAILED._replace(attempts=1), ("dead", 0), ("dead", 0), ("dead", 0),
         ("cancelled", 0), ("dead", 0)),
        (FAILED._replace(retry_after_us=9), ("retried", 9), ("retried", 9), ("dead", 0),
         ("cancelled", 0), ("dead", 0)),
        (Snoozed(WAIT_US), ("snoozed", WAIT_US), ("snoozed", 5 * SECOND_US), ("snoozed", WAIT_US),
         ("cancelled", 0), ("dead", 0)),
        (Cancelled("why"), ("cancelled", 0), ("cancelled", 0), ("cancelled", 0),
         ("cancelled", 0), ("cancelled", 0)),
        (Crashed("signal 9"), ("crashed", 0), ("crashed", 0), ("crashed", 0),
         ("cancelled", 0), ("lost", 0)),
        (Expired(), ("expired", 0), ("expired", 0), ("expired", 0),
         ("cancelled", 0), ("expired", 0)),
        (GivenBack(), ("given_back", -SECOND_US), ("given_back", -SECOND_US),
         ("given_back", -SECOND_US), ("cancelled", 0), ("given_back", -SECOND_US)),
        (GivenBack(WAIT_US), ("given_back", WAIT_US), ("given_back", 5 * SECOND_US),
         ("given_back", WAIT_US), ("cancelled", 0), ("given_back", WAIT_US)),
    ],
)  # fmt: skip
def test_what_becomes_of_each_ending(
    ending: Ending,
    *,
    plain: Becomes,
    expires: Becomes,
    one_attempt: Becomes,
    cancelled: Becomes,
    once: Becomes,
) -> None:
    assert word_of(planned(ending)) == plain
    assert word_of(planned(ending, UNREADABLE)) == plain
    assert word_of(planned(ending, EXPIRES)) == expires
    assert word_of(planned(ending, ONE_ATTEMPT)) == one_attempt
    assert word_of(planned(ending, is_cancelled=True)) == cancelled
    assert word_of(planned(ending, settings=ONCE)) == once


def test_a_job_that_expired_before_it_runs_again_is_due_at_the_end_of_its_attempt() -> None:
    settlement = planned(FAILED, CallOptions(expires_us=END_US - 1))
    assert word_of(settlement) == ("retried", 0)


def test_a_task_without_a_handler_has_the_default_policy() -> None:
    (settlement,) = plan([attempted(FAILED)._replace(handler=None)])
    assert word_of(settlement) == ("retried", SECOND_US)  # half of two seconds


def test_a_job_that_stays_moves_and_is_free() -> None:
    change = planned(FAILED).change
    assert isinstance(change, Move)
    at_us = END_US + WAIT_US
    assert (change.at_us, change.token, change.listing) == (at_us, TOKEN, at_us // WIDTH_US)
    assert (change.errors, change.crashes, change.alone) == (1, 0, False)
    assert (change.error, change.to, change.opts) == ("ValueError: no", None, None)


@pytest.mark.parametrize(
    ("ending", "word"),
    [
        (Snoozed(WAIT_US), "snoozed"),
        (Snoozed(WAIT_US, throttles=True), THROTTLED),
        (GivenBack(WAIT_US), "given_back"),
        (GivenBack(), None),  # at once
        (FAILED, None),
        (Crashed(""), None),
    ],
)
def test_the_options_note_that_an_attempt_did_not_fail(ending: Ending, word: str | None) -> None:
    options = CallOptions(tags=("import",))
    change = planned(ending, options).change
    assert isinstance(change, Move)
    if word is None:
        assert change.opts is None
    else:
        noted = options.changed(put_back=(word, END_US + WAIT_US))
        assert read_options(change.opts or b"") == noted


def test_options_that_cannot_be_read_are_left_as_they_are() -> None:
    change = planned(Snoozed(WAIT_US), UNREADABLE).change
    assert isinstance(change, Move)
    assert change.opts is None


@pytest.mark.parametrize(
    ("ending", "errors", "crashes"),
    [(FAILED._replace(retry=False), 3, 2), (Crashed("signal 9"), 2, 3), (Cancelled(""), 2, 2)],
)
def test_an_end_counts_the_attempt_that_made_a_job_dead(
    ending: Ending, errors: int, crashes: int
) -> None:
    attempt = attempted(ending)
    job = attempt.ended.job._replace(errors=2, crashes=2)
    (settlement,) = plan([attempt._replace(ended=attempt.ended._replace(job=job))])
    assert isinstance(settlement.change, Finished)
    assert settlement.change.job == job  # by whose token the end is stored
    assert (settlement.change.finish.errors, settlement.change.finish.crashes) == (errors, crashes)
    assert settlement.change.finish.outcome == settlement.decision


@pytest.mark.parametrize("ending", [Done(b"7"), FAILED, FAILED._replace(retry=False)])
def test_the_history_records_an_attempt_unless_it_is_off(ending: Ending) -> None:
    settlement = planned(ending)
    assert settlement.attempt is not None
    assert (settlement.attempt.outcome, settlement.attempt.error) == (
        word_of(settlement)[0],
        settlement.decision.error,
    )
    assert settlement.attempt.started_us == NOW_US
    assert settlement.attempt.again_us == (
        END_US + WAIT_US if isinstance(settlement.change, Move) else 0
    )
    off = planned(ending, settings=NO_HISTORY)
    assert off == replace_attempt(settlement)


def replace_attempt(settlement: Planned) -> Planned:
    """Return a plan without the history's row."""
    change = settlement.change
    if isinstance(change, Finished):
        change = Finished(change.job, replace(change.finish, attempt=None))
    return settlement._replace(attempt=None, change=change)


def test_no_handler_was_called_for_a_job_that_expired() -> None:
    attempt = planned(Expired()).attempt
    assert attempt is not None
    assert (attempt.started_us, attempt.ended_us) == (0, END_US)


def test_a_job_that_stays_has_one_group_with_its_row_of_the_history() -> None:
    group = group_of([decision_of(planned(FAILED))])
    assert [type(verdict) for verdict in group.verdicts] == [Move]
    assert [row.at_us for row in group.rows] == [END_US]
    assert group_of([decision_of(planned(FAILED, settings=NO_HISTORY))]).rows == []


def test_ends_come_first() -> None:
    kinds: list[Ending] = [FAILED, Done(b"1"), Snoozed(1), Cancelled("")]
    settlements = plan(map(attempted, kinds))
    assert [settlement.ended.ending for settlement in settlements] == [
        kinds[place] for place in (1, 3, 0, 2)
    ]
    assert [isinstance(settlement.decision, RetryLater) for settlement in settlements] == [
        False,
        False,
        True,
        True,
    ]
