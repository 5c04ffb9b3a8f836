"""Lives of schedules: they end well, and go wrong where a rule is broken."""

from collections import Counter
from collections.abc import Callable

import pytest

from simulation.faults import KINDS
from simulation.lives import RECURRING, live
from simulation.scenario import scenario_of
from simulation.tape import Tape
from tests.mutants import times
from tests.simulation.noticing import some_life_goes_wrong

LIVES = 16
LIVES_MAX = 200
"""In so many lives at most a broken rule has to show; each of these does in six."""


@pytest.mark.timeout(600)
def test_lives_of_schedules_end_well() -> None:
    # T8, R12
    lives = [live(RECURRING + number) for number in range(LIVES)]
    assert {life.seed: life.faults for life in lives if life.faults} == {}
    counts = sum((Counter(life.counts) for life in lives), Counter())
    assert counts["done"] > 5 * LIVES
    assert counts["crashes"] > 0  # there are accidents


def test_a_tape_leads_the_life_that_it_was_taken_from() -> None:
    life = live(RECURRING + 3)
    assert live(RECURRING + 3, life.tape).digest == life.digest
    assert live(RECURRING + 4).digest != life.digest


def test_both_kinds_of_store_and_all_accidents_come_up() -> None:
    drawn = [
        scenario_of(RECURRING + number, Tape(RECURRING + number)) for number in range(2 * LIVES)
    ]
    assert {one.is_stepped for one in drawn} == {True, False}
    assert {fault for one in drawn for fault in one.faults} == set(KINDS)


@pytest.mark.mutants
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("rule", "breaks"),
    [
        ("Z1", times.a_time_has_another_job_each_try),
        ("Z2", times.jobs_before_how_far_they_come),
        ("Z2", times.jobs_behind_how_far_they_come),
        ("Z4", times.a_decision_is_not_bound_to_its_record),
        ("Z5", times.the_next_one_comes_beside_the_one_it_replaces),
    ],
)
def test_without_its_rule_some_life_of_a_schedule_goes_wrong(
    rule: str,
    breaks: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    seeds = range(RECURRING, RECURRING + LIVES_MAX)
    some_life_goes_wrong(
        seeds,
        "of schedules",
        rule=rule,
        breaks=breaks,
        monkeypatch=monkeypatch,
        record_property=record_property,
    )
