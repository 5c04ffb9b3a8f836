"""Options of single calls on Cassandra."""

import pytest

from tests.harness.cases.options_of_calls import (
    calls_have_options_of_their_own,
    steps_and_schedules_have_options_of_their_own,
)
from tests.harness.cases.worker_cancels import a_request_before_an_end_decides_what_it_is_called
from tests.harness.cases.worker_reports import reports_are_there_when_the_end_is
from tests.harness.cassandra_node import expect_node, keyspaces_on_a_node

expect_node()
pytestmark = pytest.mark.cassandra


def test_calls_have_options_of_their_own() -> None:
    # A12, C22, C23, T17, V3, V9
    with keyspaces_on_a_node(1) as keyspaces:
        calls_have_options_of_their_own(keyspaces.fresh())


def test_steps_and_schedules_have_options_of_their_own() -> None:
    # A12, C21
    with keyspaces_on_a_node(1) as keyspaces:
        steps_and_schedules_have_options_of_their_own(keyspaces.fresh())


@pytest.mark.long
def test_reports_are_there_when_the_end_is() -> None:
    # C18
    with keyspaces_on_a_node(1) as keyspaces:
        reports_are_there_when_the_end_is(keyspaces.fresh())


@pytest.mark.long
def test_a_request_before_an_end_decides_what_it_is_called() -> None:
    # C19
    with keyspaces_on_a_node(1) as keyspaces:
        a_request_before_an_end_decides_what_it_is_called(keyspaces.fresh())
