"""Sections that must not repeat, on each kind of store (C9)."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dueline import Conflict, Context, Dueline, DurableContext, Retry
from dueline.core.attempt import Done, Ended
from dueline.core.clock import SECOND_US
from dueline.core.errors import LeaseLost
from dueline.core.job import Job as Row
from dueline.core.store import Lease, Want
from dueline.foresight import dead_growth
from dueline.jobs.history import attempts
from dueline.jobs.queue import Queues
from dueline.tasks import sections
from dueline.worker.settler import Settler
from tests.harness.durable_stage import HOWS, KINDS, DurableStage, Stages, nothing

EACH = pytest.mark.parametrize("how", HOWS)
UNCERTAIN = "Uncertain: "


def declare(app: Dueline, stage: DurableStage) -> None:
    """Declare jobs with sections: one that ends, and others that end in other ways."""

    @app.task(name="charge", retry=Retry.fixed(1, attempts=5))
    def charge(ctx: Context) -> str:
        stage.effect("called")
        with ctx.not_repeatable():
            assert not stage.effect("begun"), "a section begins twice"
        stage.effect("after")
        return "charged"

    @app.task(name="fail inside", retry=Retry.fixed(1, attempts=3))
    def fail_inside(ctx: Context) -> None:
        with ctx.not_repeatable():
            stage.effect("begun")
            raise ValueError("declined")

    @app.task(name="fail after", retry=Retry.fixed(1, attempts=3))
    def fail_after(ctx: Context) -> str:
        if ctx.has_section_ended():
            return "went on"
        with ctx.not_repeatable():
            stage.effect("begun")
        raise ValueError("after")

    @app.task(name="enter again", retry=Retry.fixed(1, attempts=3))
    def enter_again(ctx: Context) -> str:
        with ctx.not_repeatable():
            stage.effect("begun")
        with ctx.not_repeatable():
            stage.effect("second")
        raise ValueError("after")

    @app.task(name="nested", retry=Retry(attempts=1))
    def nested(ctx: Context) -> None:
        with ctx.not_repeatable(), ctx.not_repeatable():
            stage.effect("begun")

    @app.task(name="interrupted", retry=Retry.fixed(1, attempts=3))
    def interrupted(ctx: Context) -> None:
        with ctx.not_repeatable():
            stage.effect("begun")
            raise SystemExit(1)

    @app.task(name="coroutine")
    async def coroutine(ctx: Context) -> int:
        async with ctx.not_repeatable():
            await asyncio.sleep(0)
            return stage.effect("begun")

    @app.durable(name="durable", retry=Retry(attempts=1))
    def durable(ctx: DurableContext) -> None:
        ctx.not_repeatable()


@pytest.fixture(params=KINDS)
def stages(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stages]:
    """Make stages on a kind of store."""
    made = Stages(request.param, tmp_path, declare)
    yield made
    made.close()


def finished(stages: Stages, name: str) -> DurableStage:
    """Run a job to its end."""
    stage = stages.fresh()
    stage.begin(function=name)
    stage.others_finish()
    return stage


def died_inside(stages: Stages, stage: DurableStage | None = None) -> DurableStage:
    """Let a worker claim a job, begin a section and die."""
    stage = stage or stages.fresh()
    stage.begin(function="charge")
    queues = stage.onlooker.queues
    (job,) = claimed(queues)
    sections.Section(queues.engine, job).__enter__()
    return stage


def claimed(queues: Queues) -> list[Row]:
    """Claim as a worker that does nothing else."""
    engine = queues.engine
    lanes = list(engine.lanes_of("default"))
    lease = Lease(engine.time.earliest_us(), 30 * SECOND_US, "died", engine.ids.token())
    wants = [Want(lane, 1) for lane in lanes]
    return list(engine.store.claim(wants, limit=1, lease=lease).jobs)


def disturbed(stages: Stages, how: str) -> Iterator[tuple[DurableStage, str]]:
    """Yield the ends of runs in each of which another call of the store is disturbed."""
    at, was_disturbed = stages._first_call("charge", how), True
    while was_disturbed:
        stage = stages.fresh()
        stage.begin(function="charge")
        was_disturbed = stage.run(at, how, between=nothing)
        yield stage, f"{how} at call {at}: {dict(stage.effects)}, {stage.outcome()}"
        at += stages.stride


@pytest.mark.slow
@EACH
def test_a_section_begins_once_whatever_stops_its_worker(stages: Stages, how: str) -> None:
    for stage, words in disturbed(stages, how):
        assert stage.effects["begun"] <= 1, words
        if stage.job.status == "done":
            assert stage.effects["begun"] == 1, words
        else:
            assert UNCERTAIN in str(stage.outcome()), words


def test_a_job_whose_worker_dies_in_a_section_is_uncertain(stages: Stages) -> None:
    stage = died_inside(stages)
    stage.others_finish()
    assert (stage.job.status, stage.effects["called"]) == ("dead", 0)
    assert UNCERTAIN in str(stage.outcome())
    assert stage.job.is_uncertain
    assert [job.id for job in stage.onlooker.admin.list("state:uncertain").jobs] == [stage.job.id]
    assert stage.onlooker.admin.list("state:dead").jobs
    assert "died" in stage.job.explain().sentence


def test_the_history_has_sections_with_the_fences_of_their_claims(stages: Stages) -> None:
    # P14, P15, V2
    stage = stages.fresh()
    stage.onlooker.queue("default", history="all")
    for name in ("interrupted", "fail after"):
        stage.begin(function=name)
        stage.others_finish()
    died = died_inside(stages, stage=stage)
    stage.others_finish()
    seen: dict[str, set[tuple[int, str]]] = {}
    for event in attempts(stage.store, "default", 1, everything=True):
        word = event.error if event.outcome == sections.SECTION else event.outcome
        seen.setdefault(event.job, set()).add((event.fence, word))
    assert list(seen.values()) == [
        {(0, "enqueued"), (1, "began"), (1, "dead")},
        {(0, "enqueued"), (1, "began"), (1, "ended"), (1, "retried"), (2, "done")},
        {(0, "enqueued"), (1, "began"), (1, "dead")},
    ]
    assert died.job.is_uncertain


def test_a_refused_outcome_is_in_the_history_under_its_fence(stages: Stages) -> None:
    # V2
    stage = stages.fresh()
    stage.begin(function="charge")
    engine = stage.onlooker.queues.engine
    (late,) = claimed(stage.onlooker.queues)
    stage.clock.advance(61)
    assert claimed(stage.onlooker.queues)
    ended = Ended(late, Done(b"1"), late.claimed_us, engine.time.latest_us())
    assert Settler(engine, {}, random.Random(1)).settle([ended], []) == [late]
    (event,) = attempts(stage.store, "default", 1, everything=True)
    assert (event.outcome, event.fence, event.worker) == ("refused", late.fence, "")
    assert "its outcome was done" in event.error


def test_uncertain_jobs_raise_an_alert(stages: Stages) -> None:
    stage = died_inside(stages)
    engine = stage.onlooker.queues.engine
    past, _ = dead_growth.look_at(
        engine, "default", None, is_raised=False, now_us=engine.time.latest_us()
    )
    stage.others_finish()
    stage.clock.advance(10)
    past, (raised,) = dead_growth.look_at(
        engine, "default", past, is_raised=False, now_us=engine.time.latest_us()
    )
    assert (raised.kind, raised.facts) == ("uncertain", {"uncertain": 1})
    stage.clock.advance(400)
    past, raised_later = dead_growth.look_at(
        engine, "default", past, is_raised=False, now_us=engine.time.latest_us()
    )
    assert not raised_later


def test_a_lost_claim_begins_no_section(stages: Stages) -> None:
    stage = stages.fresh()
    stage.begin(function="charge")
    queues = stage.onlooker.queues
    (job,) = claimed(queues)
    stage.clock.advance(61)
    assert claimed(queues)[0].fence == job.fence + 1
    late = sections.Section(queues.engine, job)
    with suppress(LeaseLost):
        late.__enter__()
    assert not late.is_open
    assert not sections.marks_of(stage.store, job.id)


def test_a_retry_by_hand_enters_the_section(stages: Stages) -> None:
    stage = died_inside(stages)
    stage.others_finish()
    stage.job.retry()
    stage.others_finish()
    assert (stage.job.status, stage.effects["begun"]) == ("done", 1)
    (mark,) = sections.marks_of(stage.store, stage.job._id)
    assert not mark.is_open


def test_an_operator_settles_the_job_with_a_value(stages: Stages) -> None:
    stage = died_inside(stages)
    stage.others_finish()
    stage.job.settle("charged by hand")
    assert (stage.job.status, stage.job.result(timeout=0)) == ("done", "charged by hand")
    assert not stage.effects["begun"]


def test_an_exception_in_the_body_fails_the_attempt(stages: Stages) -> None:
    stage = finished(stages, "fail inside")
    assert (stage.job.status, stage.effects["begun"]) == ("dead", 3)
    assert UNCERTAIN not in str(stage.outcome())


def test_a_later_attempt_can_skip_a_section_that_ended(stages: Stages) -> None:
    stage = finished(stages, "fail after")
    assert (stage.outcome(), stage.effects["begun"]) == ("went on", 1)


def test_a_section_that_ended_does_not_begin_again(stages: Stages) -> None:
    stage = finished(stages, "enter again")
    assert (stage.job.status, stage.effects["begun"], stage.effects["second"]) == ("dead", 1, 1)
    assert "an earlier one ended" in str(stage.outcome())
    assert stage.job.is_uncertain


def test_an_interrupt_in_the_body_is_uncertain(stages: Stages) -> None:
    stage = finished(stages, "interrupted")
    assert stage.effects["begun"] == 1
    assert stage.job.is_uncertain


def test_sections_are_refused_where_they_cannot_be(stages: Stages) -> None:
    assert "is open already" in str(finished(stages, "nested").outcome())
    assert "once=True" in str(finished(stages, "durable").outcome())


def test_a_coroutine_has_sections(stages: Stages) -> None:
    assert finished(stages, "coroutine").outcome() == 0


def test_only_dead_jobs_are_settled(stages: Stages) -> None:
    stage = stages.fresh()
    stage.begin(function="charge")
    with pytest.raises(Conflict, match="cannot be settled"):
        stage.job.settle(1)
    stage.others_finish()
    assert stage.job.result(timeout=0) == "charged"
