"""A life that goes wrong is told as short as it gets."""

from itertools import islice

import pytest

from simulation.life import Life, live
from simulation.report import story
from simulation.shrink import Shrinker
from tests.mutants import claims

pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others


def shrink(life: Life) -> Life:
    return Shrinker(life, verdict="stale", lives_max=150, seconds_max=600).shrink()


def choices(life: Life) -> int:
    """Count the accidents of a life."""
    return sum(map(bool, life.tape))


@pytest.mark.timeout(600)  # coverage makes its lives some times longer
def test_what_goes_wrong_remains_with_hardly_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    claims.an_unconditional_verdict(monkeypatch)
    lives = (live(2 * number + 1) for number in range(20, 400))
    wrong = (life for life in lives if "stale" in life.faults)
    # Within so few lives some shrink slowly: one of three has to come far.
    tried = ((life, shrink(life)) for life in islice(wrong, 3))
    life, shrunk = next(pair for pair in tried if choices(pair[1]) < choices(pair[0]) / 4)
    assert "stale" in shrunk.faults
    assert live(life.seed, shrunk.tape).digest == shrunk.digest
    said = story(shrunk, at="abc")
    assert f"seed {life.seed} at commit abc: " in said
    assert "took a verdict" in said
