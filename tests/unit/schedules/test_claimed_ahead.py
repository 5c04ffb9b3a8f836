"""What happens to an occurrence that a worker holds before its time."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from dueline.core.clock import SECOND_US
from dueline.core.job import Job
from dueline.core.store_capabilities import PREFETCH_US_MAX
from dueline.jobs import pauses
from dueline.limits import semaphore
from dueline.schedules import scheduler
from dueline.schedules.schedule import Template, Timing
from dueline.schedules.scheduler import advance_all, put
from tests.harness.schedules import EVERY_US, TEMPLATE
from tests.harness.worker_bench import Bench
from tests.harness.world import World, world_on

CALL = TEMPLATE.changed(task="tests.task", tenant="a")


def _cancel(world: World, job: Job) -> None:
    assert not world.other().cancel(job.id)


CHANGES: Mapping[str, Callable[[World, Job], object]] = {
    "cancel the job": _cancel,
    "pause the queue": lambda world, _: pauses.pause(world.other().engine, "q"),
    "pause the tenant": lambda world, _: pauses.pause(world.other().engine, "q", tenants=["a"]),
    "pause the task": lambda world, _: pauses.pause(
        world.other().engine, "q", tasks=["tests.task"]
    ),
    "pause the schedule": lambda world, _: scheduler.pause(world.other(), "s"),
    "remove the schedule": lambda world, _: scheduler.remove(world.other(), "s"),
}


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = world_on(request.param, tmp_path)
    yield made
    made.store.close()


def starts_of(world: World, call: Template, look: Callable[[Bench], object]) -> dict[int, int]:
    """Run a schedule for four of its occurrences; count the starts by occurrence, from 1."""
    began_us, starts = world.now_us, Counter[int]()
    put(world.queues, "s", call, Timing(every_us=EVERY_US))
    bench = Bench(world.queues, world.clock, burst=False, serving={"q": None}, threads=4)

    def meanwhile() -> None:
        advance_all(world.queues)
        look(bench)
        bench.runner.begin()
        starts.update((job.due_us - began_us) // EVERY_US for job in bench.runner.running())
        bench.runner.end()
        if world.now_us >= began_us + 4 * EVERY_US + SECOND_US:
            bench.worker.stop()

    bench.wakeup.meanwhile = meanwhile
    bench.run()
    return dict(starts)


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_while_an_occurrence_is_claimed_early_leaves_one_start(
    world: World, change: str
) -> None:
    # T8, rule Z7
    first_us, changed_us = world.now_us + EVERY_US, list[int]()

    def look(bench: Bench) -> None:
        held = [job for job in bench.worker._held.jobs() if job.due_us == first_us]
        if held and not changed_us:
            changed_us.append(world.now_us)
            CHANGES[change](world, held[0])
            world.clock.advance(us=1000)
            bench.worker._cancellations._read_us -= SECOND_US
            bench.worker._attend()

    starts = starts_of(world, CALL, look)
    assert changed_us
    assert changed_us[0] < first_us
    # A change that is no request to the job leaves it to the worker that holds it.
    assert starts == ({2: 1, 3: 1, 4: 1} if change == "cancel the job" else {1: 1})


@pytest.mark.long
def test_an_occurrence_with_a_limit_is_not_claimed_early(world: World) -> None:
    # F1: closing the limit just before it holds it back
    engine, first_us, closed_us = world.queues.engine, world.now_us + EVERY_US, list[int]()
    semaphore.define(world.store, "api", 3, ids=engine.ids)

    def look(bench: Bench) -> None:
        if world.now_us < first_us:
            assert not bench.worker._held.jobs()
            if first_us - world.now_us < PREFETCH_US_MAX and not closed_us:
                closed_us.append(world.now_us)
                semaphore.define(world.store, "api", 0, ids=engine.ids)

    assert starts_of(world, CALL.changed(limits=("api",)), look) == {}
    assert closed_us
