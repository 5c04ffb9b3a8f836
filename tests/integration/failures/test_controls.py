"""Jobs that run: cancelled, watched, and kept alive."""

import pytest

from dueline import Retry
from dueline.core.clock import SECOND_US
from dueline.core.job import State
from dueline.jobs import cancel_requests
from tests.harness.failing_world import TAKEN_OVER_S, World

BOTH = pytest.mark.parametrize("processes", [0, 2])


@BOTH
@pytest.mark.parametrize("task", ["listen", "doze"])
def test_a_running_job_can_be_cancelled(world: World, processes: int, task: str) -> None:
    # C19
    job, other = world.put(task, "a"), world.put("hold", "b")
    worker = world.worker(processes=processes, concurrency=2)
    world.until_started("a", "b")
    assert not job.cancel()
    world.until(lambda: job.status == "cancelled")
    assert not world.notes("end", "a")
    assert len(world.notes("cleaned", "a")) == (task == "doze")
    assert [one.outcome for one in world.attempts(job)] == ["cancelled"]
    world.let_go("b")
    world.until_done(other)
    worker.stop()


@BOTH
def test_a_handler_that_never_looks_runs_to_its_end(world: World, processes: int) -> None:
    # C19
    job = world.put("hold", "a")
    worker = world.worker("-v", processes=processes)
    world.until_started("a")
    assert not job.cancel()
    holder = world.row(job).worker
    world.until(lambda: not cancel_requests.of_worker(world.app.store, holder))  # it knows by now
    world.let_go("a")
    world.until_done(job)
    worker.stop()


@pytest.mark.parametrize("lease_s", [TAKEN_OVER_S])
@BOTH
def test_a_cancelled_job_is_not_run_again_after_its_worker_died(
    world: World, processes: int
) -> None:
    # C19
    job = world.put("hold", "a")
    first = world.worker(processes=processes)
    world.until_started("a")
    world.until(lambda: world.row(job).state == State.STARTED)
    first.stall()  # it cannot learn of the wish any more
    assert not job.cancel()
    first.process.kill()
    first.wait()
    second = world.worker(processes=processes)
    world.until(lambda: job.status == "cancelled")
    assert len(world.notes("start", "a")) == 1
    assert [one.outcome for one in world.attempts(job)] == ["crashed", "cancelled"]
    second.stop()


@pytest.mark.parametrize("lease_s", [TAKEN_OVER_S])
@BOTH
def test_progress_is_seen_and_survives_failure_and_death(world: World, processes: int) -> None:
    # C18
    job = world.put("climb", "a")
    first = world.worker(processes=processes)
    world.until(lambda: world.notes("from 1", "a"))
    world.until(lambda: job.progress is not None and job.progress.done == 2)
    assert job.progress is not None
    assert (job.progress.total, job.progress.note) == (10, "climbing")
    first.process.kill()
    first.wait()
    second = world.worker(processes=processes)
    world.until(lambda: world.notes("from 2", "a"))
    world.let_go("a")
    world.until_done(job)
    assert job.result(0) == 2
    world.until(lambda: job.progress is not None and job.progress.done == 3)
    assert [note.what for note in world.notes(tag="a")] == ["from 0", "from 1", "from 2"]
    second.stop()


@pytest.mark.parametrize("lease_s", [TAKEN_OVER_S])
@pytest.mark.parametrize("processes", [0, 1])
def test_a_job_that_outlasts_its_lease_runs_once_while_its_worker_lives(
    world: World, lease_s: float, processes: int
) -> None:
    # C6
    job = world.put("hold", "long")
    long = world.worker(processes=processes)
    world.until_started("long")
    claimed_until_us = world.row(job).at_us
    other = world.worker()  # it would take the job over, if the claim ended
    world.until_it_serves(other)
    long_after_us = claimed_until_us + round(lease_s * SECOND_US)
    world.until(lambda: world.app.clock.wall_us() > long_after_us)
    world.let_go("long")
    world.until_done(job)
    assert len(world.notes("start", "long")) == 1
    assert [one.outcome for one in world.attempts(job)] == ["done"]
    assert world.attempts(job)[0].fence == 1
    long.stop()
    other.stop()


@pytest.mark.parametrize("processes", [0, 1])
def test_a_running_job_can_be_ended_by_force(world: World, processes: int) -> None:
    # C19: in a thread, in a batch, and beside another job, which is not suspected
    jobs = [world.put("hold", "a"), world.put("hold_all", "b"), world.put("hold_all", "c")]
    other = world.put("hold", "other")
    worker = world.worker("-v", processes=processes, concurrency=4)
    world.until_started("a", "b", "c", "other")
    assert not jobs[0].cancel(force=True)
    assert not jobs[1].cancel(force=True)
    world.until(lambda: [job.status for job in jobs[:2]] == ["cancelled"] * 2)
    for tag in ("a", "c", "other"):  # what cannot be stopped ends now, without effect
        world.let_go(tag)
    world.until_done(jobs[2], other)
    for job in jobs[:2]:
        assert [one.outcome for one in world.attempts(job)] == ["cancelled"]
    assert bool(world.notes("end", "a")) == (processes == 0)
    row = world.attempts(other)
    assert [one.outcome for one in row] == ["given_back"] * processes + ["done"]
    worker.stop()
    assert "lost" not in worker.log()


def test_a_call_is_killed_after_its_own_limit(world: World) -> None:
    # A12
    own = world.app.unchecked("hold").using(kill_after=0.2, retry=Retry(attempts=1))
    job = own.enqueue("a")
    worker = world.worker(processes=1, concurrency=1)
    world.until(lambda: job.status == "dead")
    assert "longer than 0.2 s (kill_after)" in world.row(job).error
    worker.stop()
