"""Jobs of unknown tasks wait until a worker that knows them comes."""

from contextlib import suppress
from pathlib import Path

from dueline.core.clock import SECOND_US
from dueline.core.lane import task_of
from dueline.core.queue_settings import QueueSettings
from dueline.jobs.queue import Queues
from tests.harness.calls import call, put
from tests.harness.clocks import HandClock
from tests.harness.lives import Stage, Stopped, put_one
from tests.harness.queues import queues_on
from tests.harness.worker_bench import Bench
from tests.harness.world import store_on

TASK, OTHER = "tests.task", "tests.other"
LEASE_US = QueueSettings().lease_us


def a_worker_without_its_task_claims_it_once(queues: Queues, clock: HandClock) -> None:
    """Have workers that do not know a task come again and again, then one that does."""
    put(queues, *(call(n, tenant="a", priority=n % 2) for n in range(5)), call(9, task=OTHER))
    began_us = clock.wall_us()
    assert Bench(queues, clock, tasks=[OTHER], threads=2).run() == [9]
    rows = list(queues.engine.jobs_of("default"))
    for _ in range(3):
        assert Bench(queues, clock, tasks=[OTHER]).run() == []
        clock.advance(3600)
    assert list(queues.engine.jobs_of("default")) == rows
    assert {task_of(row.lane) for row in rows} == {TASK}
    assert {(row.errors, row.crashes, row.alone, row.fence <= 1) for row in rows} == {
        (0, 0, False, True)
    }
    assert {row.at_us for row in rows} == {began_us}
    assert Bench(queues, clock, tasks=[TASK], threads=1).run() == [1, 3, 0, 2, 4]


def it_is_not_claimed_again(queues: Queues, clock: HandClock) -> None:
    """Have a worker that does not know a task go on for a while."""
    put(queues, call(1))
    bench = Bench(queues, clock, tasks=[OTHER], burst=False)
    for _ in range(20):
        bench.worker._step()
        clock.advance(1)
    (row,) = queues.engine.jobs_of("default")
    assert (row.fence, bench.runner.began) == (1, [])


def in_memory() -> tuple[Queues, HandClock]:
    """Make an engine, and its clock."""
    clock = HandClock()
    return queues_on(store_on("steps", Path(), clock), clock), clock


def wherever_one_is_stopped_the_job_runs_once() -> None:
    """Stop a worker that does not know the task at each of its steps."""
    for number in range(1, 400):
        stage = Stage(lambda _: 1)
        put_one(stage)
        stage.stop_at = frozenset({number})
        with suppress(Stopped):
            stage.work(OTHER)
        is_over, stage.stop_at = stage.steps < number, frozenset()
        stage.clock.advance(us=LEASE_US + SECOND_US)
        stage.work_to_the_end()
        assert stage.calls == 1, f"stopped at step {number}"
        assert [outcome.state for outcome in stage.ends.values()] == ["done"]
        if is_over:
            return
    raise AssertionError("there are too many steps")
