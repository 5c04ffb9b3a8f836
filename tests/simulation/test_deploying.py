"""Lives in which workers of several versions share a queue, and running jobs are cancelled."""

from collections.abc import Callable

import pytest

from simulation.lives import DEPLOYING, live
from tests.mutants import cancels, unknown_tasks
from tests.simulation.noticing import some_life_goes_wrong

pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others

LIVES = 12
LIVES_MAX = 250
"""In so many lives at most a broken rule has to show."""


@pytest.mark.timeout(600)
def test_lives_with_versions_end_well() -> None:
    # O9, C19
    lives = [live(DEPLOYING + number) for number in range(LIVES)]
    assert {life.seed: life.faults for life in lives if life.faults} == {}
    assert sum(life.counts["done"] for life in lives) > 10 * LIVES
    assert sum(life.counts.get("cancelled", 0) for life in lives) > 0


def test_a_tape_leads_the_life_that_it_was_taken_from() -> None:
    life = live(DEPLOYING + 3)
    assert live(DEPLOYING + 3, life.tape).digest == life.digest
    assert live(DEPLOYING + 4).digest != life.digest


@pytest.mark.mutants
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("rule", "breaks"),
    [
        ("P10", unknown_tasks.it_stays_where_it_is),
        ("P10", unknown_tasks.everybody_claims_from_the_lane_of_a_task),
        ("P10", unknown_tasks.nobody_claims_from_the_lane_of_a_task),
        ("P10", unknown_tasks.the_lane_names_the_task_alone),
        ("P13", unknown_tasks.everybody_claims_what_another_version_takes),
        ("P13", unknown_tasks.nobody_claims_what_another_version_takes),
        ("P13", unknown_tasks.a_misfit_stays_where_it_is),
        ("P11", cancels.the_next_claim_finds_no_request),
        ("P11", cancels.a_claim_asks_for_no_request),
    ],
)
def test_without_its_rule_some_life_goes_wrong(
    rule: str,
    breaks: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    some_life_goes_wrong(
        range(DEPLOYING, DEPLOYING + LIVES_MAX),
        "with versions",
        rule=rule,
        breaks=breaks,
        monkeypatch=monkeypatch,
        record_property=record_property,
    )
