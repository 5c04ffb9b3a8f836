"""Lives of queues with limits: they end well, and go wrong where a rule is broken."""

from collections.abc import Callable

import pytest

from simulation.lives import LIMITED, live
from tests.mutants import needs, permits
from tests.simulation.noticing import some_life_goes_wrong

pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others

LIVES = 16
LIVES_MAX = 250
"""In so many lives at most a broken rule has to show."""


@pytest.mark.timeout(600)
def test_lives_with_limits_end_well() -> None:
    # F1, F2, R12
    lives = [live(LIMITED + number) for number in range(LIVES)]
    assert {life.seed: life.faults for life in lives if life.faults} == {}
    assert sum(life.counts["done"] for life in lives) > 10 * LIVES
    assert sum(life.counts["crashes"] for life in lives) > 0  # there are accidents


def test_a_tape_leads_the_life_that_it_was_taken_from() -> None:
    life = live(LIMITED + 3)
    assert live(LIMITED + 3, life.tape).digest == life.digest
    assert live(LIMITED + 4).digest != life.digest


@pytest.mark.mutants
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("rule", "breaks"),
    [
        ("N1", permits.permits_of_others_do_not_count),
        ("N1", permits.a_number_is_written_whatever_was_read),
        ("N2", permits.what_cannot_be_used_is_kept),
        ("N5", permits.a_meter_is_written_whatever_was_read),
        ("N5", permits.what_is_given_back_is_what_was_taken_last),
        ("F6", permits.nobody_closes_a_limit),
        ("Y2", needs.what_held_jobs_use_does_not_count),
    ],
)
def test_without_its_rule_some_life_with_limits_goes_wrong(
    rule: str,
    breaks: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    some_life_goes_wrong(
        range(LIMITED, LIMITED + LIVES_MAX),
        "with limits",
        rule=rule,
        breaks=breaks,
        monkeypatch=monkeypatch,
        record_property=record_property,
    )
