"""What a worker measures, and writes for all processes."""

from pathlib import Path

import pytest
from hypothesis import given, strategies

from dueline.coordination import run_times
from dueline.coordination.run_times import (
    RECENT,
    SAMPLES,
    RunTimes,
    bounds_of,
    middle_of,
    step_of,
    worker_times,
)
from dueline.core.attempt import Done, Ended, Failed
from dueline.core.clock import SECOND_US
from dueline.core.job import Job
from tests.harness.world import World, world_on

MS = 1_000


@pytest.fixture
def world() -> World:
    return world_on("memory", Path())


@given(strategies.integers(0, 2**45))
def test_steps_are_narrow(span_us: int) -> None:
    first, end = bounds_of(step_of(span_us))
    assert first <= span_us < end
    assert end - first <= max(1, first // 4)
    assert first <= middle_of(step_of(span_us)) <= end


def ended(job: Job, run_us: int, *, fails: bool = False, late_us: int = 0) -> Ended:
    start_us = job.due_us + late_us
    ending = Failed("ValueError", "bad", "", retry=True) if fails else Done(b"")
    return Ended(job, ending, start_us, start_us + run_us)


def job_of(world: World, task: str = "t") -> Job:
    return world.claim(world.put(task=task))


def measuring(world: World) -> RunTimes:
    return RunTimes("w1", slots=4, now_us=world.now_us)


def test_all_attempts_of_small_settlements_are_measured(world: World) -> None:
    measured, job, failing = measuring(world), job_of(world), job_of(world, "u")
    some = [ended(job, 5 * MS, late_us=2 * MS)] * (SAMPLES - 1)
    measured.ended([*some, ended(failing, MS, fails=True)], is_full=False, now_us=0)
    world.clock.advance(1)
    measured.write(world.queues.engine)
    (found,) = worker_times(world.store).values()
    tasks = found.queues["q"].tasks
    assert tasks["t"].runs == {step_of(5 * MS): SAMPLES - 1}
    assert (tasks["t"].ended, tasks["t"].failed) == (SAMPLES - 1, 0)
    assert (tasks["u"].ended, tasks["u"].failed) == (1, 1)
    assert found.queues["q"].latencies == {step_of(2 * MS): SAMPLES - 1, step_of(0): 1}


def test_a_large_settlement_counts_by_samples(world: World) -> None:
    measured, job = measuring(world), job_of(world)
    for _ in range(10):
        measured.ended([ended(job, 5 * MS)] * 1_000, is_full=False, now_us=0)
    measured.write(world.queues.engine, is_last=True)
    (found,) = worker_times(world.store).values()
    assert found.queues["q"].tasks["t"].ended == 10_000


def test_the_overhead_of_busy_slots_is_measured(world: World) -> None:
    measured, job = measuring(world), job_of(world)
    for turn in range(11):
        measured.ended([ended(job, 30 * MS)] * 4, is_full=True, now_us=turn * 40 * MS)
    measured.write(world.queues.engine, is_last=True)
    (found,) = worker_times(world.store).values()
    assert found.full_us == 4 * 10 * 40 * MS
    assert (found.run_us, found.full_ended) == (40 * 30 * MS, 40)


def test_old_run_times_count_less(world: World) -> None:
    measured, job = measuring(world), job_of(world)
    for run_us in (MS, 8 * MS):
        for _ in range(RECENT // 500):
            measured.ended([ended(job, run_us)] * 500, is_full=False, now_us=0)
    measured.write(world.queues.engine, is_last=True)
    (found,) = worker_times(world.store).values()
    runs = found.queues["q"].tasks["t"].runs
    assert runs[step_of(MS)] <= runs[step_of(8 * MS)] * 0.6


def test_the_record_is_written_rarely_and_kept_for_a_while(world: World) -> None:
    measured, job = measuring(world), job_of(world)
    world.clock.advance(100)
    measured.ended([ended(job, MS)], is_full=False, now_us=0)
    measured.write(world.queues.engine)
    first = worker_times(world.store)["w1"].at_us
    world.clock.advance(9)
    measured.ended([ended(job, MS)], is_full=False, now_us=0)
    measured.write(world.queues.engine)
    assert worker_times(world.store)["w1"].at_us == first
    world.clock.advance(1)
    measured.write(world.queues.engine)
    assert worker_times(world.store)["w1"].at_us == first + 10 * SECOND_US
    world.clock.advance(10 * 110 - 1)
    assert worker_times(world.store)
    world.clock.advance(2)
    assert not worker_times(world.store)


def test_a_worker_measures_a_bounded_number_of_tasks(world: World) -> None:
    measured = measuring(world)
    for number in range(run_times.TASKS_MAX + 5):
        measured.ended([ended(job_of(world, f"t{number}"), MS)], is_full=False, now_us=0)
    measured.write(world.queues.engine, is_last=True)
    (found,) = worker_times(world.store).values()
    assert len(found.queues["q"].tasks) == run_times.TASKS_MAX
