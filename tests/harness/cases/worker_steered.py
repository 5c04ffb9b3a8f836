"""Jobs of paused tasks wait without a slot, and come back."""

from contextlib import suppress
from pathlib import Path

from dueline.core.clock import SECOND_US
from dueline.jobs.paused_tasks import ASIDE_US
from dueline.jobs.pauses import pause, resume
from dueline.jobs.queue import Queues
from tests.harness.calls import call, put
from tests.harness.clocks import HandClock
from tests.harness.lives import Stage, Stopped, put_one
from tests.harness.queues import queues_on
from tests.harness.worker_bench import Bench
from tests.harness.world import store_on

TASK = "tests.task"


QUEUE = "default"


def in_memory() -> tuple[Queues, HandClock]:
    """Make an engine, and its clock."""
    clock = HandClock()
    store = store_on("steps", Path(), clock)
    return queues_on(store, clock), clock


def process(queues: Queues, clock: HandClock) -> Queues:
    """Make another process on the same store."""
    return queues_on(queues.engine.store, clock)


def it_comes_back_by_itself_and_is_set_aside_again(queues: Queues, clock: HandClock) -> None:
    # rule P9
    (job,) = put(queues, call(1))
    pause(queues.engine, QUEUE, tasks=[TASK])
    for _ in range(3):
        assert Bench(queues, clock).run() == []
        (row,) = queues.engine.jobs_of(QUEUE)
        assert row.at_us == clock.wall_us() + ASIDE_US
        clock.advance(us=ASIDE_US)
    resume(queues.engine, QUEUE, tasks=[TASK])
    (row,) = queues.engine.jobs_of(QUEUE)
    assert row.at_us <= clock.wall_us()
    assert Bench(queues, clock).run() == [1]
    assert job.id == row.id


def it_stays_where_it_was_put(queues: Queues, clock: HandClock) -> None:
    """Set a job aside, have somebody put it off, and end the pause."""
    (job,) = put(queues, call(1))
    pause(queues.engine, QUEUE, tasks=[TASK])
    assert Bench(queues, clock).run() == []
    at_us = clock.wall_us() + 900 * SECOND_US
    queues.reschedule(job.id, at_us)
    resume(queues.engine, QUEUE, tasks=[TASK])
    assert [row.at_us for row in queues.engine.jobs_of(QUEUE)] == [at_us]


def it_brings_back(queues: Queues, clock: HandClock) -> None:
    """End the pause after a worker has read of it, and before it sets a job aside."""
    put(queues, call(1))
    pause(queues.engine, QUEUE, tasks=[TASK])
    bench = Bench(queues, clock, burst=False)
    operator = process(queues, clock)
    claim, ended = bench.worker._claimer.claim, list[int]()

    def claim_late(*terms: object) -> object:
        if not ended:
            ended.append(clock.wall_us())
            resume(operator.engine, QUEUE, tasks=[TASK])
        return claim(*terms)  # type: ignore[arg-type]

    bench.worker._claimer.claim = claim_late  # type: ignore[assignment,method-assign]

    def look() -> None:
        bench.run_all()
        if bench.runner.began or clock.wall_us() > ended[0] + ASIDE_US // 2:
            bench.worker.stop()

    bench.wakeup.meanwhile = look
    assert bench.run() == [1]
    assert clock.wall_us() <= ended[0] + 10 * SECOND_US


def fine(_: int) -> int:
    """Do what a handler does."""
    return 1


def a_pause(stage: Stage) -> None:
    """Pause the task, let a worker come by, end the pause, let another come by."""
    for act in (
        lambda: pause(stage.queues().engine, QUEUE, tasks=[TASK]),
        stage.work,
        lambda: resume(stage.queues().engine, QUEUE, tasks=[TASK]),
    ):
        with suppress(Stopped):
            act()


def wherever_one_is_stopped_the_job_runs_once() -> None:
    """Stop one after the other of the steps of a pause; nobody repeats what was stopped."""
    for number in range(1, 400):
        stage = Stage(fine)
        put_one(stage)
        stage.stop_at = frozenset({number})
        a_pause(stage)
        is_over, stage.stop_at = stage.steps < number, frozenset()
        if TASK in stage.queues().engine.catalog.settings(QUEUE).paused_tasks:
            resume(stage.queues().engine, QUEUE, tasks=[TASK])
        stage.clock.advance(us=ASIDE_US)
        stage.work_to_the_end()
        assert stage.calls == 1, f"stopped at step {number}"
        assert [outcome.state for outcome in stage.ends.values()] == ["done"]
        if is_over:
            return
    raise AssertionError("there are too many steps")
