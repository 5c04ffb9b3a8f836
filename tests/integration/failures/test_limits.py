"""Handlers that are killed, children that are replaced."""

from typing import Any

import pytest

from dueline.api.job_handle import Job
from tests.harness.failing_tasks import DEAF_KILL_AFTER_S, KILL_AFTER_S
from tests.harness.failing_world import World


@pytest.mark.parametrize(
    ("task", "starts", "limit_s"), [("endless", 2, KILL_AFTER_S), ("deaf", 1, DEAF_KILL_AFTER_S)]
)
def test_a_handler_that_does_not_end_is_killed(
    world: World, task: str, starts: int, limit_s: float
) -> None:
    # R9: an endless loop, and a call into C that no exception reaches
    killed = f"JobTimeout: killed: it ran longer than {limit_s:g} s (kill_after)"
    job = world.put(task, "stuck")
    worker = world.worker(processes=1, concurrency=1)
    world.until(lambda: job.status == "dead")
    row = world.row(job)
    assert (row.error, row.errors, row.crashes) == (killed, starts, 0)
    assert [one.error for one in world.attempts(job)] == [killed] * starts
    told = [note.process for note in world.notes("start", "stuck")]
    assert len(set(told)) == len(told) <= starts  # one may be killed before it could say so
    other = world.put("fine", "other")
    world.until_done(other)
    worker.stop()


def test_jobs_next_to_a_killed_handler_are_released(world: World) -> None:
    # R9: the kill was the worker's own, so nothing else is suspected
    beside = [world.put("hold", f"beside {number}") for number in range(2)]
    worker = world.worker(processes=1, concurrency=3)
    world.until_started("beside 0", "beside 1")
    stuck = world.put("deaf", "stuck")
    world.until(lambda: stuck.status == "dead")
    world.until(lambda: all(len(world.notes("start", f"beside {one}")) == 2 for one in range(2)))
    for number, job in enumerate(beside):
        row = world.row(job)
        assert (row.errors, row.crashes, row.alone) == (0, 0, False)
        world.let_go(f"beside {number}")
    world.until_done(*beside)
    for job in beside:
        assert [one.outcome for one in world.attempts(job)] == ["given_back", "done"]
    worker.stop()


def test_a_limit_that_cannot_hold_is_told_once(world: World) -> None:
    # R9: threads cannot be killed
    worker = world.worker()
    world.until_done(world.put("fine", "a"))
    worker.stop()
    warned = [line for line in worker.log().splitlines() if "kill_after" in line]
    assert len(warned) == 1
    assert "deaf, endless, spin_all can only be interrupted" in warned[0]


def test_children_are_replaced_after_a_number_of_jobs_without_releasing_any(world: World) -> None:
    # R10
    worker = world.worker("--recycle-jobs", "20", processes=2, concurrency=4)
    jobs: list[Job[Any]] = []
    lives: list[set[int]] = []

    def both_are_others() -> bool:
        """Run more jobs; tell whether there are two children, neither of which was there before."""
        jobs.extend(world.put("brief", f"job {number}", 0.01) for number in range(40))
        world.until_done(*jobs[-40:])
        world.until(lambda: len(worker.children()) == 2)
        children = set(worker.children())
        is_so = len(children) == 2 and not children & set().union(*lives)
        lives.extend([children] if is_so else [])
        return is_so

    for _ in range(2):
        world.until(both_are_others)
    assert len(world.notes("start")) == len(jobs)
    assert {one.outcome for one in world.attempts()} == {"done"}
    worker.stop()


def test_a_child_goes_only_once_another_is_there(world: World) -> None:
    # R10: capacity does not dip, and what runs is waited for
    hold = world.put("hold", "long")
    worker = world.worker("--recycle-jobs", "3", processes=1, concurrency=2)
    world.until_started("long")
    (first,) = worker.children()
    world.until_done(*(world.put("fine", f"short {number}") for number in range(3)))
    world.until(lambda: len(worker.children()) == 2)
    late = world.put("fine", "late")
    world.until_done(late)
    assert first in worker.children()
    world.let_go("long")
    world.until_done(hold)
    assert hold.result(0) == first
    world.until(lambda: first not in worker.children())
    assert [one.outcome for one in world.attempts(hold)] == ["done"]
    worker.stop()


def test_a_child_that_grows_is_replaced(world: World) -> None:
    # R10
    job = world.put("grow", "big", 200)
    worker = world.worker("--recycle-mb", "150", processes=1, concurrency=1)
    world.until_done(job)
    large = job.result(0)
    world.until(lambda: len(worker.children()) == 1 and large not in worker.children())
    after = world.put("grow", "small", 1)
    world.until_done(after)
    assert after.result(0) != large
    assert {one.outcome for one in world.attempts()} == {"done"}
    worker.stop()
