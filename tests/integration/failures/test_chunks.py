"""Chunks in real processes that die, lose claims or are told to stop."""

import os
import signal

import pytest

from tests.harness.failing_world import TAKEN_OVER_S, World


def test_a_chunk_that_dies_with_its_child_runs_again_one_by_one(world: World) -> None:
    # W6, rule A1: a crash counts for each of them, and each is a suspect
    jobs = [world.put("hold_all", tag) for tag in "abc"]
    worker = world.worker(processes=1, concurrency=1)
    world.until_started("a", "b", "c")
    waiting = world.put("hold_all", "d")
    world.let_go("d")
    os.kill(world.notes("start", "a")[0].process, signal.SIGKILL)
    for tag in "abc":
        world.let_go(tag)
    world.until_done(*jobs, waiting)
    assert [job.result(0) for job in (*jobs, waiting)] == [1, 1, 1, 1]
    for job in jobs:
        assert [one.outcome for one in world.attempts(job)] == ["crashed", "done"]
    # It may have been released meanwhile, since it waited behind a slow call.
    outcomes = [one.outcome for one in world.attempts(waiting)]
    assert [one for one in outcomes if one != "given_back"] == ["done"]
    worker.stop()


@pytest.mark.parametrize("lease_s", [TAKEN_OVER_S])
def test_a_chunk_that_dies_with_its_worker_is_taken_over_one_by_one(world: World) -> None:
    jobs = [world.put("hold_all", tag) for tag in "abc"]
    worker = world.worker()
    world.until_started("a", "b", "c")
    world.until(lambda: all(world.row(job).state == 2 for job in jobs))  # that is written
    worker.process.kill()
    worker.wait()
    for tag in "abc":
        world.let_go(tag)
    other = world.worker()
    world.until_done(*jobs)
    assert [job.result(0) for job in jobs] == [1, 1, 1]
    assert [world.row(job).crashes for job in jobs if job.status != "done"] == []
    other.stop()


def test_a_chunk_that_runs_too_long_is_killed_and_all_of_it_fails(world: World) -> None:
    # R9
    jobs = [world.put("spin_all", tag) for tag in "ab"]
    worker = world.worker(processes=1, concurrency=1)
    world.until(lambda: all(job.status == "dead" for job in jobs))
    for job in jobs:
        assert "kill_after" in world.row(job).error
        assert world.row(job).crashes == 0
    worker.stop()


def test_a_worker_that_stops_lets_its_chunk_end_and_gives_back_the_rest(world: World) -> None:
    jobs = [world.put("hold_all", tag) for tag in "abc"]
    worker = world.worker(processes=1, concurrency=2)
    world.until_started("a", "b", "c")
    left = world.put("linger", "d")
    world.until(lambda: world.row(left).is_claimed())
    worker.signal(signal.SIGTERM)
    world.until(lambda: not world.row(left).is_claimed())
    world.let_go("a")
    worker.wait()
    assert [job.result(0) for job in jobs] == [3, 3, 3]
    assert world.notes("start", "d") == []
