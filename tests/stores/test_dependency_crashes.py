"""Jobs that wait for others, disturbed at each call of the store (rules J1 to J4, B4).

A worker, or the caller that stores the waiting job or the workflow, stops, is paused, or gets no
answer.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline, Retry, Unique, pipeline
from dueline.api.job_handle import Job
from dueline.core.errors import EnqueueUnknown, StoreUnavailable
from tests.harness.durable_stage import HOWS, KINDS, DisturbedStore, DurableStage, Stages, nothing
from tests.harness.lives import Stopped

EACH = pytest.mark.parametrize("how", HOWS)


def declare(app: Dueline, stage: DurableStage) -> None:
    """Declare a job that fails once, and one that notes whether it came too early."""

    @app.task(name="first", retry=Retry.fixed(1, attempts=5))
    def first() -> None:
        if stage.effect("tried") == 0:
            raise ValueError("once")
        stage.effect("first")

    @app.task(name="second")
    def second() -> None:
        stage.effect("second" if stage.effects["first"] else "early")


@pytest.fixture(params=KINDS)
def stages(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stages]:
    """Make stages on a kind of store."""
    made = Stages(request.param, tmp_path, declare)
    yield made
    made.close()


def calls_of(stages: Stages, name: str, how: str) -> Iterator[tuple[DurableStage, int]]:
    """Yield a stage and the number of a call for each that is disturbed, until `calls` is lower."""
    at = stages._first_call(name, how)
    while True:
        stage = stages.fresh()
        yield stage, at
        if stage.calls < at:
            return
        at += stages.stride


def waiting_for(app: Dueline, first: Job[Any]) -> Job[Any]:
    """Enqueue the job that waits."""
    return app.task_named("second").using(depends_on=first).enqueue()


def check(stage: DurableStage, words: str) -> None:
    """Check that nothing came early, and both ran."""
    assert stage.job.status == "done", words
    assert not stage.effects["early"], words
    assert stage.effects["first"], words
    assert stage.effects["second"], words


@pytest.mark.slow
@EACH
def test_a_worker_releases_a_job_whatever_stops_it(stages: Stages, how: str) -> None:
    """At the end of the job before it, or at its own check."""
    for stage, at in calls_of(stages, "release", how):
        first = stage.onlooker.task_named("first").enqueue()
        stage.job = waiting_for(stage.onlooker, first)
        stage.run(at, how, between=nothing)
        check(stage, f"{how} at call {at}: {dict(stage.effects)}")


@pytest.mark.slow
@EACH
def test_a_caller_stores_a_waiting_job_whatever_stops_it(stages: Stages, how: str) -> None:
    """While the one before it waits, runs or ends: it is stored once, or not at all."""
    for stage, at in calls_of(stages, "enqueue", how):
        first = stage.onlooker.task_named("first").enqueue()
        store = DisturbedStore(stage.store, at, how, stage.others_turn)
        app = stage.process(store)
        stored: list[str] = []
        with suppress(Stopped):
            try:
                stored.append(waiting_for(app, first).id)
            except EnqueueUnknown as error:
                app.queues.enqueue_again(error.jobs)
                stored.append(error.jobs[0].id.hex())
            except StoreUnavailable:
                pass  # nothing was stored
        stage.calls = store.calls
        if not stored:
            stored.append(waiting_for(stage.onlooker, first).id)
        stage.job = stage.onlooker.job(stored[0])
        stage.others_finish()
        check(stage, f"{how} at call {at}: {dict(stage.effects)}")


@pytest.mark.slow
@EACH
def test_a_workflow_with_a_key_is_started_once_whatever_stops_it(stages: Stages, how: str) -> None:
    """A caller that was stopped leaves nothing that holds the key and never ends."""
    unique = Unique("one", mode="existing")
    for stage, at in calls_of(stages, "unique", how):
        task = stage.onlooker.task_named
        part = pipeline(task("first").step(), task("second").step().alone())
        again = partial(stage.onlooker.start, part, unique=unique)
        store = DisturbedStore(stage.store, at, how, again)
        app = stage.process(store)
        flows: set[str] = set()
        with suppress(Stopped):
            try:
                flows.add(app.start(part, unique=unique).id)
            except EnqueueUnknown as error:
                with suppress(StoreUnavailable):
                    flows.add(app.start_again(error).id)
            except StoreUnavailable:
                pass
        stage.calls = store.calls
        flow = again()
        assert flows <= {flow.id}
        stage.job = flow.step(1)
        stage.others_finish()
        check(stage, f"{how} at call {at}: {dict(stage.effects)}")
        assert stage.effects["second"] == 1
        after = again()
        assert after != flow
        after.cancel()
