"""`explain` in situations that combine causes, against an independent oracle and a worker."""

from pathlib import Path

import pytest

from dueline.jobs.explanation import Explanation
from tests.harness.addresses import WITH_ADDRESS, world_of
from tests.harness.explain_oracle import KINDS, Situation, expected, situations, situations_of
from tests.harness.explain_situations import Scene
from tests.harness.world import World

_OF_THE_JOB = (
    "scheduled", "retrying", "put back", "expires", "steps", "held", "waiting", "claimed",
)  # fmt: skip

ALL = situations()
CHOSEN = {
    "sqlite": ALL,
    "steps": ALL,
    "postgres": [situation for place, situation in enumerate(ALL) if place % 7 < 4],
    "redis": ALL[::3],
    "cassandra": ALL[::20],
}
"""The situations of each store: one is some round trips, on Cassandra some hundred."""

LONG = [
    pytest.param("sqlite", marks=[pytest.mark.sqlite, pytest.mark.long]),
    pytest.param("steps", marks=[pytest.mark.memory, pytest.mark.long]),
]


def test_there_are_enough_situations() -> None:
    assert len(set(ALL)) >= 80
    assert len(CHOSEN["postgres"]) > 80


@pytest.mark.slow
@pytest.mark.parametrize("of", KINDS)
@pytest.mark.parametrize("kind", [*LONG, *WITH_ADDRESS[1:]])
def test_every_condition_is_named_and_changed_in_order(kind: str, of: str, tmp_path: Path) -> None:
    """Explain each situation, then make the changes that were named.

    The conditions, their order and the end are those of the oracle. A worker starts the job after
    the last change, and not before.
    """
    # V4
    with world_of(kind, tmp_path) as world:
        for situation in situations_of(of):
            if situation in CHOSEN[kind]:
                _explain_and_change(world, situation)


def _explain_and_change(world: World, situation: Situation) -> None:
    scene = Scene(world, situation, f"q{len(world.queues.engine.catalog.names())}")
    try:
        explained = scene.explain()
        _compare(scene, explained)
        if situation.claim not in ("running", "waiting", "stopping", "silent"):
            _change(scene, explained)
    except BaseException as error:
        error.add_note(f"in the situation {situation}")
        raise
    finally:
        scene.close()


def _compare(scene: Scene, explained: Explanation) -> None:
    said = [
        condition.kind if condition.kind in _OF_THE_JOB else f"{condition.kind} {condition.subject}"
        for condition in explained.conditions
    ]
    answer = expected(scene.of, scene.name)
    assert (said, explained.ends_as) == (list(answer.conditions), answer.ends_as), str(explained)
    for condition in explained.conditions:
        assert condition.clause[1:].removeprefix("t is ") in explained.sentence
        assert condition.command.startswith("dueline ") or condition.change != "operator"
        assert bool(condition.at_us) == (condition.change == "time")


def _change(scene: Scene, explained: Explanation) -> None:
    if (explained.ends_as and not explained.conditions) or scene.of.flow == "compensation":
        assert scene.is_settled_without_a_run()
        assert scene.of.flow == "compensation" or scene.ended_as() == explained.ends_as
        return
    for condition in explained.conditions:
        is_work = condition.change == "work" and condition.kind != "limit"  # a worker does that
        assert is_work or not scene.ran(), (condition, str(explained))
        scene.change(condition)
    expires_us = explained.facts.get("expires_us", 0)
    if explained.ends_as and any(
        condition.at_us >= int(expires_us) for condition in explained.conditions
    ):
        assert scene.is_settled_without_a_run()
        assert scene.ended_as() == explained.ends_as
    elif not scene.ran():  # another job with the same limit was first, which was said
        assert scene.of.others == "same limit"
        assert "which jobs come before it then" in explained.unknown
        scene.world.clock.advance(3600)
        assert scene.ran(), str(explained)
