"""Lives with workflows: they end well, and go wrong where a rule is broken."""

from collections.abc import Callable

import pytest

from simulation.lives import FLOWING, live
from tests.mutants import flows
from tests.simulation.noticing import some_life_goes_wrong

pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others

LIVES = 24
"""The first sixteen with transactions, the others without."""

LIVES_MAX = 60
"""In so many lives at most a broken rule has to show; each of these does in twenty-three."""


@pytest.mark.timeout(600)
def test_lives_with_workflows_end_well() -> None:
    # W1, W2, W5, W8
    lives = [live(FLOWING + number) for number in range(LIVES)]
    assert {life.seed: life.faults for life in lives if life.faults} == {}
    assert sum(life.counts.get("done", 0) for life in lives) > 5 * LIVES
    assert sum(life.counts.get("crashes", 0) for life in lives) > 0  # there are accidents


def test_a_tape_leads_the_life_that_it_was_taken_from() -> None:
    life = live(FLOWING + 3)
    assert live(FLOWING + 3, life.tape).digest == life.digest
    assert live(FLOWING + 4).digest != life.digest


@pytest.mark.mutants
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("rule", "breaks"),
    [
        ("W1", flows.the_layout_is_stored_after_the_steps),
        ("W1", flows.a_start_that_is_repeated_has_other_steps),
        ("W2", flows.an_end_is_recorded_after_the_row_went),
        ("W3", flows.who_ends_a_step_looks_before_that_is_recorded),
        ("W4", flows.a_claimed_step_does_not_ask),
        ("W7", flows.a_step_that_needs_others_is_born_without_a_time),
    ],
)
def test_without_its_rule_some_life_with_workflows_goes_wrong(
    rule: str,
    breaks: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    seeds = range(FLOWING, FLOWING + LIVES_MAX)
    some_life_goes_wrong(
        seeds,
        "with workflows",
        rule=rule,
        breaks=breaks,
        monkeypatch=monkeypatch,
        record_property=record_property,
    )
