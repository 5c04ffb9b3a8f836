"""Old and new code of a durable function, one after the other, forth and back."""

import random
from collections import Counter
from pathlib import Path

import pytest

from dueline import Dueline, DurableContext
from tests.harness.addresses import world_of
from tests.harness.durable_stage import KINDS, Declare, DurableStage

RUNS = 12
TURNS_MAX = 200


def declare(code: str) -> Declare:
    """Return what declares the old or the new code; the new one has one step more."""

    def declare(app: Dueline, stage: DurableStage) -> None:
        @app.durable(name="order", version=code)
        def order(ctx: DurableContext, number: int) -> str:
            way = "old"
            ctx.step(stage.effect, f"{number} charge", name="charge")
            ctx.sleep(20 * (number % 3) + 1)
            if code == "new" and ctx.patched("check"):
                way = "new"
                ctx.step(stage.effect, f"{number} check", name="check")
            ctx.sleep(20 * (number % 4) + 1)
            ctx.step(stage.effect, f"{number} ship", name="ship")
            return f"{code} code, {way} way"

    return declare


@pytest.mark.parametrize("kind", KINDS)
def test_each_run_is_ended_by_code_that_fits_it(kind: str, tmp_path: Path) -> None:
    choice = random.Random(1)
    with world_of(kind, tmp_path) as world:
        stages = {
            code: DurableStage(world.store, world.clock, declare(code)) for code in ("old", "new")
        }
        jobs = []
        for number in range(RUNS):
            app = stages["old" if number % 2 else "new"].onlooker
            jobs.append(app.task_named("order").enqueue(number))
        effects: Counter[str] = Counter()
        for _ in range(TURNS_MAX):
            world.clock.advance(15)
            stage = stages[choice.choice(["old", "new"])]
            stage.turn(stage.process(world.store))
            if all(job.status == "done" for job in jobs):
                break
        results = [job.result(timeout=0) for job in jobs]
        for stage in stages.values():
            effects += stage.effects
    ways = Counter(results)
    assert ways["old code, new way"] == 0
    assert ways["old code, old way"] > 0
    assert ways["new code, new way"] > 0
    checked = sum(count for name, count in effects.items() if name.endswith("check"))
    assert checked == ways["new code, new way"]
    assert set(effects.values()) == {1}
