"""Scripts end well, whichever of their calls fails."""

import pytest

from simulation.data import Kind
from simulation.faults import Fault
from simulation.nth import KINDS, fail, played, points
from simulation.scripts import SCRIPTS

FAULT_POINTS_MIN = 5_000


@pytest.mark.parametrize("kind", KINDS)
def test_every_script_ends_well_where_nothing_fails(kind: Kind) -> None:
    lives = {name: played(name, kind, {}) for name in SCRIPTS}
    assert len(lives) >= 12
    assert {name: life.faults for name, life in lives.items() if life.faults} == {}
    assert 4 * sum(life.calls for life in lives.values()) > FAULT_POINTS_MIN // 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("script", ["done", "replaced", "brought forward"])
def test_a_script_ends_well_whichever_call_fails(script: str, kind: Kind) -> None:
    for point in points(script, kind, (Fault.DROPPED, Fault.UNANSWERED, Fault.LATE)):
        assert fail(point)[1].faults == {}, str(point)
