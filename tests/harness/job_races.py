"""Two processes that change the same job."""

from dueline.core.attempt import Done, Ended, FinalState, Outcome
from dueline.core.job import Job, JobId
from dueline.jobs.completion import Finished, finish, finish_of
from dueline.jobs.history import attempt_of, attempts
from dueline.jobs.queue import Queues
from tests.harness.interleaving import Turns
from tests.harness.job_runs import text_of
from tests.harness.lives import AFTER_LEASES_US, Stage, put_one

SWITCHES_MAX = 3


JOB = JobId((1).to_bytes(16))


def end_of(queues: Queues, job: Job, state: FinalState, name: str) -> Finished:
    """Gather an end that tells who made it."""
    ended_us = queues.engine.time.latest_us()
    value = f'"{name}"' if state == "done" else ""
    outcome = Outcome(state, ended_us, value=value, error="" if value else name)
    attempt = attempt_of(
        Ended(job, Done(b""), ended_us, ended_us), outcome=state, error=outcome.error
    )
    return Finished(
        job, finish_of(job, outcome, attempt, queues.engine.catalog.settings("default"))
    )


def finish_as(queues: Queues, job: Job, state: FinalState, name: str) -> bool:
    """End a claimed job; tell whether that held."""
    return finish(queues.engine.store, [end_of(queues, job, state, name)])[0]


def stage_of(turns: Turns | None = None) -> tuple[Stage, Queues, Queues]:
    """Set a stage with one job and two processes."""
    stage = Stage(text_of)
    put_one(stage)
    both = (stage.queues(), stage.queues())
    for queues in both:
        queues.engine.time.latest_us()
        queues.engine.catalog.settings("default")
        queues.engine.catalog.settings("default")
    stage.turns = turns
    return stage, *both


def check_one_end(stage: Stage) -> Outcome:
    """See the job through; check that its first end is the only one."""
    stage.turns = None
    for _ in range(3):
        stage.clock.advance(us=AFTER_LEASES_US)
        stage.work_to_the_end()
    stage.sweep_to_the_end()
    queues = stage.queues()
    end = stage.ends[JOB]
    assert queues.find(JOB).status == end.state
    assert len(stage.rows()) == stage.listed("default!dead") == (end.state == "dead")
    assert all(row.error == end.error for row in stage.rows())
    assert stage.listed("default") == 0
    told = [
        (attempt.outcome, attempt.error)
        for attempt in attempts(queues.engine.store, "default", 1)
        if attempt.outcome != "crashed"
    ]
    assert told == [(end.state, end.error)] * bool(end.value or end.error)
    return end


def check_rerun(stage: Stage) -> None:
    """Check that there is one row, then see it through."""
    stage.turns = None
    stage.ends.clear()
    stage.clock.advance(us=1)
    stage.queues().retry(JOB)
    assert [row.lane.queue for row in stage.rows()] == ["default"]
    stage.work_to_the_end()
    stage.sweep_to_the_end()
    assert (stage.calls, stage.queues().find(JOB).status) == (1, "done")
    assert stage.rows() == []
    assert stage.listed("default") == stage.listed("default!dead") == 0
