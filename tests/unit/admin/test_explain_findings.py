"""Explanations that once named one cause, or the wrong one (V4)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from dueline.coordination.worker_registry import LOST_MAX, Presence, announce
from dueline.core import features
from dueline.core.clock import SECOND_US
from dueline.core.deadlines import priority_of
from dueline.core.job import JobId
from dueline.core.store import Store
from dueline.foresight.job_forecast import explain as forecast
from dueline.jobs import pauses
from dueline.jobs.explain import explain
from dueline.jobs.explanation import Explanation
from tests.harness.failing_store import FailingStore
from tests.harness.world import KINDS, World, world_on

Answer = TypeVar("Answer")


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = world_on(request.param, tmp_path)
    yield made
    made.store.close()


def kinds(explanation: Explanation) -> list[str]:
    return [condition.kind for condition in explanation.conditions]


def quiet(world: World, worker: str, *tasks: str) -> None:
    presence = Presence(worker, ("q",), tasks, 4, 0, world.now_us, world.now_us, 0, is_quiet=True)
    version = world.queues.engine.ids.token()
    announce(world.store, presence, version=version, beat_every_us=10 * SECOND_US)


def test_a_task_that_a_quiet_worker_knows_is_known(world: World) -> None:
    job_id = world.put(task="new")
    quiet(world, "w2", "new")
    world.live(tasks=["t"])
    explanation = explain(world.queues, job_id)
    assert explanation.sentence == (
        "It is ready, but the only live worker that knows the task new is quiet (w2) and claims "
        "nothing (`dueline workers resume w2`)."
    )
    assert kinds(explanation) == ["quiet"]


def lose(world: World, worker: str, slots: int, lost: int) -> None:
    """Have a worker beat some of whose handlers have outlived their limits."""
    named = tuple((f"{number:032x}", "t", world.now_us - 60 * SECOND_US) for number in range(lost))
    presence = Presence(worker, ("q",), ("t",), slots, 0, world.now_us, world.now_us, 0, lost=named)
    version = world.queues.engine.ids.token()
    announce(world.store, presence, version=version, beat_every_us=10 * SECOND_US)


def test_workers_that_have_lost_all_their_slots_are_named(world: World) -> None:
    # O12
    job_id = world.put()
    lose(world, "w1", 2, 2)
    explanation = explain(world.queues, job_id)
    assert explanation.sentence == (
        "It is ready, but all slots of the worker w1 are lost to handlers that go on after their "
        f"time limits, such as job {0:032x} (t) since 2025-12-31T23:59:00Z (1m ago): restart the "
        "worker (`dueline workers stop w1`)."
    )
    assert kinds(explanation) == ["slots lost"]
    assert "whether these handlers ever end" in explanation.unknown
    lose(world, "w2", 300, LOST_MAX)  # it names no more
    assert "all slots of w1, w2 are lost" in explain(world.queues, job_id).sentence
    lose(world, "w1", 2, 1)
    assert explain(world.queues, job_id).reason == "waiting"


def test_a_job_at_most_once_of_a_dead_worker_ends_as_lost(world: World) -> None:
    world.queues.engine.catalog.configure("q", deliver="at_most_once")
    job_id = world.put()
    world.claim(job_id, start=True)
    explanation = explain(world.queues, job_id)
    assert explanation.ends_as == "lost"
    assert explanation.sentence == (
        "Worker w1 claimed it and is gone; it ends as lost and is never due again, since q "
        "delivers at most once. A worker records that after the lease ends, at "
        "2026-01-01T00:00:30Z (in 30s), or sooner, when the monitor releases it."
    )


def test_a_job_at_most_once_that_was_not_started_is_due_again(world: World) -> None:
    world.queues.engine.catalog.configure("q", deliver="at_most_once")
    job_id = world.put()
    world.claim(job_id)
    explanation = explain(world.queues, job_id)
    assert (explanation.ends_as, kinds(explanation)) == ("", ["worker gone", "no worker"])


def test_a_store_that_has_moved_names_the_new_address(world: World) -> None:
    job_id = world.put()
    engine = world.queues.engine
    engine.catalog.adopt(features.MOVED + "sqlite:///new.db")
    for of in (job_id, JobId(bytes(16))):  # still there, and already taken
        explanation = forecast(world.queues, of)
        assert explanation.reason == "moved"
        assert explanation.sentence == (
            "The store has moved to sqlite:///new.db, and its jobs start there "
            f"(`dueline --store sqlite:///new.db jobs explain {of.hex()}`)."
        )
        assert explanation.unknown == ("what keeps the job from starting in the other store",)


def test_a_silent_worker_is_not_said_to_run_a_job(world: World) -> None:
    job_id = world.put()
    world.live()
    world.claim(job_id, start=True)
    world.clock.advance(12)
    assert explain(world.queues, job_id).reason == "running"
    world.clock.advance(3)
    explanation = explain(world.queues, job_id)
    assert explanation.sentence == (
        "It is running as far as is known, in worker w1 since 2026-01-01T00:00:00Z (15s ago), but "
        "no word from it since 2026-01-01T00:00:00Z (15s ago). If that lasts until its lease ends, "
        "at 2026-01-01T00:00:30Z (in 15s), it is due again."
    )
    assert explanation.unknown == ("whether the worker w1 still lives",)


def test_a_late_job_behind_priorities_names_both(world: World) -> None:
    world.live()
    job_id = world.put(priority=priority_of(world.now_us - 60 * SECOND_US))
    first = world.put(priority=9)
    explanation = explain(world.queues, job_id)
    assert f"first is the job {first.hex()} (priority 9)" in explanation.sentence
    assert explanation.sentence.endswith(
        "Its deadline has passed, at 2025-12-31T23:59:00Z (1m ago): a deadline only orders jobs, "
        "and it still runs."
    )


def test_all_that_a_scheduled_job_needs_is_named(world: World) -> None:
    job_id = world.put(after_s=60, tenant="a")
    pauses.pause(world.queues.engine, "q", tenants=["a"])
    explanation = forecast(world.queues, job_id)
    assert kinds(explanation) == ["scheduled", "paused", "no worker"]
    assert explanation.sentence == (
        "It is not due until 2026-01-01T00:01:00Z (in 1m). Also: (1) in the queue q the tenant a "
        "is paused (`dueline queues resume q --tenant a`); (2) no live worker serves the queue q "
        "(`dueline worker -q q`)."
    )


def test_the_job_that_a_full_limit_serves_first_is_named(world: World) -> None:
    job_id = world.put(limits=["api"])
    first = world.put(priority=9, limits=["api"])
    world.live()
    world.hold("api")
    explanation = explain(world.queues, job_id)
    assert kinds(explanation) == ["limit", "waiting"]
    assert explanation.sentence.endswith(
        f"first is the job {first.hex()} (priority 9), which has the limit api too."
    )


def test_all_pauses_of_a_job_are_named(world: World) -> None:
    world.live()
    job_id = world.put(tenant="a")
    engine = world.queues.engine
    pauses.pause(engine, "q")
    pauses.pause(engine, "q", tenants=["a"], tasks=["t"])
    explanation = explain(world.queues, job_id)
    assert [condition.subject for condition in explanation.conditions] == ["q", "t", "a"]


def test_permits_of_a_dead_worker_are_free_when_they_expire(world: World) -> None:
    job_id = world.put(limits=["api"])
    world.live()
    world.hold("api", "w9", lasts_s=20)
    (condition,) = explain(world.queues, job_id).conditions
    assert (condition.change, condition.at_us) == ("time", world.now_us + 20 * SECOND_US)
    assert "w9, which is gone, holds 1 until" in condition.clause


def test_a_job_whose_cancellation_was_requested_does_not_run_again(world: World) -> None:
    job_id = world.put()
    world.claim(job_id, start=True)
    assert world.queues.cancel(job_id) is False
    world.clock.advance(31)
    explanation = explain(world.queues, job_id)
    assert (explanation.reason, explanation.ends_as) == ("never", "cancelled")


class CountedStore(FailingStore):
    """Counts the calls of a store."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, {})
        self.calls = 0

    def _call(self, call: Callable[[], Answer]) -> Answer:
        self.calls += 1
        return call()


def test_an_explanation_reads_a_bounded_number_of_times(world: World) -> None:
    """Not once for each worker, queue or other job."""
    for number in range(30):
        world.live(f"w{number}", queues=[f"q{number}"])
        world.put(queue=f"q{number}")
        for _ in range(5):
            world.put(queue="q", limits=["a", "b"])
    job_id = world.put(limits=["a", "b"])
    pauses.pause(world.queues.engine, "q", tenants=["", "x"])
    world.hold("a", "w7")
    store = CountedStore(world.store)
    explanation = explain(world.other(store), job_id)
    assert kinds(explanation) == ["paused", "no worker", "limit"]
    assert store.calls <= 20
