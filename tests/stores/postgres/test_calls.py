"""Options of single calls on PostgreSQL."""

import pytest

from tests.harness.cases.options_of_calls import (
    calls_have_options_of_their_own,
    steps_and_schedules_have_options_of_their_own,
)
from tests.harness.cases.worker_cancels import a_request_before_an_end_decides_what_it_is_called
from tests.harness.cases.worker_reports import (
    reports_are_there_when_a_transaction_is_committed,
    reports_are_there_when_the_end_is,
)

pytestmark = pytest.mark.postgres


def test_calls_have_options_of_their_own(url: str) -> None:
    # A12, C22, C23, T17, V3, V9
    calls_have_options_of_their_own(url)


def test_steps_and_schedules_have_options_of_their_own(url: str) -> None:
    # A12, C21
    steps_and_schedules_have_options_of_their_own(url)


def test_reports_are_there_when_the_end_is(url: str) -> None:
    # C18
    reports_are_there_when_the_end_is(url)


def test_reports_are_there_when_a_transaction_is_committed(url: str) -> None:
    # C18
    reports_are_there_when_a_transaction_is_committed(url)


def test_a_request_before_an_end_decides_what_it_is_called(url: str) -> None:
    # C19
    a_request_before_an_end_decides_what_it_is_called(url)
