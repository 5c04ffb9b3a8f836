"""What workers ask of a store beside functions that sleep."""

import random
from pathlib import Path

import pytest

from dueline import DurableContext
from dueline.core.clock import SECOND_US
from dueline.core.wakeup import FALLBACK_US
from dueline.foresight.checks import check_forecasts
from dueline.worker.claimer import Claimer
from tests.harness.addresses import world_of
from tests.harness.durable_stage import KINDS, DurableStage
from tests.harness.failing_store import FailingStore
from tests.harness.world import World

BACKLOG = 20
QUEUE = "default"
POLLS = 15
"""Number of polls of an idle worker in a minute, about."""

WITH_HEADS = [
    pytest.param("sqlite", marks=pytest.mark.sqlite),
    pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long]),
    pytest.param("redis", marks=[pytest.mark.redis, pytest.mark.long]),
]
"""Stores whose lane list says when the first job of a lane is due."""


def with_sleepers(world: World, count: int) -> None:
    """Put functions to sleep for an hour."""
    stage = DurableStage(world.store, world.clock, lambda _app, _stage: None)

    @stage.onlooker.durable(name="nap", queue=QUEUE)
    def nap(ctx: DurableContext) -> None:
        ctx.sleep(3600)

    for _ in range(count):
        nap.enqueue()
    stage.turn(stage.onlooker)


def calls_in_a_minute(world: World) -> int:
    """Count the calls of an idle worker and of the checks of forecasts in a minute."""
    counting = FailingStore(world.store, {})
    queues = world.other(counting)
    queues.engine.catalog.settings(QUEUE)
    claimer, chance = Claimer(queues.engine, [QUEUE], "w1"), random.Random(1).random
    for _ in range(POLLS):
        world.clock.advance(us=60 * SECOND_US // POLLS)
        world.live(queues=[QUEUE])
        claimer.refresh(FALLBACK_US)
        assert not claimer.claim(8, {})
        check_forecasts(queues, None, chance)
    return counting.calls


@pytest.mark.parametrize("kind", WITH_HEADS)
def test_sleepers_cost_an_idle_worker_nothing(kind: str, tmp_path: Path) -> None:
    """Compare with the same minute in an empty queue."""
    counts = []
    for number in (0, 30):
        folder = tmp_path / str(number)
        folder.mkdir()
        with world_of(kind, folder) as world:
            world.queues.engine.catalog.configure(QUEUE, shards=1)
            with_sleepers(world, number)
            counts.append(calls_in_a_minute(world))
    assert counts[1] == counts[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_goes_on_beside_a_backlog(kind: str, tmp_path: Path) -> None:
    """Let a sleep end, and a signal arrive, behind jobs that were due before; and end them all."""
    # rule D16
    with world_of(kind, tmp_path) as world:
        stage = DurableStage(world.store, world.clock, lambda _app, _stage: None)
        app = stage.onlooker

        @app.task(name="job", queue=QUEUE)
        def job() -> None:
            stage.effect("job")

        @app.durable(name="nap", queue=QUEUE)
        def nap(ctx: DurableContext) -> None:
            for number in range(2):
                ctx.sleep(10)
                ctx.step(note, f"slept {number}", name="note")

        @app.durable(name="listen", queue=QUEUE)
        def listen(ctx: DurableContext) -> None:
            ctx.wait_signal("go")
            note("heard")

        def note(word: str) -> None:
            behind[word] = stage.effects["job"]

        behind: dict[str, int] = {}
        nap.enqueue()
        waiting = listen.enqueue()
        stage.turn(app)
        job.enqueue_many([() for _ in range(BACKLOG)])
        world.clock.advance(11)
        waiting.signal("go")
        stage.turn(app)
        assert max(behind["slept 0"], behind["heard"]) <= 5
        assert stage.effects["job"] == BACKLOG
        job.enqueue_many([() for _ in range(BACKLOG)])
        world.clock.advance(11)
        stage.turn(app)
        assert behind["slept 1"] <= BACKLOG + 2
        assert stage.effects["job"] == 2 * BACKLOG
