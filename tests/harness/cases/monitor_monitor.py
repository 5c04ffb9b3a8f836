"""The elected monitor: one at a time, fenced, and needed by nobody."""

from collections.abc import Callable, Sequence

from dueline.coordination import notes
from dueline.coordination.leases import holder_of
from dueline.core.clock import SECOND_US
from dueline.core.engine import Engine
from dueline.core.maintenance import MaintenanceTask, StepResult
from dueline.core.store import Records
from dueline.monitor import run_log
from dueline.monitor.monitor import (
    ELECTION_EVERY_US,
    TASKS,
    TTL_US,
    Monitor,
)
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.interleaving import Turns, every_order
from tests.harness.queues import queues_on
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.world import World

EVERY_US = 5 * SECOND_US


class Log:
    """Writes down who did which chore, and notes who did it last."""

    def __init__(self) -> None:
        """Nothing was done yet."""
        self.done: list[str] = []

    def chore(
        self, who: str, name: str = "c", *, meanwhile: Callable[[], object] = int
    ) -> MaintenanceTask:
        """Make a chore that notes who does it; `meanwhile` happens in the middle."""

        def step(engine: Engine, after: str | None) -> StepResult:
            assert after is None
            self.done.append(who)
            meanwhile()
            put = notes.put("by", name, who.encode(), engine.ids.token(), expires_us=2**60)
            return StepResult(1, puts=[put])

        return MaintenanceTask(name, EVERY_US, step)


def by(records: Records, name: str = "c") -> bytes | None:
    """Read who did a chore last, as is noted."""
    record = notes.read(records, "by", name)
    return None if record is None else record.value


def monitor_of(
    world: World,
    who: str,
    chores: Sequence[MaintenanceTask] = TASKS,
    *,
    clock: HandClock | None = None,
) -> Monitor:
    """Make one who stands for the office; clock: of a machine of its own."""
    queues = world.queues
    if clock is not None:
        queues = queues_on(world.store, clock)
    return Monitor(queues.engine, who, clock=clock or world.clock, chance=lambda: 0.0, tasks=chores)


def one_is_elected_and_does_each_chore_in_its_time(world: World) -> None:
    # R6
    log = Log()
    one = monitor_of(world, "one", [log.chore("one")])
    two = monitor_of(world, "two", [log.chore("two")])
    assert one.step() == 0
    assert two.step() == ELECTION_EVERY_US
    assert (one.epoch, two.epoch) == (1, None)
    assert one.step() == EVERY_US
    for _ in range(12):
        world.clock.advance(us=EVERY_US)
        one.step()
        two.step()
    assert log.done == ["one"] * 13
    grant = holder_of(world.store)
    assert grant is not None
    assert (grant.holder, grant.epoch) == ("one", 1)
    assert run_log.read_runs(world.store)["c"].acts == 13


def when_it_is_killed_another_takes_over_within_its_lease_and_a_stand(world: World) -> None:
    log = Log()
    monitor_of(world, "one", [log.chore("one")]).step()
    two = monitor_of(world, "two", [log.chore("two")])
    waited_us = 0
    while two.epoch is None:
        wait_us = two.step()
        world.clock.advance(us=wait_us)
        waited_us += wait_us
    assert waited_us <= TTL_US + ELECTION_EVERY_US
    assert two.epoch == 2
    assert log.done == ["one", "two"]


def one_that_stood_still_past_its_lease_writes_nothing_more(world: World) -> None:
    # R6: its step goes on, on a machine whose clock stood still with it, after another was elected
    log = Log()
    still = HandClock(world.clock.wall_us())
    two = monitor_of(world, "two", [log.chore("two")])

    def stand_still() -> None:
        world.clock.advance(us=2 * TTL_US)
        two.step()
        assert two.epoch == 2

    one = monitor_of(world, "one", [log.chore("one", meanwhile=stand_still)], clock=still)
    one.step()
    assert log.done == ["one", "two"]
    assert by(world.store) == b"two"
    assert one.epoch is None
    assert run_log.read_runs(world.store)["c"].acts == 1


def lead_takeover() -> int:
    """Let a monitor go on in the middle of a chore while another is elected."""
    outcomes = set()

    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()
        still = HandClock()
        log = Log()
        engines = [
            queues_on(SteppedMemoryStore(one, cluster=cluster, step=turns.step), one)
            for one in (still, clock)
        ]  # fmt: skip
        first, second = (
            Monitor(queues.engine, who, clock=own, chance=lambda: 0.0, tasks=[log.chore(who)])
            for queues, who, own in zip(engines, ("first", "second"), (still, clock), strict=True)
        )
        first.step()
        still.advance(us=EVERY_US)
        clock.advance(us=2 * TTL_US)
        turns.run([first.step, second.step])
        assert second.epoch == 2 or first.epoch == 1
        if second.epoch == 2:
            assert by(engines[0].engine.store) == b"second"
            first.step()
            assert by(engines[0].engine.store) == b"second"
            assert run_log.read_runs(engines[0].engine.store)["c"].acts in (2, 3)
        outcomes.add((first.epoch, second.epoch, len(log.done)))

    count = every_order(lead, switches_max=2)
    assert len(outcomes) > 1
    return count


def a_stale_monitor_is_fenced_off_in_any_order() -> None:
    # R6, L2
    assert lead_takeover() > 10
