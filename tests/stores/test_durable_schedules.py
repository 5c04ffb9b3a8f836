"""Schedules of durable functions, on each kind of store: one that sleeps is live (T10, W10)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from dueline import Dueline, DurableContext
from dueline.core.job import Job
from dueline.schedules.scheduler import advance_all
from tests.harness.durable_stage import KINDS, DurableStage, Stages

EVERY_S = 60.0
SLEEP_S = 150.0
"""Between two and three occurrences."""

NAME = "nightly"


def declare(app: Dueline, stage: DurableStage) -> None:
    """Declare a function that has an effect, sleeps, and is undone if it is cancelled."""

    @app.durable(name="report")
    def report(ctx: DurableContext) -> None:
        job = ctx.job_id.hex()
        ctx.step(stage.effect, f"begins {job}", name="begin", undo=lambda _: stage.effect("undone"))
        ctx.sleep(SLEEP_S)
        ctx.step(stage.effect, "ends", name="end")


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DurableStage]:
    """Make an empty store, and processes on it."""
    stages = Stages(request.param, tmp_path, declare)
    yield stages.fresh()
    stages.close()


def scheduled(stage: DurableStage, overlap: Literal["allow", "skip", "wait", "replace"]) -> None:
    """Store a schedule of the function."""
    app = stage.onlooker
    app.schedules.set(NAME, app.task_named("report"), every=EVERY_S, overlap=overlap)


def begun(stage: DurableStage) -> int:
    """Return how many occurrences have begun."""
    return sum(name.startswith("begins") for name in stage.effects)


def rows(stage: DurableStage) -> list[Job]:
    """Return the jobs that have not ended, of occurrences that have come."""
    engine = stage.onlooker.engine
    now_us = engine.time.latest_us()
    return [row for row in engine.jobs_of("default") if not row.outcome and row.due_us <= now_us]


def pass_time(stage: DurableStage, seconds: float) -> None:
    """Let time pass, in small steps, while schedules are advanced and a worker works."""
    for _ in range(round(seconds / 10)):
        stage.clock.advance(10)
        advance_all(stage.onlooker.queues)
        stage.turn(stage.onlooker)
        advance_all(stage.onlooker.queues)
        stage.turn(stage.onlooker)


def test_without_a_rule_occurrences_sleep_beside_each_other(stage: DurableStage) -> None:
    scheduled(stage, "allow")
    pass_time(stage, 2.5 * EVERY_S)
    assert begun(stage) == 2
    assert len(rows(stage)) == 2


def test_an_occurrence_is_skipped_while_one_sleeps(stage: DurableStage) -> None:
    scheduled(stage, "skip")
    pass_time(stage, 3 * EVERY_S + 10)
    assert (begun(stage), stage.effects["ends"], len(rows(stage))) == (1, 0, 1)
    pass_time(stage, EVERY_S)  # the first has ended: the next occurrence runs
    assert (begun(stage), stage.effects["ends"], stage.effects["undone"]) == (2, 1, 0)
    assert stage.onlooker.schedules.get(NAME).skipped == 2


def test_one_occurrence_waits_for_one_that_sleeps(stage: DurableStage) -> None:
    scheduled(stage, "wait")
    pass_time(stage, EVERY_S + SLEEP_S - 20)
    assert (begun(stage), stage.effects["ends"]) == (1, 0)
    pass_time(stage, 40)
    assert (begun(stage), stage.effects["ends"], stage.effects["undone"]) == (2, 1, 0)


def test_an_occurrence_replaces_one_that_sleeps_after_its_compensations(
    stage: DurableStage,
) -> None:
    scheduled(stage, "replace")
    pass_time(stage, 2 * EVERY_S + 20)
    assert (begun(stage), stage.effects["undone"], stage.effects["ends"]) == (2, 1, 0)
    assert len(rows(stage)) == 1


def test_a_schedule_that_is_removed_or_changed_leaves_what_sleeps(stage: DurableStage) -> None:
    scheduled(stage, "allow")
    stage.clock.advance(1)
    advance_all(stage.onlooker.queues)
    (ahead,) = [*stage.onlooker.engine.jobs_of("default")][:1]
    stage.onlooker.job(ahead.id.hex()).reschedule(after=0)  # before its time
    stage.turn(stage.onlooker)
    assert begun(stage) == 1
    scheduled(stage, "skip")
    advance_all(stage.onlooker.queues)
    stage.turn(stage.onlooker)
    stage.onlooker.schedules.remove(NAME)
    advance_all(stage.onlooker.queues)
    pass_time(stage, SLEEP_S)
    assert (begun(stage), stage.effects["ends"], stage.effects["undone"]) == (1, 1, 0)
