"""Workers that are told to stop, or stalled (H11, R9)."""

import os
import signal
import time

import pytest

from dueline.api.signals import SAME_REQUEST_S
from dueline.core.job import State
from dueline.worker.log import LINES_MAX
from tests.harness.failing_world import TAKEN_OVER_S, World

SLOTS = 16
"""With so many a worker claims ahead even where a machine is so slow that the shortest job takes
half a second."""

BOTH = pytest.mark.parametrize("processes", [0, 2])


@BOTH
def test_the_first_sigterm_drains(world: World, processes: int) -> None:
    warm = [world.put("fine", f"warm {number}") for number in range(60)]
    worker = world.worker(processes=processes, concurrency=SLOTS)
    world.until_done(*warm)  # from now on it knows that jobs are short, and claims ahead
    holds = [f"hold {number}" for number in range(SLOTS)]
    running = [world.put("hold", tag) for tag in holds[:-1]]
    world.until_started(*holds[:-1])
    world.until_done(world.put("fine", "last"))  # so it claims ahead, also after a slow start
    running.append(world.put("hold", holds[-1]))
    world.until_started(*holds)
    waiting = [world.put("brief", f"waiting {number}", 0.0) for number in range(5)]
    world.until(lambda: any(world.row(job).is_claimed() for job in waiting))
    worker.signal(signal.SIGTERM)
    world.until(lambda: all(world.row(job).state == 0 for job in waiting))
    for job in waiting:
        row = world.row(job)
        assert (row.errors, row.crashes, row.at_us) == (0, 0, row.pos_us)
    assert not world.notes("end", "hold 0")
    for tag in holds:
        world.let_go(tag)
    assert worker.wait() == 128 + signal.SIGTERM
    assert {job.status for job in running} == {"done"}
    assert {job.status for job in waiting} == {"ready"}
    assert not [one for one in world.notes("start") if one.tag.startswith("waiting")]


@BOTH
def test_coroutines_run_beside_each_other_and_drain(world: World, processes: int) -> None:
    # A2, R11
    tags = [f"wait {number}" for number in range(50)]
    jobs = [world.put("hold_async", tag) for tag in tags]
    worker = world.worker(processes=processes, concurrency=50)
    world.until_started(*tags)
    assert len({one.process for one in world.notes("start")}) == max(1, processes)
    worker.signal(signal.SIGTERM)
    for tag in tags:
        world.let_go(tag)
    assert worker.wait() == 128 + signal.SIGTERM
    assert {job.status for job in jobs} == {"done"}


@BOTH
def test_hooks_hear_of_runs_where_they_run_and_of_ends_in_the_worker(
    world: World, processes: int
) -> None:
    # A6
    job = world.put("fine", "a")
    worker = world.worker("--burst", processes=processes)
    assert worker.wait() == 0
    (ran,) = world.notes("start", "a")
    (before,) = world.notes("before", job.id)
    (settled,) = world.notes("settled", job.id)
    assert before.process == ran.process
    assert settled.process == worker.process.pid
    assert (ran.process == worker.process.pid) == (processes == 0)


@BOTH
def test_the_second_sigterm_gives_everything_back_at_once(world: World, processes: int) -> None:
    job = world.put("hold", "a")
    worker = world.worker("-v", "--drain", "1h", processes=processes)
    world.until_started("a")
    worker.signal(signal.SIGTERM)
    world.until(lambda: "stops; it holds 1 jobs" in worker.log())
    time.sleep(SAME_REQUEST_S)  # signals that are closer are one request
    worker.signal(signal.SIGTERM)
    world.until(lambda: worker.process.poll() is not None)
    row = world.row(job)
    assert (job.status, row.errors, row.crashes, row.at_us) == ("ready", 0, 0, row.pos_us)
    assert [one.outcome for one in world.attempts(job)] == ["given_back"]


@BOTH
def test_a_drain_that_takes_too_long_gives_back(world: World, processes: int) -> None:
    job = world.put("hold", "a")
    worker = world.worker("--drain", "200ms", processes=processes)
    world.until_started("a")
    worker.stop()
    assert job.status == "ready"
    assert (world.row(job).errors, world.row(job).crashes) == (0, 0)


@pytest.mark.parametrize("lease_s", [TAKEN_OVER_S])
@BOTH
def test_a_stalled_worker_cannot_finish_what_another_took_over(
    world: World, processes: int
) -> None:
    job = world.put("hold", "a")
    stalled = world.worker(processes=processes, concurrency=2)
    world.until_started("a")
    world.until(lambda: world.row(job).state == State.STARTED)  # the parent knows, too
    frozen = stalled.stall(*stalled.children())
    second = world.worker(concurrency=2)
    world.until(lambda: len(world.notes("start", "a")) == 2)
    world.let_go("a")
    world.until_done(job)
    result = job.result(0)
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    world.until(lambda: "lost its claim" in stalled.log())
    assert f"job={job.id} task=hold attempt=1 lost its claim" in stalled.log()
    assert job.result(0) == result == second.process.pid
    assert [one.outcome for one in world.attempts(job)] == ["crashed", "done"]
    stalled.stop()
    second.stop()


@pytest.mark.parametrize("lease_s", [TAKEN_OVER_S])
@BOTH
def test_a_worker_that_stalls_alone_finishes_each_job_once(world: World, processes: int) -> None:
    jobs = [world.put("listen", f"job {number}") for number in range(2)]
    worker = world.worker(processes=processes, concurrency=4)
    world.until_started("job 0", "job 1")
    lease_ends = [world.row(job).at_us for job in jobs]
    worker.stall()
    world.until(lambda: world.app.clock.wall_us() > max(lease_ends) + 1_000_000)
    worker.signal(signal.SIGCONT)
    beaten = [world.row(job).at_us for job in jobs]
    world.until(lambda: all(world.row(job).at_us > max(beaten) for job in jobs))
    world.let_go("job 0")
    world.let_go("job 1")
    world.until_done(*jobs)
    for job in jobs:
        outcomes = [one.outcome for one in world.attempts(job)]
        assert outcomes.count("done") == 1
        assert outcomes in (["done"], ["crashed", "done"])
    worker.stop()


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("task", ["overdue", "overdue_async"])
def test_a_handler_that_takes_too_long_is_interrupted(
    world: World, processes: int, task: str
) -> None:
    job = world.put(task, "a")
    other = world.put("brief", "b", 0.5)
    worker = world.worker(processes=processes, concurrency=4)
    world.until(lambda: job.status == "dead")
    assert world.row(job).error.startswith("JobTimeout")
    world.until_done(other)
    worker.stop()


def test_a_failure_is_one_record_with_its_traceback(world: World) -> None:
    job = world.put("fail", "a")
    worker = world.worker()
    world.until(lambda: job.status == "dead")
    worker.stop()
    first, second = (one for one in records(worker.log()) if "task=fail" in one)
    for number, record in enumerate((first, second), 1):
        assert f"job={job.id} task=fail attempt={number}" in record
        assert record.splitlines()[1] == "    Traceback (most recent call last):"
        assert record.splitlines()[-1] == "    ValueError: a is no good"
    assert "retried, again in" in first
    assert "dead after" in second


@BOTH
def test_v_logs_a_line_a_job(world: World, processes: int) -> None:
    jobs = [world.put("fine", str(number)) for number in range(LINES_MAX + 5)]
    worker = world.worker("--burst", "-v", processes=processes)
    assert worker.wait() == 0
    for job in jobs:
        lines = [line for line in worker.log().splitlines() if job.id in line]
        assert len(lines) == 1
        assert "task=fine attempt=1 done after" in lines[0]


@pytest.mark.parametrize(("processes", "lease_s"), [(0, 1.0), (2, 60.0)])
def test_a_crash_is_logged(world: World, processes: int) -> None:
    job = world.put("vanish", "a")
    if processes:
        worker = world.worker("--burst", processes=processes)
        assert worker.wait() == 0
        found = [one for one in records(worker.log()) if job.id in one]
        assert len(found) == 3
        assert all("It exited: 3." in one for one in found)
    else:
        worker = world.restart_until_dead(job)
        assert f"job={job.id} task=vanish dead: Poison" in worker.log()
        worker.stop()


def test_a_job_of_an_unknown_task_waits_for_a_worker_that_knows_it(world: World) -> None:
    job = world.put("of_another_release", "a")
    other = world.put("fine", "b")
    for wait in ("wait", "wait again"):
        worker = world.worker("--burst")
        assert worker.wait() == 8, wait
        row = world.row(job)
        assert (row.errors, row.crashes, row.state, row.at_us) == (0, 0, 0, row.pos_us)
        assert world.attempts(job) == []
        assert worker.log().count("no live worker knows task of_another_release") == 1, wait
    assert other.status == "done"


def records(log: str) -> list[str]:
    """Split a log into records: each opens with the year."""
    found: list[str] = []
    for line in log.splitlines():
        if line[:3] == "202":
            found.append(line)
        else:
            found[-1] += "\n" + line
    return found


def test_a_log_is_split_into_records() -> None:
    assert records("2026 a\n b\n2026 c") == ["2026 a\n b", "2026 c"]
