"""`explain` in situations that combine causes, against an independent oracle and a worker."""

from collections.abc import Iterator

import pytest

from tests.harness.cases.explain_table import every_condition_is_named_and_changed_in_order
from tests.harness.explain_oracle import Situation, situations
from tests.harness.world import World, world_on


@pytest.fixture(
    params=[
        pytest.param("sqlite", marks=pytest.mark.sqlite),
        pytest.param("steps", marks=pytest.mark.memory),
    ],
    scope="module",
)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    made = world_on(request.param, tmp_path_factory.mktemp("explain"))
    yield made
    made.store.close()


@pytest.mark.parametrize("situation", situations(), ids=str)
def test_every_condition_is_named_and_changed_in_order(world: World, situation: Situation) -> None:
    # V4
    every_condition_is_named_and_changed_in_order(world, situation)


def test_there_are_enough_situations() -> None:
    assert len(situations()) >= 80
