"""The elected monitor: one at a time, fenced, and needed by nobody (R1)."""

import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dueline.coordination import notes, worker_registry
from dueline.coordination.leases import holder_of
from dueline.coordination.worker_registry import Registration
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.engine import Engine
from dueline.core.errors import StoreUnavailable
from dueline.core.maintenance import MaintenanceTask, StepResult
from dueline.core.process_identity import own
from dueline.core.store import Records, Write
from dueline.monitor.monitor import (
    ELECTION_EVERY_US,
    ELECTION_PER_WORKER_US,
    LEADER_CHECK_US,
    NOTED_EVERY_US,
    TTL_US,
    Monitor,
)
from dueline.monitor.tasks import TASKS
from dueline.worker.heartbeat import Load, PresenceReporter
from tests.harness.calls import row_of
from tests.harness.clocks import HandClock
from tests.harness.cluster import Cluster
from tests.harness.interleaving import Turns, every_order
from tests.harness.queues import queues_on
from tests.harness.stepped_store import SteppedMemoryStore
from tests.harness.worker_bench import Bench
from tests.harness.world import World

EVERY_US = 5 * SECOND_US


def acts_of(records: Records) -> int:
    """Return how often the run log says that the task `c` acted."""
    stored = notes.value(records, "diary", "chores", dict[str, Any])
    assert stored is not None
    return int(stored["lines"]["c"]["acts"])


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
    return Monitor(
        queues.engine, who,
        clock=clock or world.clock, chance=lambda: 0.0, load_tasks=lambda: chores,
    )  # fmt: skip


def test_one_is_elected_and_does_each_chore_in_its_time(world: World) -> None:
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
    assert acts_of(world.store) == 13


def test_a_round_that_is_a_load_rests_between_its_steps(world: World) -> None:
    steps = iter([StepResult(after="a", rest_us=SECOND_US), StepResult(after="b"), StepResult()])
    one = monitor_of(world, "one", [MaintenanceTask("c", EVERY_US, lambda *_: next(steps))])
    assert one.step() == 0
    assert one.step() == SECOND_US
    world.clock.advance(us=SECOND_US)
    assert [one.step() for _ in range(3)] == [0, 0, EVERY_US]


def test_runs_that_changed_nothing_are_written_together_once_a_minute(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = StepResult(puts=[], warnings=[], skews_us=[])
    tasks = [MaintenanceTask(name, EVERY_US, lambda *_: nothing) for name in "abc"]
    monitor = monitor_of(world, "one", tasks)
    monitor.step()
    commits: list[str] = []
    commit = world.store.commit

    def noted(partition: str, writes: Sequence[Write]) -> bool:
        commits.append(partition)
        return commit(partition, writes)

    monkeypatch.setattr(world.store, "commit", noted)
    for _ in range(NOTED_EVERY_US // EVERY_US + 1):
        while monitor.step() == 0:
            pass
        world.clock.advance(us=EVERY_US)
    assert commits.count(notes.PARTITION) == 1
    stored = notes.value(world.store, "diary", "chores", dict[str, Any])
    assert stored is not None
    assert sorted(stored["lines"]) == ["a", "b", "c"]


def test_when_it_is_killed_another_takes_over_within_its_lease_and_a_stand(world: World) -> None:
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


def test_the_more_workers_there_are_the_more_rarely_each_stands(world: World) -> None:
    # O3: a hundred idle workers share what they may read
    for number in range(100):
        world.live(f"w{number}")
    log = Log()
    monitor_of(world, "one", [log.chore("one")]).step()
    two = monitor_of(world, "two", [log.chore("two")])
    assert two.step() == 100 * ELECTION_PER_WORKER_US > ELECTION_EVERY_US


def test_one_that_resigns_is_followed_at_once(world: World) -> None:
    log = Log()
    one = monitor_of(world, "one", [log.chore("one")])
    two = monitor_of(world, "two", [log.chore("two")])
    one.step()
    one.resign()
    two.step()
    assert (one.epoch, two.epoch) == (None, 2)
    assert one.step() == ELECTION_EVERY_US


def test_one_that_stood_still_past_its_lease_writes_nothing_more(world: World) -> None:
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
    assert acts_of(world.store) == 1


def test_rounds_go_on_where_the_monitor_before_was_stopped(world: World) -> None:
    seen: list[str | None] = []

    def step(_engine: Engine, after: str | None) -> StepResult:
        seen.append(after)
        return StepResult(after={None: "a", "a": "b"}.get(after))

    chores = [MaintenanceTask("c", EVERY_US, step)]
    one = monitor_of(world, "one", chores)
    assert [one.step(), one.step()] == [0, 0]
    one.resign()
    two = monitor_of(world, "two", chores)
    assert [two.step(), two.step()] == [0, EVERY_US]
    assert seen == [None, "a", "b"]


def test_a_chore_that_fails_keeps_no_other_from_its_turn(world: World) -> None:
    log = Log()

    def fail(_engine: Engine, _after: str | None) -> StepResult:
        raise ValueError("a bug")

    one = monitor_of(world, "one", [MaintenanceTask("bad", EVERY_US, fail), log.chore("one")])
    with pytest.raises(ValueError, match="a bug"):
        one.step()
    one.step()
    assert log.done == ["one"]


def test_a_chore_that_the_store_fails_is_done_when_it_is_back(world: World) -> None:
    log = Log()

    def fail() -> None:
        if len(log.done) == 1:
            raise StoreUnavailable("away")

    one = monitor_of(world, "one", [log.chore("one", meanwhile=fail)])
    with pytest.raises(StoreUnavailable):
        one.step()
    one.step()
    assert log.done == ["one", "one"]


def test_a_task_that_the_store_always_fails_does_not_delay_the_others(world: World) -> None:
    log = Log()

    def fail() -> None:
        raise StoreUnavailable("this read takes too long")

    tasks = [log.chore(name, name, meanwhile=fail) for name in ("a", "b")]
    one = monitor_of(world, "one", [*tasks, log.chore("c", "c")])
    for _ in range(5):
        with suppress(StoreUnavailable):
            one.step()
    assert log.done == ["a", "b", "c", "a", "b"]


def test_a_clock_that_jumped_back_stops_no_chore_for_longer_than_its_round(world: World) -> None:
    log = Log()
    one = monitor_of(world, "one", [log.chore("one")])
    one.step()
    world.clock.jump(-DAY_US / SECOND_US)
    assert one.step() <= EVERY_US


def test_two_at_once_elect_one_in_any_order() -> None:
    """Let two stand, and do a chore that notes its doer, in every order of their steps."""

    # R6
    def lead(turns: Turns) -> None:
        clock, cluster = HandClock(), Cluster()
        stores = [SteppedMemoryStore(clock, cluster=cluster, step=turns.step) for _ in range(2)]
        log = Log()
        monitors = []
        for store, who in zip(stores, ("one", "two"), strict=True):
            queues = queues_on(store, clock)
            chores: Callable[[], list[MaintenanceTask]] = partial(list, [log.chore(who)])
            monitors.append(
                Monitor(queues.engine, who, clock=clock, chance=lambda: 0.0, load_tasks=chores)
            )
            queues.engine.time.latest_us()
        turns.run([one.step for one in monitors])
        elected = [one.epoch for one in monitors]
        assert sorted(elected, key=str) == [1, None]
        assert log.done == [("one", "two")[elected.index(1)]]
        assert by(stores[0]) == log.done[0].encode()

    assert every_order(lead, switches_max=3) > 20


def test_a_stale_monitor_is_fenced_off_in_any_order() -> None:
    """Let a monitor go on in the middle of a chore while another is elected."""
    # R6, rule L2
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
            Monitor(
                queues.engine,
                who,
                clock=own,
                chance=lambda: 0.0,
                load_tasks=partial(list, [log.chore(who)]),
            )
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
            assert acts_of(engines[0].engine.store) in (2, 3)
        outcomes.add((first.epoch, second.epoch, len(log.done)))

    count = every_order(lead, switches_max=2)
    assert len(outcomes) > 1
    assert count > 10


def test_without_any_monitor_all_works_only_later(world: World) -> None:
    """M2: a worker dies with a job, lanes grow old; nobody does a chore, and all is done."""
    queues, clock, store = world.queues, world.clock, world.store
    for number in range(1, 4):
        store.add([row_of(number, at_us=clock.wall_us() + number * DAY_US)])
    clock.advance(us=DAY_US)
    PresenceReporter(queues.engine, "dead", serving=("default",)).report(Load(slots=1, held=1))
    assert world.claim(row_of(1).id, worker="dead", start=True).worker == "dead"
    done: list[int] = []
    for _ in range(6):
        clock.advance(us=DAY_US)
        done += Bench(queues, clock).run()
    assert sorted(done) == [1, 2, 3]
    assert list(queues.engine.jobs_of("default")) == []
    assert holder_of(store) is None


def test_when_its_process_has_ended_on_this_machine_another_takes_over_at_once(
    world: World,
) -> None:
    # T10, rule M3
    if not own().space:
        pytest.skip("only Linux tells")
    process = subprocess.Popen(["sleep", "60"])
    stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    member = Registration("one", ("q",), own().space, process.pid, stat[19])
    worker_registry.register(world.store, member, version=world.queues.engine.ids.token())
    log = Log()
    one, other = (monitor_of(world, who, [log.chore(who)]) for who in ("one", "other"))
    try:
        one.step()
        assert other.step() == LEADER_CHECK_US
        world.clock.advance(us=LEADER_CHECK_US)
        assert other.step() == LEADER_CHECK_US
        assert (one.epoch, other.epoch) == (1, None)
    finally:
        process.kill()
        process.wait()
    other.step()
    assert other.epoch == 2
    third = monitor_of(world, "third", [log.chore("third")])
    assert third.step() > LEADER_CHECK_US  # of the new one's process nothing is known
    assert third.epoch is None
