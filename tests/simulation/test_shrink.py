"""A life that goes wrong is told as short as it gets."""

import pytest

from simulation.life import live
from simulation.report import story
from simulation.shrink import Shrinker
from tests.mutants import claims

pytestmark = pytest.mark.no_cover  # long, and what it runs is measured by others


@pytest.mark.timeout(600)  # coverage makes its lives some times longer
def test_what_goes_wrong_remains_with_hardly_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    claims.an_unconditional_verdict(monkeypatch)
    lives = (live(2 * number + 1) for number in range(400))
    life = next(life for life in lives if "stale" in life.faults)
    shrunk = Shrinker(life, verdict="stale", lives_max=150, seconds_max=600).shrink()
    assert "stale" in shrunk.faults
    assert sum(map(bool, shrunk.tape)) < sum(map(bool, life.tape)) / 4
    assert live(life.seed, shrunk.tape).digest == shrunk.digest
    said = story(shrunk, at="abc")
    assert f"seed {life.seed} at commit abc: " in said
    assert "took a verdict" in said
