"""Lives with durable functions: they end well, and go wrong where a rule is broken."""

from collections.abc import Callable

import pytest

from simulation.lives import SUSPENDING, live
from tests.mutants import suspensions
from tests.simulation.noticing import some_life_goes_wrong

pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others

LIVES = (*range(32), *range(256, 288))
"""The first sixteen with transactions, the next without, and so on; the last 32 with calls."""

LIVES_MAX = 60
"""In so many lives at most a broken rule has to show."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_lives_with_durable_functions_end_well() -> None:
    lives = [live(SUSPENDING + number) for number in LIVES]
    assert {life.seed: life.faults for life in lives if life.faults} == {}
    assert sum(life.counts.get("done", 0) for life in lives) > len(LIVES) / 2
    assert sum(life.counts.get("dead", 0) for life in lives) > 0
    assert sum(life.counts.get("crashes", 0) for life in lives) > 0  # there are accidents


def test_a_tape_leads_the_life_that_it_was_taken_from() -> None:
    life = live(SUSPENDING + 3)
    assert live(SUSPENDING + 3, life.tape).digest == life.digest
    assert live(SUSPENDING + 4).digest != life.digest


@pytest.mark.mutants
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("rule", "breaks", "first"),
    [
        ("D1", suspensions.a_step_is_not_recorded, 0),
        ("D2", suspensions.a_replay_runs_its_steps_again, 0),
        ("D3", suspensions.nobody_is_woken, 0),
        ("D3", suspensions.no_caller_is_woken, 256),
        ("D3", suspensions.the_end_of_a_called_job_is_not_written_for_its_caller, 256),
        ("D4", suspensions.a_recorded_call_is_not_inserted_again, 400),
        ("D5", suspensions.the_end_is_not_recorded, 560),
        ("D5", suspensions.a_recorded_end_is_not_followed, 0),
        ("D5", suspensions.a_compensation_that_is_recorded_runs_again, 440),
        ("D10", suspensions.an_unknown_step_is_not_interrupted, 0),
        ("D11", suspensions.a_record_is_written_whoever_has_opened_the_log, 110),
        ("D12", suspensions.a_signal_is_free_though_it_is_marked, 0),
    ],
)
def test_without_its_rule_some_life_with_durable_functions_goes_wrong(
    rule: str,
    breaks: Callable[[pytest.MonkeyPatch], None],
    first: int,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    seeds = range(SUSPENDING + first, SUSPENDING + first + LIVES_MAX)
    some_life_goes_wrong(
        seeds,
        "with durable functions",
        rule=rule,
        breaks=breaks,
        monkeypatch=monkeypatch,
        record_property=record_property,
    )
