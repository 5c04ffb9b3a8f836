"""How fast jobs end, how late they start, and who follows that."""

from dataclasses import replace

import pytest

from dueline.admin import throughput, watch
from dueline.admin.id_prefixes import find_id
from dueline.admin.throughput import recent, throughput_of
from dueline.admin.watch import Watch
from dueline.core.attempt import Attempt, Outcome
from dueline.core.clock import SECOND_US
from dueline.jobs.history import LATE_US, Follower
from tests.harness.clocks import NOW_US
from tests.harness.unique_jobs import keyed
from tests.harness.world import World

ATTEMPT = Attempt(
    job="00", task="t", queue="q", tenant="", priority=0, enqueued_us=NOW_US, due_us=NOW_US,
    claimed_us=NOW_US, started_us=NOW_US, ended_us=NOW_US, outcome="done", error="", worker="w",
    fence=1,
)  # fmt: skip


def late(late_us: int, *, fence: int = 1, outcome: str = "done") -> Attempt:
    return replace(ATTEMPT, started_us=NOW_US + late_us, fence=fence, outcome=outcome)


def test_nothing_is_neither_fast_nor_late() -> None:
    totals = throughput_of([], SECOND_US)
    assert (totals.ended, totals.per_s(), totals.late_p50_us, totals.late_p99_us) == (
        0,
        0,
        None,
        None,
    )


def test_lateness_is_that_of_first_starts() -> None:
    starts = [late(number) for number in range(1, 101)]
    totals = throughput_of(
        [*starts, late(9999, fence=2), replace(ATTEMPT, started_us=0)], SECOND_US
    )
    assert (totals.late_p50_us, totals.late_p99_us) == (50, 99)


def test_outcomes_are_counted_apart() -> None:
    outcomes = ["done", "done", "retried", "dead", "crashed", "snoozed", "given_back", "cancelled"]
    totals = throughput_of([late(0, outcome=outcome) for outcome in outcomes], 4 * SECOND_US)
    assert (totals.ended, totals.done, totals.failed, totals.per_s()) == (8, 2, 3, 0.5)
    assert totals.expired == 0
    assert throughput_of([late(0, outcome="expired")], SECOND_US).expired == 1


def done(world: World, *, queue: str = "q", ended_us: int | None = None) -> str:
    """Have a job done; answer its id."""
    job_id = world.put(queue=queue)
    world.end(world.claim(job_id), Outcome("done", ended_us or world.now_us))
    return job_id.hex()


def test_few_attempts_are_looked_for_further_back(world: World) -> None:
    done(world)
    world.clock.advance(200)
    done(world)
    done(world, queue="other")
    totals = recent(world.queues.engine, ["q"])
    assert (totals.done, totals.span_us) == (2, 300 * SECOND_US)
    assert not totals.is_capped


def test_enough_attempts_are_those_of_the_last_seconds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throughput, "ENOUGH", 2)
    done(world)
    world.clock.advance(100)
    done(world)
    done(world)
    totals = recent(world.queues.engine, ["q"])
    assert (totals.done, totals.span_us, totals.per_s()) == (2, 10 * SECOND_US, 0.2)
    assert recent(world.queues.engine, ["q"], most=2).is_capped


def test_rates_of_a_watch_are_those_of_all_attempts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "ATTEMPTS_MAX", 3)  # others would name the last queue alone
    watched = Watch(world.queues.engine)
    watched.look()
    world.clock.advance(50)
    for _ in range(20):
        done(world)
        done(world, queue="other")
        world.clock.advance(1)
    view = watched.look()
    assert view.throughput.done == 40
    assert 0 < view.throughput.per_s() < 1
    assert view.rates["q"] == view.rates["other"] >= 20
    world.clock.advance(60)
    assert watched.look().throughput.ended == 0


def jobs_of(attempts: list[Attempt]) -> list[str]:
    return [attempt.job for attempt in attempts]


def test_a_follower_tells_of_each_attempt_once(world: World) -> None:
    done(world)
    world.clock.advance(1)
    follower = Follower(world.store, since_us=world.now_us)
    assert follower.read({"q": 1}) == []
    first = done(world)
    assert jobs_of(follower.read({"q": 1})) == [first]
    second, other = done(world), done(world, queue="other")
    assert sorted(jobs_of(follower.read({"q": 1, "other": 1}))) == sorted([second, other])
    assert follower.read({"q": 1, "other": 1}) == []
    world.clock.advance(3600)
    last = done(world)
    assert jobs_of(follower.read({"q": 1, "other": 1})) == [last]
    assert follower.read({"q": 1, "other": 1}) == []


def test_an_expiry_that_a_call_notes_counts_as_one_that_a_worker_notes(world: World) -> None:
    # C15, V2: a call with the same key ends a job that expired while no worker ran
    calls = [keyed(n, expires_us=world.now_us + n * 9 * SECOND_US) for n in (1, 2)]
    follower = Follower(world.store, since_us=world.now_us)
    watched = Watch(world.queues.engine)
    (first,) = world.queues.enqueue(calls[0])
    world.clock.advance(10)
    assert watched.look().throughput.expired == 0
    world.queues.enqueue(calls[1])
    assert jobs_of(follower.read({"default": 1})) == [first.id.hex()]
    assert follower.read({"default": 1}) == []
    for totals in (
        recent(world.queues.engine, ["default"]),
        watched.look().throughput,
        Watch(world.queues.engine).look().throughput,
    ):
        assert (totals.ended, totals.expired, totals.done, totals.failed) == (1, 1, 0, 0)
    assert find_id(world.queues.engine, first.id.hex()[:20]) == first.id


def test_a_follower_tells_of_what_is_written_a_little_late(world: World) -> None:
    follower = Follower(world.store, since_us=world.now_us)
    world.clock.advance(60)
    began_us = world.now_us
    newer = done(world)
    assert jobs_of(follower.read({"q": 1})) == [newer]
    late_one = done(world, ended_us=began_us - LATE_US + 1)
    too_late = done(world, ended_us=began_us - LATE_US - 1)
    assert jobs_of(follower.read({"q": 1})) == [late_one]
    assert too_late != late_one
