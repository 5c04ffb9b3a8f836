"""What is taken of quotas, whatever fails, and what is told of it (F9)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dueline import Dueline
from dueline.core.clock import SECOND_US
from dueline.core.errors import Conflict, QuotaExceeded, StoreUnavailable
from dueline.core.queue_settings import Quota
from dueline.jobs.queue import EnqueueRequest, Queues
from dueline.limits import quota
from dueline.limits.admission import waiting_jobs
from tests.harness.failing_store import FailingStore, Fault
from tests.harness.quotas import DEPTH, enqueue, waiting
from tests.harness.world import World

CALLS_MAX = 40


@pytest.mark.parametrize("fault", Fault)
def test_whichever_call_fails_nothing_is_stored_of_it_before_it_was_taken(
    world: World, fault: Fault
) -> None:
    for rule in (Quota(depth=90, rate=90, per_us=60 * SECOND_US), Quota("each", depth=90)):
        quota.set_quota(world.queues.engine, "q", rule)
    for number in range(1, CALLS_MAX):
        plan: dict[int, Fault] = {}
        failing = FailingStore(world.store, plan)
        other = world.other(failing)
        other.engine.catalog.settings("q")
        other.engine.time.latest_us()
        world.clock.advance(61)  # so that all are counted
        before, last = len(waiting(world)), failing.calls + number
        plan[last] = fault
        try:
            other.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"], tenant="a"))
        except StoreUnavailable as error:
            is_born = type(error) is not StoreUnavailable
            assert is_born or len(waiting(world)) == before
        if failing.calls < last:
            break
    else:
        raise AssertionError(f"it takes more than {CALLS_MAX} calls")
    assert number > 5


def test_a_quota_that_keeps_changing_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    quota.set_quota(world.queues.engine, "q", DEPTH)
    monkeypatch.setattr(quota, "write", lambda *_args, **_named: False)
    with pytest.raises(Conflict, match="keeps changing"):
        world.put()


def test_what_a_transaction_takes_it_gives_back_when_it_is_undone(tmp_path: Path) -> None:
    app = Dueline(f"sqlite:///{tmp_path}/a.db?synchronous=NORMAL")
    app.quota("q", depth=300)

    @app.task(name="work", queue="q")
    def work() -> None: ...

    def put(count: int, *, fails: bool) -> None:
        with app.transaction() as tx:
            work.using(tx=tx, wait=60).enqueue_many([()] * count)
            if fails:
                raise KeyError

    try:
        with pytest.raises(KeyError):
            put(300, fails=True)
        put(200, fails=False)
        put(100, fails=False)
        with pytest.raises(QuotaExceeded):
            put(1, fails=False)
    finally:
        app.close()


def test_of_many_calls_those_before_are_stored_and_the_others_counted() -> None:
    app = Dueline("memory://")
    app.quota("q", depth=5)

    @app.task(name="work", queue="q")
    def work(number: int) -> None: ...

    with pytest.raises(QuotaExceeded) as error:
        work.enqueue_many([(number,) for number in range(8)], chunk=2)
    assert error.value.unsent == 4
    assert len(list(app.queues.engine.jobs_of("q"))) == 4
    app.close()


# --- what is told -------------------------------------------------------------------------------


def test_what_was_taken_is_told(world: World) -> None:
    for rule in (DEPTH, Quota("tenant", "a", rate=2, per_us=SECOND_US), Quota("each", depth=1)):
        quota.set_quota(world.queues.engine, "q", rule)
    assert {usage.quota.scope: usage[1:] for usage in quota.usage_of(world.queues.engine, "q")} == {
        "queue": (None, None), "tenant": (None, 2), "each": (None, None),
    }  # fmt: skip
    enqueue(world.queues, tenant="a")
    assert {usage.quota.scope: usage[1:] for usage in quota.usage_of(world.queues.engine, "q")} == {
        "queue": (1, 4), "tenant": (None, 1), "each": (None, None),
    }  # fmt: skip
    assert len(list(waiting_jobs(world.store, "q", 1, Quota("tenant", "a")))) == 1
    assert list(waiting_jobs(world.store, "q", 1, Quota("tenant", "b"))) == []


def calls_of_the_store(world: World, act: Callable[[Queues], object]) -> int:
    """Count the calls of an act by a process that knows the settings."""
    failing = FailingStore(world.store, {})
    other = world.other(failing)
    other.engine.catalog.settings("q")
    other.engine.time.latest_us()
    before = failing.calls
    act(other)
    return failing.calls - before


def test_a_quota_costs_who_calls_often_little_and_none_costs_nothing(world: World) -> None:
    def many(queues: Queues) -> None:
        for _ in range(3):
            assert [enqueue(queues) for _ in range(100)] == [1] * 100
            world.clock.advance(us=SECOND_US // 100)

    plain = calls_of_the_store(world, many)
    quota.set_quota(world.queues.engine, "q", Quota(rate=1_000_000, per_us=SECOND_US))
    by_record = 2 * 100 + 2 * 2  # each call of the first hundredth, one of each later
    assert calls_of_the_store(world, many) == plain + by_record


def test_who_calls_seldom_takes_little_ahead(world: World) -> None:
    quota.set_quota(world.queues.engine, "q", Quota(rate=300, per_us=30 * SECOND_US))
    taken = 0
    for number in range(300):
        taken += enqueue(world.other() if number % 3 else world.queues)
        world.clock.advance(us=40_000)
    assert taken > 270
