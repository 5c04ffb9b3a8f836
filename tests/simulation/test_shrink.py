"""A life that goes wrong is told as short as it gets."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import pytest

from simulation.life import Life, live
from simulation.report import story
from simulation.shrink import Shrinker
from tests.mutants import claims

LIVES_MAX = 50
"""Of the first four wrong lives one loses three in four of its accidents within so many."""


def choices(life: Life) -> int:
    """Count the accidents of a life."""
    return sum(map(bool, life.tape))


@pytest.mark.timeout(600)  # coverage makes its lives some times longer
def test_what_goes_wrong_remains_with_hardly_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    claims.an_unconditional_verdict(monkeypatch)
    lives = (live(2 * number + 1) for number in range(480, 800))
    wrong = (life for life in lives if "stale" in life.faults)
    # Within so few lives some shrink slowly: one of four has to come far.
    tried = (
        (life, Shrinker(life, verdict="stale", lives_max=LIVES_MAX, seconds_max=600).shrink())
        for life in islice(wrong, 4)
    )
    life, shrunk = next(pair for pair in tried if choices(pair[1]) < choices(pair[0]) / 4)
    assert "stale" in shrunk.faults
    assert live(life.seed, shrunk.tape).digest == shrunk.digest
    said = story(shrunk, at="abc")
    assert f"seed {life.seed} at commit abc: " in said
    assert "accepted an outcome" in said


NEEDED = {3: 2, 17: 1, 40: 5}
"""Places of a tape, and the least that each must be for the life to go wrong."""


def lead(seed: int, tape: Sequence[int]) -> Life:
    """Lead a life that is no more than its tape."""
    is_wrong = all(place < len(tape) and tape[place] >= least for place, least in NEEDED.items())
    life = Life(seed, "", 0, 0, 0, 0, tape, {}, {}, [])
    return replace(life, faults={"stale": ["in words"]}) if is_wrong else life


def test_only_the_choices_that_matter_remain_and_are_halved() -> None:
    tape = [8] * 60
    shrunk = Shrinker(lead(1, tape), verdict="stale", lead=lead).shrink()
    kept = {place: chosen for place, chosen in enumerate(shrunk.tape) if chosen}
    assert kept == {3: 4, 17: 4, 40: 8}
    assert len(shrunk.tape) == max(NEEDED) + 1


def test_no_more_lives_are_led_than_may_be() -> None:
    shrinker = Shrinker(lead(1, [8] * 60), verdict="stale", lives_max=7, lead=lead)
    shrinker.shrink()
    assert shrinker.lives == 7
