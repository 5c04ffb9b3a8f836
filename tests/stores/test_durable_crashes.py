"""Durable functions whose worker is stopped, paused or unanswered at each call of the store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import Dueline, DurableContext, Retry
from tests.harness.durable_stage import HOWS, KINDS, DurableStage, Stages


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


@pytest.fixture(params=KINDS)
def stages(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stages]:
    """Make stages on a kind of store."""
    made = Stages(request.param, tmp_path, declare)
    yield made
    made.close()


def send(stage: DurableStage) -> None:
    """Send the signal that is waited for."""
    stage.job.signal("go", 5, id="x")


def cancel(stage: DurableStage) -> None:
    """Cancel the function."""
    stage.job.cancel()


EACH_HOW = pytest.mark.parametrize("how", HOWS)


def undone(stage: DurableStage) -> list[str]:
    """Return which compensations ran."""
    return [name for name in stage.effects if name.startswith("undo")]


@pytest.mark.slow
@EACH_HOW
@pytest.mark.parametrize("function", ["run", "arun"])
def test_no_stop_changes_what_a_function_returns(stages: Stages, function: str, how: str) -> None:
    """Disturb each call of the store in turn."""
    # rules D1, D2, D3, D5, D9, D10, D12
    for stage, note in stages.disturbed(function, how, "returns", between=send):
        assert stage.outcome() == ["A", 7, 5, "late", 7], note
        assert not undone(stage), note
        assert 1 <= stage.effects["a"] <= 2, note
        assert 2 <= stage.effects["b"] <= 4, note
        assert sum(stage.effects.values()) <= 5 + 2, note


@pytest.mark.slow
@EACH_HOW
def test_no_stop_changes_how_a_function_fails(stages: Stages, how: str) -> None:
    """Disturb each call; compensations run, and the end stays."""
    # rule D5
    for stage, note in stages.disturbed("run", how, "fails", between=send):
        assert str(stage.outcome()).startswith("dead"), note
        assert "StepFailed" in str(stage.outcome()), note
        for name in ("undo A", "undo 7", "a", "d"):
            assert 1 <= stage.effects[name] <= 2, note
        assert sum(stage.effects.values()) <= 8 + 2, note


@pytest.mark.slow
@EACH_HOW
def test_a_cancelled_function_undoes_what_is_recorded(stages: Stages, how: str) -> None:
    """Cancel after the first turn, whatever has happened by then."""
    # rule D5
    for stage, note in stages.disturbed("run", how, "cancelled", between=cancel):
        assert stage.job.status == "cancelled", note
        steps = {step.name for step in stage.recorded() if step.state == "done"}
        assert (stage.effects["undo A"] > 0) == ("a" in steps), note
        assert (stage.effects["undo 7"] > 0) == ("c" in steps), note
