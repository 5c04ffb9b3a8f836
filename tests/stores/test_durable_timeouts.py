"""A signal that comes at each moment around the time-out of the wait for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline, DurableContext
from tests.harness.durable_stage import KINDS, DisturbedStore, DurableStage, Stages

TIMEOUT_S = 30.0


def declare(app: Dueline, _: DurableStage) -> None:
    """Declare a function that waits twice for one signal."""

    @app.durable(name="run")
    def run(ctx: DurableContext) -> list[str]:
        first = ctx.wait_signal("go", timeout=TIMEOUT_S, default="late", type=str)
        ctx.sleep(1)
        second = ctx.wait_signal("go", timeout=600, default="none", type=str)
        ctx.sleep(1)
        return [first, second]


@pytest.fixture(params=KINDS)
def stages(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stages]:
    """Make stages on a kind of store."""
    made = Stages(request.param, tmp_path, declare)
    yield made
    made.close()


def test_a_signal_ends_one_wait_whenever_it_comes_around_the_time_out(stages: Stages) -> None:
    """Send it before each call of the store that the worker makes once the time is over."""
    # rules D2, D9, D12
    outcomes: list[object] = []
    was_sent = True
    while was_sent:
        stage = stages.fresh()
        stage.begin()
        stage.turn(stage.onlooker)
        stage.clock.advance(TIMEOUT_S + 1)
        at = 1 + len(outcomes) * stages.stride
        sent = stage.job
        store = DisturbedStore(stage.store, at, "pause", lambda job=sent: job.signal("go", "go"))  # type: ignore[misc]
        stage.turn(stage.process(store), store)
        was_sent = store.calls >= at
        if not was_sent:
            sent.signal("go", "go")
        for _ in range(4):
            stage.clock.advance(400)
            stage.turn(stage.process(stage.store))
        outcomes.append(stage.outcome() if stage.is_over() else stage.job.status)
    assert set(map(str, outcomes)) == {"['go', 'none']", "['late', 'go']"}, outcomes
