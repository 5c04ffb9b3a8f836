"""Durable functions whose worker is stopped, paused or unanswered at each call of the store."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dueline import Dueline, DurableContext, Retry
from tests.harness.addresses import world_of
from tests.harness.durable_stage import HOWS, DurableStage
from tests.harness.world import World

KINDS = [
    pytest.param("memory", marks=pytest.mark.memory),
    pytest.param("steps", marks=pytest.mark.memory),
    pytest.param("sqlite", marks=pytest.mark.sqlite),
    pytest.param("redis", marks=[pytest.mark.redis, pytest.mark.long]),
    pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.long]),
    pytest.param("cassandra", marks=[pytest.mark.cassandra, pytest.mark.long]),
]


STRIDES = {"sqlite": 3, "redis": 5, "postgres": 7, "cassandra": 19}
"""Every n-th call is disturbed on slower stores, unless DUELINE_TEST_EACH_CALL is set."""


def declare(app: Dueline, stage: DurableStage) -> None:
    """Declare a function with a call of each kind."""

    def act(name: str) -> str:
        stage.effect(name)
        return name.upper()

    def fail_once(name: str) -> int:
        if stage.effect(name) == 0:
            raise ValueError("once")
        return 7

    def fail(name: str) -> None:
        stage.effect(name)
        raise ValueError("for good")

    def undo(value: object) -> None:
        stage.effect(f"undo {value}")

    @app.durable(name="run", retry=Retry.fixed(1, attempts=5))
    def run(ctx: DurableContext, how: str) -> list[object]:
        first = ctx.step(act, "a", name="a", undo=undo)
        number = ctx.step(fail_once, "b", name="b")
        ctx.sleep(10)
        sent = ctx.wait_signal("go", timeout=36_000)
        late = ctx.wait_signal("none", timeout=30, default="late")
        waited = ctx.step(fail_once, "c", name="c", retry=Retry.fixed(20, attempts=3), undo=undo)
        if how == "fails":
            ctx.step(fail, "d", name="d", retry=Retry(attempts=1))
        return [first, number, sent, late, waited]

    @app.durable(name="arun", retry=Retry.fixed(0.01, attempts=5))
    async def arun(ctx: DurableContext, _how: str) -> list[object]:
        first = await ctx.step(act, "a", name="a", undo=undo)
        number = await ctx.step(fail_once, "b", name="b")
        await ctx.sleep(10)
        sent = await ctx.wait_signal("go", timeout=36_000)
        late = await ctx.wait_signal("none", timeout=30, default="late")
        waited = await ctx.step(fail_once, "c", name="c", retry=Retry.fixed(20, attempts=3))
        return [first, number, sent, late, waited]


class Stages:
    """Makes stages; those on a server share its store, since an empty one is slow to make."""

    def __init__(self, kind: str, folder: Path) -> None:
        """Take the kind of store."""
        self.is_server = kind in ("redis", "postgres", "cassandra")
        self.stride = STRIDES.get(kind, 1) if not os.environ.get("DUELINE_TEST_EACH_CALL") else 1
        self._kind, self._folder, self._count = kind, folder, 0
        self._stack = ExitStack()
        self._world: World | None = None

    def fresh(self) -> DurableStage:
        """Make a stage."""
        if self._world is None or not self.is_server:
            self.close()
            self._count += 1
            folder = self._folder / str(self._count)
            folder.mkdir()
            self._world = self._stack.enter_context(world_of(self._kind, folder))
        return DurableStage(self._world.store, self._world.clock, declare)

    def close(self) -> None:
        """Close the stores."""
        self._stack.close()


@pytest.fixture(params=KINDS)
def stages(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stages]:
    """Make stages on a kind of store."""
    made = Stages(request.param, tmp_path)
    yield made
    made.close()


def send(stage: DurableStage) -> None:
    """Send the signal that is waited for."""
    stage.job.signal("go", 5, id="x")


def cancel(stage: DurableStage) -> None:
    """Cancel the function."""
    stage.job.cancel()


EACH_HOW = pytest.mark.parametrize("how", HOWS)


def disturbed(
    stages: Stages, way: str, how: str, *, function: str = "run"
) -> Iterator[tuple[DurableStage, str]]:
    """Yield the stages of runs in each of which another call of the store is disturbed."""
    at = 1 - stages.stride
    was_disturbed = True
    while was_disturbed:
        at += stages.stride
        stage = stages.fresh()
        stage.begin(way, function=function)
        was_disturbed = stage.run(at, how, between=cancel if way == "cancelled" else send)
        yield stage, f"{how} at call {at}: {dict(stage.effects)}, {stage.outcome()}"
    assert at > 20, "the function makes few calls"


def undone(stage: DurableStage) -> list[str]:
    """Return which compensations ran."""
    return [name for name in stage.effects if name.startswith("undo")]


@EACH_HOW
@pytest.mark.parametrize("function", ["run", "arun"])
def test_no_stop_changes_what_a_function_returns(stages: Stages, function: str, how: str) -> None:
    """Disturb each call of the store in turn."""
    # rules D1, D2, D3, D5, D9, D10, D12
    for stage, note in disturbed(stages, "returns", how, function=function):
        assert stage.outcome() == ["A", 7, 5, "late", 7], note
        assert not undone(stage), note
        assert 1 <= stage.effects["a"] <= 2, note
        assert 2 <= stage.effects["b"] <= 4, note
        assert sum(stage.effects.values()) <= 5 + 2, note


@EACH_HOW
def test_no_stop_changes_how_a_function_fails(stages: Stages, how: str) -> None:
    """Disturb each call; compensations run, and the end stays."""
    # rule D5
    for stage, note in disturbed(stages, "fails", how):
        assert str(stage.outcome()).startswith("dead"), note
        assert "StepFailed" in str(stage.outcome()), note
        for name in ("undo A", "undo 7", "a", "d"):
            assert 1 <= stage.effects[name] <= 2, note
        assert sum(stage.effects.values()) <= 8 + 2, note


@EACH_HOW
def test_a_cancelled_function_undoes_what_is_recorded(stages: Stages, how: str) -> None:
    """Cancel after the first turn, whatever has happened by then."""
    # rule D5
    for stage, note in disturbed(stages, "cancelled", how):
        assert stage.job.status == "cancelled", note
        steps = {step.name for step in stage.recorded() if step.state == "done"}
        assert (stage.effects["undo A"] > 0) == ("a" in steps), note
        assert (stage.effects["undo 7"] > 0) == ("c" in steps), note
