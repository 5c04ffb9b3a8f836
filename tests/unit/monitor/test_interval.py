"""The interval of maintenance tasks is a setting of the store, which the leader takes over (H1)."""

import pytest

from dueline.admin.health import examine
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import BadInput
from dueline.core.maintenance import MaintenanceTask, StepResult
from dueline.monitor.interval import INTERVAL_US_MAX, interval_us, set_interval
from dueline.monitor.monitor import Monitor
from tests.harness.world import World

MINUTE = 60


def test_the_leader_takes_over_a_change_of_the_interval(world: World) -> None:
    runs = 0

    def step(_: Engine, __: str | None) -> StepResult:
        nonlocal runs
        runs += 1
        return StepResult()

    engine = world.queues.engine
    task = MaintenanceTask("c", 2 * SECOND_US, step)
    monitor = Monitor(
        engine, "one", clock=world.clock, chance=lambda: 0.0, load_tasks=lambda: [task]
    )

    def runs_of_a_minute() -> int:
        before = runs
        for _ in range(MINUTE):
            while monitor.step() == 0:
                pass
            world.clock.advance(1)
        return runs - before

    assert runs_of_a_minute() == MINUTE // 2
    set_interval(engine, 15 * SECOND_US)
    runs_of_a_minute()
    assert runs_of_a_minute() == MINUTE // 15
    assert examine(engine).store["maintenance"] == "each task every 15s at most"
    set_interval(engine, INTERVAL_US_MAX)
    runs_of_a_minute()
    assert runs_of_a_minute() == 0
    set_interval(engine, 0)
    runs_of_a_minute()
    assert runs_of_a_minute() == MINUTE // 2


@pytest.mark.parametrize("us", [-1, INTERVAL_US_MAX + 1])
def test_an_interval_out_of_range_is_refused(world: World, us: int) -> None:
    with pytest.raises(BadInput, match="`interval` must be a duration of at most one hour"):
        set_interval(world.queues.engine, us)
    assert interval_us(world.store) == 0
