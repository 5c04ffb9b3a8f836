"""Plans: the least number of workers that keeps a target, and the limits in the way (P7)."""

from collections.abc import Sequence

import pytest

from dueline.foresight.planner import Asked, Plan, hour_text, hours_of, plan, split_of
from dueline.foresight.record import Record
from dueline.foresight.replay import Task, outcomes
from dueline.foresight.scenario import Rules
from dueline.foresight.summary import Outcome
from dueline.foresight.target import target_of
from tests.harness.records import BEGUN_US, Ran, record_of

AIM = target_of("p95<0.11s")


class Once:
    """Runs simulations of a record in this process."""

    def __init__(self, record: Record, rules: Rules) -> None:
        self.record = record
        self.rules = rules

    def run(self, tasks: Sequence[Task]) -> list[Outcome]:
        """Return the outcome of each task."""
        return outcomes(self.record, self.rules, tasks)


def planned(jobs: Sequence[Ran], rules: Rules, capacities: dict[str, int] | None = None) -> Plan:
    asked = Asked(AIM, ("mail",), 1, capacities or {})
    return plan(Once(record_of(jobs), rules), asked)


def test_the_least_number_of_workers_is_found_and_held_against_the_rest() -> None:
    jobs = [Ran(200 * burst + n, run=100) for burst in range(30) for n in range(7)]
    found = planned(jobs, Rules())
    # Seven jobs at once, each 100 ms: with 4 workers the second round starts after 97 ms.
    assert found.workers == 4
    curve = {one.workers: one.meets for one in found.curve}
    assert curve[4]
    assert not curve[3]
    assert found.held_out is not None
    assert found.held_out.meets
    assert found.split_us == split_of(BEGUN_US, BEGUN_US + 5_907_000)
    assert not found.capacities


def test_a_load_that_grows_is_noticed_where_it_was_held_out() -> None:
    jobs = [Ran(400 * n, run=50) for n in range(100)]
    jobs += [Ran(400 * n + 1 + k, run=200) for n in range(80, 100) for k in range(2)]
    found = planned(jobs, Rules())
    assert found.workers is not None
    assert found.workers > 1
    assert found.curve[0].meets  # it would have been enough before


@pytest.mark.slow
def test_a_limit_that_stands_in_the_way_is_raised() -> None:
    jobs = [Ran(100 * n, run=250, limits=("api",)) for n in range(60)]
    found = planned(jobs, Rules(), {"api": 1})
    assert found.capacities == {"api": 3}
    assert found.workers is not None
    assert found.held_out is not None
    assert found.held_out.meets


@pytest.mark.slow
def test_no_plan_is_better_than_a_wrong_one() -> None:
    jobs = [Ran(10 * n, run=2000, limits=("api",)) for n in range(30)]
    assert planned(jobs, Rules(), {}).workers is None


def test_hours_of_the_week_are_means_over_weeks() -> None:
    week = 7 * 24
    minute = 60 * (4 * 24 + 9)  # Monday, 5 January 1970, 09:00
    cells = [("mail", "", minute, {100: 4}), ("mail", "", minute + 60 * week + 5, {100: 8})]
    (hour,) = hours_of(Outcome(cells), AIM)
    assert (hour_text(hour.hour), hour.starts) == ("Mon 09:00", 6)
