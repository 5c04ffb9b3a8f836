"""Rules of durable functions, broken."""

from typing import NoReturn

import pytest

from dueline.core.attempt import DurablePlace
from dueline.core.store import Group
from dueline.durable import activation, ends, restarts
from dueline.durable.activation import Activation
from dueline.durable.log import Log
from dueline.durable.suspension import Suspended
from dueline.jobs import function_list, lane_planner
from dueline.worker import settlement_plan
from tests.mutants.sources import change_source

Patch = pytest.MonkeyPatch


def compensations_that_a_replay_misses_are_left_out(patch: Patch) -> None:
    patch.setattr(ends, "_expect_compensations", lambda _: None)


def what_a_wait_noted_is_not_compared(patch: Patch) -> None:
    patch.setattr(Log, "begun", lambda *_: None)


def a_function_may_return_before_its_log_ends(patch: Patch) -> None:
    patch.setattr(Activation, "expect_whole", lambda _: None)


def a_sleep_is_over_by_the_clock_alone(patch: Patch) -> None:
    patch.setattr(Log, "has_after", lambda *_: False)


def a_suspension_that_is_caught_is_forgotten(patch: Patch) -> None:
    def interrupt(_: Activation, suspension: Suspended, cause: object = None) -> NoReturn:
        raise suspension

    patch.setattr(Activation, "interrupt", interrupt)


def records_do_not_name_the_opened_log(patch: Patch) -> None:
    change_source(patch, Log, "_put", "(opened, *also, put)", "(put,)")


def a_row_does_not_say_that_its_function_has_begun(patch: Patch) -> None:
    patch.setattr(activation, "durable_place", lambda _: DurablePlace())


def a_function_is_not_listed(patch: Patch) -> None:
    patch.setattr(function_list, "add", lambda *_: None)
    patch.setattr(function_list, "listing", lambda *_: Group())


def a_parked_function_stays_in_its_lane(patch: Patch) -> None:
    patch.setattr(settlement_plan, "_lane_after", lambda *_: None)


def functions_that_have_begun_have_no_turn(patch: Patch) -> None:
    patch.setattr(lane_planner, "_turn_of", lambda prospect: prospect.priority)


def a_retry_keeps_what_failed(patch: Patch) -> None:
    patch.setattr(restarts, "_before_failure", restarts.last_of)
