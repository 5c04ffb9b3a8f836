"""Durable functions that call, gather and restart, with a worker that is disturbed at each call."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline import CallFailed, Context, Dueline, DurableContext, Retry
from dueline.durable import gathers
from dueline.jobs import called_jobs
from tests.harness.durable_stage import HOWS, KINDS, DurableStage, Stages

RESULTS = {
    "calls": [2, 4, "dead", 12],
    "gathers": [0, 2, 4, 6, 8, "dead"],
    "loops": ["3", "2", "1"],
}
"""What the functions return."""


def declare(app: Dueline, stage: DurableStage) -> None:
    """Declare functions that call others."""

    @app.task(name="double", retry=Retry.fixed(1, attempts=3))
    def double(ctx: Context, n: int) -> int:
        stage.effect(f"double {n} {ctx.job_id.hex()}")
        return 2 * n

    @app.task(name="fail", retry=Retry(attempts=1))
    def fail(ctx: Context) -> int:
        stage.effect(f"fail 0 {ctx.job_id.hex()}")
        raise ValueError("for good")

    @app.durable(name="inner", retry=Retry.fixed(1, attempts=5))
    def inner(ctx: DurableContext, n: int) -> int:
        stage.effect(f"inner {n} {ctx.job_id.hex()}")
        return int(ctx.step(int, 3 * n, name="three")) + int(ctx.call(double, n + 10)) - 20 - 2 * n

    @app.durable(name="calls", retry=Retry.fixed(1, attempts=5))
    def calls(ctx: DurableContext) -> list[object]:
        first = ctx.call(double.using(keep=0), 1)
        handle = ctx.call(double, 2, wait=False)
        ctx.sleep(10)
        second = handle.result()
        third = "done"
        try:
            ctx.call(fail)
        except CallFailed as error:
            third = error.status
        return [first, second, third, ctx.call(inner, 4)]

    @app.durable(name="gathers", retry=Retry.fixed(1, attempts=5))
    async def gathers(ctx: DurableContext) -> list[object]:
        numbers = [double.call(n) for n in range(5)]
        answers = await ctx.gather([*numbers, fail.call()], limit=2, return_exceptions=True)
        return [each.status if isinstance(each, CallFailed) else each for each in answers]

    @app.durable(name="loops", retry=Retry.fixed(1, attempts=5))
    def loops(ctx: DurableContext, n: int = 3, before: tuple[str, ...] = ()) -> list[str]:
        if n == 0:
            return list(before)
        text = ctx.step(str, n, name="text")
        if ctx.patched("later"):
            ctx.sleep(1)
        ctx.restart_with(n - 1, before=(*before, text))
        return []


@pytest.fixture(params=KINDS)
def stages(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stages]:
    """Make stages on a kind of store; gathers are stored in small parts."""
    monkeypatch.setattr(gathers, "_PART", 2)
    monkeypatch.setattr(called_jobs, "_BLOCK", 2)
    made = Stages(request.param, tmp_path, declare, every=5)
    yield made
    made.close()


def jobs_by_call(stage: DurableStage) -> dict[str, set[str]]:
    """Return the ids of the jobs that ran, by what was called."""
    jobs: dict[str, set[str]] = defaultdict(set)
    for effect in stage.effects:
        name, number, job = effect.split()
        jobs[f"{name} {number}"].add(job)
    return jobs


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("function", list(RESULTS))
def test_no_stop_repeats_or_loses_a_call(stages: Stages, function: str, how: str) -> None:
    """Disturb each call of the store: each call is one job, and its end is the same."""
    # W12, rules D3, D4, D9, D13
    for stage, note in stages.disturbed(function, how):
        assert stage.outcome() == RESULTS[function], note
        for call, jobs in jobs_by_call(stage).items():
            assert len(jobs) == 1, f"{call} is stored twice: {note}"
        for effect, times in stage.effects.items():
            most = 20 if effect.startswith("inner") else 2
            assert 1 <= times <= most, f"{effect} ran {times} times: {note}"
