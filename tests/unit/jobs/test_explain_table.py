"""`explain` in situations that combine causes, against an independent oracle and a worker."""

from pathlib import Path

import pytest

from tests.harness.cases.explain_table import every_condition_is_named_and_changed_in_order
from tests.harness.explain_oracle import KINDS, situations, situations_of
from tests.harness.world import world_on


@pytest.mark.long
@pytest.mark.parametrize("of", KINDS)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("sqlite", marks=pytest.mark.sqlite),
        pytest.param("steps", marks=[pytest.mark.memory, pytest.mark.long]),
    ],
)
def test_every_condition_is_named_and_changed_in_order(kind: str, of: str, tmp_path: Path) -> None:
    # V4
    world = world_on(kind, tmp_path)
    for situation in situations_of(of):
        every_condition_is_named_and_changed_in_order(world, situation)
    world.store.close()


def test_there_are_enough_situations() -> None:
    assert len(set(situations())) >= 80
