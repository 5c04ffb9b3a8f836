"""The conditions that must change before a job can start, by their kinds (F1, F7)."""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from dueline.core.attempt import FinalState, Outcome
from dueline.core.call_options import CallOptions
from dueline.core.clock import SECOND_US
from dueline.core.codec import encode
from dueline.core.job import JobId
from dueline.core.store import Lease, Move, Want
from dueline.core.store_capabilities import PREFETCH_US_MAX, SupportsPrefetch
from dueline.jobs import claim_order, pauses
from dueline.jobs.completion import finish_of
from dueline.jobs.explain import explain
from dueline.jobs.explanation import Explanation, Reason
from dueline.jobs.queue import EnqueueRequest
from dueline.limits import semaphore
from dueline.limits.suspension import suspend
from dueline.limits.usage import BusyLimits
from tests.harness.world import LEASE_US, World, world_on


@pytest.fixture(
    params=[pytest.param(k, marks=getattr(pytest.mark, k)) for k in ("memory", "sqlite")]
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = world_on(request.param, tmp_path)
    yield made
    made.store.close()


def why(world: World, job_id: JobId, reason: Reason) -> Explanation:
    """Explain a job, and make sure of the reason."""
    explanation = explain(world.queues, job_id)
    assert explanation.reason == reason, explanation
    return explanation


def test_a_job_that_nobody_knows_is_unknown(world: World) -> None:
    explanation = why(world, JobId(bytes(16)), "unknown")
    assert explanation.sentence.startswith(f"No job {'00' * 16} is known.")


def test_a_job_of_the_future_is_scheduled(world: World) -> None:
    job_id = world.put(after_s=90)
    explanation = why(world, job_id, "scheduled")
    assert explanation.sentence == (
        "It is not due until 2026-01-01T00:01:30Z (in 1m30s). Also, no live worker serves the "
        "queue q (`dueline worker -q q`)."
    )
    assert explanation.facts["at_us"] == world.now_us + 90 * SECOND_US


def test_a_started_job_of_a_live_worker_runs(world: World) -> None:
    job_id = world.put()
    world.live()
    world.claim(job_id, start=True)
    world.clock.advance(5)
    explanation = why(world, job_id, "running")
    assert explanation.sentence == (
        "It is running: attempt 1, in worker w1 since 2026-01-01T00:00:00Z (5s ago)."
    )
    assert explanation.facts["attempt"] == 1


def test_a_running_job_whose_end_was_asked_for_says_so(world: World) -> None:
    # V4, C19
    job_id = world.put()
    world.live()
    job = world.claim(job_id, start=True)
    assert "is_cancel_asked" not in why(world, job_id, "running").facts
    assert world.queues.cancel(job_id) is False
    explanation = why(world, job_id, "running")
    assert explanation.sentence.endswith(
        "(now). Its end was asked for, and its handler has not checked for that yet; "
        f"`dueline jobs cancel {job_id.hex()} --force` ends it now."
    )
    assert explanation.facts["is_cancel_asked"] is True
    world.leave()
    assert why(world, job_id, "worker gone").sentence.endswith("next ends it without a run.")
    world.end(job, Outcome("cancelled", world.now_us, error="Its end was asked for."))
    assert why(world, job_id, "cancelled").sentence.endswith("(now): Its end was asked for.")


def test_a_claimed_job_that_is_not_started_waits_for_a_slot(world: World) -> None:
    job_id = world.put()
    world.live()
    world.claim(job_id)
    assert "starts it as soon as a slot is free" in why(world, job_id, "claimed").sentence


def test_a_job_that_is_claimed_before_its_time_is_not_due(world: World) -> None:
    # V4
    if not isinstance(world.store, SupportsPrefetch):
        pytest.skip("no job is claimed ahead there")
    job_id = world.put(after_s=0.3)
    world.live()
    claimed = world.store.prefetch(
        [Want(world.row(job_id).lane, 1)],
        limit=1,
        until_us=world.now_us + PREFETCH_US_MAX,
        lease=Lease(world.now_us, LEASE_US, "w1", world.queues.engine.ids.token()),
    )
    assert [taken.job.id for taken in claimed.jobs] == [job_id]
    explanation = why(world, job_id, "scheduled")
    assert explanation.sentence.startswith("It is not due until 2026-01-01T00:00:00Z (")
    assert explanation.sentence.endswith("; worker w1 has claimed it and starts it then.")
    assert explanation.facts["at_us"] == world.now_us + 300_000
    waiting = world.put(priority=-1)
    assert why(world, waiting, "waiting").facts["held"] == 0  # it takes no slot yet
    world.clock.advance(0.3)
    why(world, job_id, "claimed")


def test_a_failed_job_is_tried_again_and_says_why(world: World) -> None:
    job_id = world.put()
    world.live()
    world.back(world.claim(job_id), after_s=8, errors=2, error="ValueError: bad\nmore")
    explanation = why(world, job_id, "retrying")
    assert explanation.sentence == (
        "Attempt 2 failed (ValueError: bad); it is retried at 2026-01-01T00:00:08Z (in 8s)."
    )


def test_a_job_whose_worker_died_may_be_tried_again_later(world: World) -> None:
    job_id = world.put()
    job = world.claim(job_id)
    at_us = world.now_us + SECOND_US
    move = Move(
        job, at_us, world.queues.engine.ids.token(), 0, errors=0, crashes=1, error="signal 9"
    )
    world.store.settle([move])
    assert "A worker died on it (signal 9)" in why(world, job_id, "retrying").sentence


def test_a_snoozed_job_is_put_back(world: World) -> None:
    job_id = world.put()
    world.back(world.claim(job_id), after_s=300)
    world.live()
    assert "until 2026-01-01T00:05:00Z (in 5m)" in why(world, job_id, "put back").sentence
    world.leave()
    why(world, job_id, "put back")


def test_a_scheduled_job_may_have_an_unknown_task(world: World) -> None:
    job_id = world.put(task="mystery", after_s=30)
    world.live()
    explanation = why(world, job_id, "scheduled")
    assert explanation.sentence == (
        "It is not due until 2026-01-01T00:00:30Z (in 30s). Also, no live worker knows task "
        "mystery; live workers of the queue q: 1."
    )
    assert explanation.facts["task"] == "mystery"


def test_a_ready_job_may_have_no_worker(world: World) -> None:
    job_id = world.put()
    world.live(queues=["other"])
    explanation = why(world, job_id, "no worker")
    assert explanation.sentence == (
        "It is ready, but no live worker serves the queue q (`dueline worker -q q`)."
    )


def test_up_to_five_quiet_workers_are_named(world: World) -> None:
    job_id = world.put()
    for number in range(7):
        world.live(f"w{number}", is_quiet=True)
    assert why(world, job_id, "quiet").sentence == (
        "It is ready, but all live workers that know the task t are quiet (w0, w1, w2, w3, w4, "
        "and 2 more) and claim nothing (`dueline workers resume w0`)."
    )


def test_a_worker_that_no_longer_beats_serves_nothing(world: World) -> None:
    job_id = world.put()
    world.live()
    world.clock.advance(31)
    why(world, job_id, "no worker")


def test_a_ready_job_may_have_only_workers_that_do_not_know_its_task(world: World) -> None:
    job_id = world.put(task="mystery")
    world.live()
    assert why(world, job_id, "task unknown").sentence == (
        "It is ready, but no live worker knows task mystery; live workers of the queue q: 1."
    )


def test_a_ready_job_waits_its_turn(world: World) -> None:
    first = world.put(priority=9)
    world.put(priority=-9)
    world.put(priority=9, after_s=60)
    world.clock.advance(1)
    world.put()
    world.clock.advance(1)
    job_id = world.put()
    world.clock.advance(1)
    world.put()
    held = [world.put(priority=-50) for _ in range(3)]
    world.claim(held[0])  # all of their lane
    world.live()
    world.live("w2")
    explanation = why(world, job_id, "waiting")
    assert explanation.sentence == (
        "It is ready, at position 3 of the queue q; live workers: 2, jobs that they hold: 3, "
        f"slots: 8; first is the job {first.hex()} (priority 9)."
    )
    assert explanation.facts["position_is_at_least"] is False


def test_a_ready_job_says_when_it_expires(world: World) -> None:
    opts = CallOptions(expires_us=world.now_us + 60 * SECOND_US).to_bytes()
    call = EnqueueRequest("q", "t", 0, [b"[1]"], opts=opts)
    (job,) = world.queues.enqueue(call)
    world.live()
    explanation = why(world, job.id, "waiting")
    assert explanation.sentence.endswith(
        "It expires at 2026-01-01T00:01:00Z (in 1m), unless it has started by then."
    )
    assert explanation.ends_as == ""


def test_the_count_of_those_before_a_job_has_an_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_order, "AHEAD_MAX", 2)
    for _ in range(3):
        world.put(priority=1)
    job_id = world.put()
    world.live()
    explanation = why(world, job_id, "waiting")
    assert "or later" in explanation.sentence
    assert explanation.facts["position_is_at_least"] is True


def test_a_suspect_runs_alone(world: World) -> None:
    job_id = world.put()
    world.claim(job_id, start=True)
    world.clock.advance(31)
    job = world.claim(job_id)
    assert job.alone
    world.live()
    assert "A worker died while it ran (crash 1, dead at 3)" in (
        why(world, job_id, "suspect").sentence
    )
    world.clock.advance(31)
    world.live()
    why(world, job_id, "suspect")


def test_a_job_of_a_dead_worker_is_due_again_when_the_lease_ends(world: World) -> None:
    job_id = world.put()
    world.live()
    world.claim(job_id, start=True)
    world.leave()
    explanation = why(world, job_id, "worker gone")
    assert explanation.sentence == (
        "Worker w1 claimed it and is gone; it is due again when the lease ends, at "
        "2026-01-01T00:00:30Z (in 30s), or sooner, when the monitor releases it. "
        "Also, no live worker serves the queue q (`dueline worker -q q`)."
    )


def test_a_dead_job_says_since_when_and_why(world: World) -> None:
    job_id = world.put()
    world.die(job_id, "ValueError: " + "x" * 300)
    explanation = why(world, job_id, "dead")
    assert explanation.sentence.startswith(
        "It has been dead since 2026-01-01T00:00:00Z (now) because of ValueError: xxx"
    )
    assert explanation.sentence.endswith("xxx....")


@pytest.mark.parametrize("error", ["E: no", "E: no."])
def test_a_sentence_of_a_dead_job_ends_with_one_period(world: World, error: str) -> None:
    job_id = world.put()
    world.die(job_id, error)
    assert why(world, job_id, "dead").sentence.endswith(" because of E: no.")


def test_a_ready_job_of_a_paused_queue_waits_for_the_end_of_the_pause(world: World) -> None:
    job_id, later = world.put(), world.put(after_s=90)
    world.live()
    why(world, job_id, "waiting")
    world.queues.engine.catalog.configure("q", is_paused=True)
    explanation = why(world, job_id, "paused")
    assert (
        explanation.sentence
        == "It is ready, but the queue q is paused (`dueline queues resume q`)."
    )
    why(world, later, "scheduled")
    world.claim(job_id, start=True)
    why(world, job_id, "running")


def test_a_ready_job_of_a_paused_tenant_waits_for_the_end_of_that_pause(world: World) -> None:
    # F10
    mine, others, nobodys = (world.put(tenant=tenant) for tenant in ("two words", "b", ""))
    world.live()
    pauses.pause(world.queues.engine, "q", tenants=["two words", ""])
    explanation = why(world, mine, "paused")
    assert explanation.sentence == (
        "It is ready, but in the queue q the tenant two words is paused "
        "(`dueline queues resume q --tenant 'two words'`)."
    )
    assert "jobs without a tenant are paused" in why(world, nobodys, "paused").sentence
    why(world, others, "waiting")


def test_a_ready_job_waits_for_permits_that_others_hold(world: World) -> None:
    job_id, later = (world.put(limits=["warehouse"], after_s=after_s) for after_s in (0, 90))
    world.live()
    world.live("w2")
    semaphore.define(world.store, "warehouse", 3, ids=world.queues.engine.ids)
    world.hold("warehouse", "w1", 2, lasts_s=40)
    why(world, job_id, "waiting")
    world.hold("warehouse", "w2", 1, lasts_s=20)
    world.wait_for("warehouse", "w3", 5)
    explanation = why(world, job_id, "limit")
    assert explanation.sentence == (
        "It is ready, but its limit warehouse has no free permit (capacity 3): "
        "w1 holds 2 until 2026-01-01T00:00:40Z (in 40s), "
        "w2 holds 1 until 2026-01-01T00:00:20Z (in 20s); w3 waits for 5."
    )
    assert explanation.facts == {
        "queue": "q", "limit": "warehouse", "semaphore": "warehouse", "capacity": 3, "held": 3,
        "holders": "w1=2, w2=1", "waiting": "w3=5", "until_us": world.now_us + 20 * SECOND_US,
    }  # fmt: skip
    why(world, later, "scheduled")
    world.clock.advance(20)
    world.live()
    why(world, job_id, "waiting")  # w2's have lapsed


def test_each_key_has_its_own_permits_and_one_by_default(world: World) -> None:
    mine, others = (world.put(limits=[f"host:{host}", "any"]) for host in ("a", "b"))
    world.live()
    world.hold("host:a")
    explanation = why(world, mine, "limit")
    assert "its limit host:a has no free permit (capacity 1, as nobody has" in explanation.sentence
    why(world, others, "waiting")


def test_a_limit_of_capacity_0_says_how_to_raise_it(world: World) -> None:
    job_id = world.put(limits=["any", "warehouse"])
    world.live()
    world.hold("any")
    why(world, job_id, "limit")
    semaphore.define(world.store, "warehouse", 0, ids=world.queues.engine.ids)
    explanation = why(world, job_id, "limit")
    assert explanation.sentence == (
        "It is ready, but its limit warehouse has a capacity of 0, so no job starts "
        "(`dueline limits set warehouse 4`). Also, its limit any has no free permit (capacity 1, "
        "as nobody has set it): w1 holds 1 until 2026-01-01T00:00:30Z (in 30s)."
    )
    assert [condition.change for condition in explanation.conditions] == ["operator", "work"]


def test_a_limit_that_a_handler_closed_says_until_when(world: World) -> None:
    # F6, V4
    job_id = world.put(limits=["any", "warehouse"])
    world.live()
    world.hold("any")
    suspend(world.queues.engine, ["warehouse"], world.now_us + 40 * SECOND_US)
    explanation = why(world, job_id, "limit")
    assert explanation.sentence.startswith(
        "It is ready, but its limit warehouse is closed until 2026-01-01T00:00:40Z (in 40s), "
        "since a handler raised Throttled. Also, its limit any has no free permit "
    )
    assert explanation.facts["closed_us"] == world.now_us + 40 * SECOND_US
    assert BusyLimits(world.queues.engine).has(world.row(job_id).lane)
    world.clock.advance(40)
    world.live()
    assert "closed" not in why(world, job_id, "waiting").sentence


def test_a_limit_comes_after_a_pause_and_a_missing_worker(world: World) -> None:
    job_id = world.put(limits=["warehouse"])
    world.hold("warehouse")
    world.queues.engine.catalog.configure("q", is_paused=True)
    explanation = why(world, job_id, "paused")
    assert [condition.kind for condition in explanation.conditions] == [
        "paused",
        "no worker",
        "limit",
    ]
    assert explanation.sentence.startswith(
        "It is ready, but the queue q is paused (`dueline queues resume q`). Also: (1) no live "
        "worker serves the queue q (`dueline worker -q q`); (2) its limit warehouse has no free"
    )
    world.live()
    world.queues.engine.catalog.configure("q", is_paused=False)
    why(world, job_id, "limit")


def test_a_few_holders_are_named_and_the_others_counted(world: World) -> None:
    job_id = world.put(limits=["warehouse"])
    world.live()
    for number in range(7):
        world.live(f"w{number}")
        world.hold("warehouse", f"w{number}")
    explanation = why(world, job_id, "limit")
    assert explanation.sentence.endswith("(in 30s), and 2 more.")
    assert "w4 holds" in explanation.sentence
    assert "w5 holds" not in explanation.sentence


@pytest.mark.parametrize("state", [state for state in get_args(FinalState) if state != "dead"])
def test_a_job_that_ended_says_since_when(world: World, state: FinalState) -> None:
    job_id = world.put()
    world.end(world.claim(job_id), Outcome(state, world.now_us, error="E" * (state == "lost")))
    explanation = why(world, job_id, state)
    because = " because of E" if state == "lost" else ""
    assert explanation.sentence == f"It has been {state} since 2026-01-01T00:00:00Z (now){because}."


def test_a_job_that_is_about_to_leave_its_row_has_ended(world: World) -> None:
    job_id = world.put()
    job = world.claim(job_id)
    outcome = Outcome("dead", world.now_us, error="E")
    end = finish_of(job, outcome, None, world.queues.engine.catalog.settings("q"))
    move = Move(job, job.at_us, world.queues.engine.ids.token(), 0, 1, 0, outcome=encode(end))
    world.store.settle([move])
    why(world, job_id, "dead")
