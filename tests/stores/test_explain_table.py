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
    "postgres": [one for place, one in enumerate(ALL) if place % 7 < 4],
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
        found = scene.explain()
        _compare(scene, found)
        if situation.claim not in ("running", "waiting", "stopping", "silent"):
            _change(scene, found)
    except BaseException as error:
        error.add_note(f"in the situation {situation}")
        raise
    finally:
        scene.close()


def _compare(scene: Scene, found: Explanation) -> None:
    said = [
        condition.kind if condition.kind in _OF_THE_JOB else f"{condition.kind} {condition.subject}"
        for condition in found.conditions
    ]
    answer = expected(scene.of, scene.name)
    assert (said, found.ends_as) == (list(answer.conditions), answer.ends_as), str(found)
    for condition in found.conditions:
        assert condition.clause[1:].removeprefix("t is ") in found.sentence
        assert condition.command.startswith("dueline ") or condition.change != "operator"
        assert bool(condition.at_us) == (condition.change == "time")


def _change(scene: Scene, found: Explanation) -> None:
    if (found.ends_as and not found.conditions) or scene.of.flow == "compensation":
        assert scene.is_settled_without_a_run()
        assert scene.of.flow == "compensation" or scene.ended_as() == found.ends_as
        return
    for condition in found.conditions:
        is_work = condition.change == "work" and condition.kind != "limit"  # a worker does that
        assert is_work or not scene.ran(), (condition, str(found))
        scene.change(condition)
    expires_us = found.facts.get("expires_us", 0)
    if found.ends_as and any(one.at_us >= int(expires_us) for one in found.conditions):
        assert scene.is_settled_without_a_run()
        assert scene.ended_as() == found.ends_as
    elif not scene.ran():  # another job with the same limit was first, which was said
        assert scene.of.others == "same limit"
        assert "which jobs come before it then" in found.unknown
        scene.world.clock.advance(3600)
        assert scene.ran(), str(found)
