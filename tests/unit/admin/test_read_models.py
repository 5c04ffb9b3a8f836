"""`app.admin`: lists, counts, statistics and what operators did (C15, V1)."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dueline import Dueline, Retry, pipeline, wait_for
from dueline.admin.operations import BULK_MAX
from dueline.admin.read_models import Admin
from dueline.admin.timeline import SLOT_MAX, SLOT_US, timeline
from dueline.admin.watch import STEP_US, Watch
from dueline.core.attempt import Outcome
from dueline.core.call_options import CallOptions
from dueline.core.clock import DAY_US, SECOND_US
from dueline.core.errors import BadInput, NotFound
from dueline.core.job import JobId
from dueline.core.lane import Lane
from dueline.core.store import JobPage
from dueline.jobs.counts import count
from dueline.jobs.queue import EnqueueRequest
from tests.harness.clocks import HandClock
from tests.harness.world import KINDS, World, world_on


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = world_on(request.param, tmp_path)
    yield made
    made.store.close()


@pytest.fixture
def admin(world: World) -> Admin:
    return Admin(world.queues)


def expiring(world: World, *, after_s: float) -> JobId:
    """Enqueue a job that expires ten seconds after it is due."""
    due_us = world.now_us + round(after_s * SECOND_US)
    opts = CallOptions(expires_us=due_us + 10 * SECOND_US).to_bytes()
    return world.queues.enqueue(EnqueueRequest("q", "t", 0, [b"[1]"], due_us, opts=opts))[0].id


def test_pages_have_every_job_once_while_others_come_and_go(world: World, admin: Admin) -> None:
    made = [world.put(queue=queue, after_s=60 * n).hex() for n in range(8) for queue in "ab"]
    first = admin.list(limit=5)
    assert [job.id for job in first.jobs] == sorted(made[:6], key=made.index)[:5]
    world.queues.cancel(world.put(queue="a"))
    seen = [job.id for job in first.jobs]
    page = first
    while page.next:
        page = admin.list(limit=5, after=page.next)
        seen += [job.id for job in page.jobs]
    assert sorted(seen) == sorted(made)


def test_pages_of_ended_jobs_go_back_in_time(world: World, admin: Admin) -> None:
    for _ in range(7):
        world.clock.advance(1)
        world.die(world.put())
    first = admin.list("state:dead", limit=3)
    assert first.next
    rest = admin.list("state:dead", limit=9, after=first.next)
    assert len(first.jobs) + len(rest.jobs) == 7
    assert rest.next is None
    with pytest.raises(BadInput):
        admin.list(after="now")


def test_expired_jobs_are_listed_whether_a_worker_has_ended_them_or_not(
    world: World, admin: Admin
) -> None:
    ended = []
    for _ in range(3):
        world.clock.advance(1)
        job = world.claim(world.put())
        world.end(job, Outcome("expired", world.now_us))
        ended.append(job.id.hex())
    assert admin.count("state:expired").jobs == 3
    waiting = [expiring(world, after_s=n).hex() for n in range(3)]
    expiring(world, after_s=3600)
    assert admin.list("state:expired").jobs[0].id == ended[-1]
    world.clock.advance(60)
    expected = [*waiting, *reversed(ended)]
    whole = admin.list("state:expired")
    assert [job.id for job in whole.jobs] == expected
    assert [job.state for job in whole.jobs] == ["expired"] * 6
    assert whole.jobs[0].ended_us == world.now_us - 50 * SECOND_US  # when it expired
    assert admin.count("state:expired") == (6, False)
    for limit in (1, 2, 3, 4, 5, 6):
        page = admin.list("state:expired", limit=limit)
        seen = [job.id for job in page.jobs]
        while page.next:
            page = admin.list("state:expired", limit=limit, after=page.next)
            assert page.jobs
            seen += [job.id for job in page.jobs]
        assert seen == expected
    assert not admin.list("state:expired tag:a", limit=1).jobs


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/flows.db"])
def test_a_list_says_how_a_workflow_holds_its_steps(url: str, tmp_path: Path) -> None:
    app = Dueline(url.format(tmp_path))

    @app.task(name="fail", retry=Retry(attempts=1))
    def fail() -> None:
        raise ValueError

    @app.task(name="use")
    def use(made: object) -> object:
        return made

    app.start(pipeline(fail.step(), use.step(), use.step()))
    app.start(pipeline(use.step(1), wait_for("go"), use.step()))
    shown = [job.shown_state for job in app.admin.list().jobs]
    assert sorted(shown) == ["ready", "ready", *["waiting"] * 4]
    app.run_worker(burst=True)
    shown = [job.shown_state for job in app.admin.list().jobs]
    assert sorted(shown) == ["held", *["waiting"] * 3]
    app.close()


def test_a_search_that_stopped_goes_on_where_it_stopped(world: World, admin: Admin) -> None:
    made = [world.put(priority=n % 3, after_s=n, task=f"t{n % 5}").hex() for n in range(60)]
    seen: list[str] = []
    page = admin.list("task:t0", limit=5, most=20)
    rounds = 1
    while page.next:
        seen += [job.id for job in page.jobs]
        page = admin.list("task:t0", limit=5, most=20, after=page.next)
        rounds += 1
    seen += [job.id for job in page.jobs]
    assert seen == made[::5]
    assert rounds > 2


def test_a_search_reads_lanes_in_the_order_of_time(
    world: World, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dueline.admin.search.LANES_AT_ONCE", 3)
    days = DAY_US // SECOND_US
    made = [world.put(after_s=n * days, tenant=tenant).hex() for n in range(8) for tenant in "abc"]
    scan, scans = world.store.scan, list[Lane]()

    def counted(lane: Lane, **terms: Any) -> JobPage:  # noqa: ANN401
        scans.append(lane)
        return scan(lane, **terms)

    monkeypatch.setattr(world.store, "scan", counted)
    assert [job.id for job in admin.list(limit=3).jobs] == made[:3]
    assert len(scans) == 6  # three jobs, and one that shows that there are more
    scans.clear()
    assert len(admin.list("state:ready").jobs) == 3 == len(scans)
    world.queues.retry(JobId(bytes.fromhex(made[-1])))  # it stays in the lane of its day
    assert made[-1] in [job.id for job in admin.list("state:ready").jobs]
    made = [*made[:3], made[-1], *made[3:-1]]
    monkeypatch.setattr("dueline.admin.read_models.READ_US_MAX", -1)  # the time is always over
    seen, page = list[str](), admin.list(limit=5)
    assert page.is_capped
    while page.next:
        seen += [job.id for job in page.jobs]
        page = admin.list(limit=5, after=page.next)
    assert seen + [job.id for job in page.jobs] == made


def test_counts_say_when_they_are_not_complete(world: World, admin: Admin) -> None:
    for n in range(12):
        world.put(priority=n)
    assert admin.count() == (12, False)
    assert admin.count("priority>=6") == (6, False)
    assert admin.count("priority<3 state:ready") == (3, False)
    assert admin.count(most=5) == (5, True)
    engine = world.queues.engine
    assert not count(engine, "q", ()).is_capped
    late = count(engine, "q", (), until_us=engine.clock.monotonic_us() - 1)
    assert (late.ready, late.is_capped) == (1, True)


def test_a_job_is_found_by_its_first_digits(world: World, admin: Admin) -> None:
    job_id = world.put().hex()
    assert admin.get(job_id[:20]).summary.id == admin.get(job_id.upper()).summary.id == job_id
    assert admin.explain(job_id).reason in ("no worker", "waiting")
    with pytest.raises(NotFound):
        admin.get("0" * 32)
    with pytest.raises(BadInput):
        admin.get("not an id")


def test_the_timeline_counts_by_time_and_priority(world: World, admin: Admin) -> None:
    world.put(priority=5, after_s=7200)
    world.put(priority=-5, after_s=7200)
    world.put()
    world.put(after_s=DAY_US // SECOND_US * 3)
    view = admin.timeline()
    assert view.until_us is None
    filled = [slot for slot in view.slots if slot.total]
    assert [slot.counts for slot in filled] == [
        {"high": 0, "normal": 1, "low": 0},
        {"high": 1, "normal": 0, "low": 1},
    ]
    assert filled[1].at_us <= world.now_us + 7200 * SECOND_US < filled[1].at_us + 1800 * SECOND_US


def test_the_timeline_skips_the_rest_of_a_full_slot(world: World) -> None:
    many = EnqueueRequest("q", "t", 0, [b"[]"] * (3 * SLOT_MAX))
    world.queues.enqueue(many)
    world.queues.enqueue(many._replace(due_us=world.now_us + 7200 * SECOND_US))
    view = timeline(world.queues.engine)
    filled = [slot for slot in view.slots if slot.total]
    assert [slot.is_capped for slot in filled] == [True, True]
    assert all(SLOT_MAX <= slot.total < 2 * SLOT_MAX for slot in filled)


def test_a_timeline_that_runs_out_of_time_has_what_is_due_first(world: World) -> None:
    for hour in range(20):
        for priority in (-5, 0, 5):
            for tenant in "abcdefg":
                world.put(priority=priority, after_s=3600 * hour + 600, tenant=tenant)
    engine = world.queues.engine
    assert {slot.counts["high"] for slot in timeline(engine).slots[2:40:2]} == {7}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dueline.admin.timeline.LANES_AT_ONCE", 7)
        patch.setattr("dueline.admin.timeline._PAGE", 5)
        clock = HandClock(0)
        patch.setattr(clock, "monotonic_us", iter(range(0, 10**9, SECOND_US // 10)).__next__)
        view = timeline(replace(engine, clock=clock), read_us_max=SECOND_US)
    assert view.until_us is not None
    whole = [slot for slot in view.slots if slot.at_us + SLOT_US <= view.until_us]
    assert not any(slot.is_capped for slot in whole)
    assert all(slot.is_capped for slot in view.slots[len(whole) :])
    assert {tuple(slot.counts.values()) for slot in whole} == {(0, 0, 0), (7, 7, 7)}
    assert sum(slot.total for slot in view.slots) < 20 * 21


def test_a_watch_has_the_attempts_since_its_start_once(world: World) -> None:
    watch = Watch(world.queues.engine)
    world.die(world.put())
    first = watch.look()
    assert (first.throughput.failed, first.series[-1].failed) == (1, 1)
    assert not first.series[-1].is_whole
    assert watch.look(max_age_us=SECOND_US) is first
    world.clock.advance(2 * STEP_US / SECOND_US)
    world.die(world.put())
    second = watch.look()
    assert second.throughput.failed == 2
    assert sum(step.failed for step in second.series) == 2
    assert second.counts[0].dead == 2
    world.clock.advance(2 * STEP_US / SECOND_US + 2)
    third = watch.look().series
    assert [step.is_whole for step in third] == [True] * (len(third) - 1) + [False]
    assert sum(step.failed for step in third if step.is_whole) == 2
    assert [after.at_us - step.at_us for step, after in pairwise(third)] == [STEP_US] * 4


def test_operators_leave_a_record_of_what_they_did(world: World, admin: Admin) -> None:
    operations = admin.operations("ann")
    dead = world.put()
    world.die(dead)
    world.clock.advance(1)
    operations.retry(dead)
    world.clock.advance(1)
    operations.pause("q")
    world.clock.advance(1)
    with pytest.raises(NotFound):
        operations.cancel(type(dead)(bytes(16)))
    actions = admin.actions()
    assert [(action.who, action.what) for action in actions[-2:]] == [
        ("ann", "pause queue"),
        ("ann", "retry"),
    ]
    assert {action.result for action in actions} >= {"done"}
    assert any(action.result.startswith("rejected: ") for action in actions)
    assert len(admin.actions(limit=1)) == 1


def test_a_bulk_change_is_made_in_portions(world: World, admin: Admin) -> None:
    for _ in range(5):
        world.put(after_s=60)
    operations = admin.operations("ann")
    like = admin.filter("state:scheduled")
    assert BULK_MAX > 3
    at_us = world.now_us + 7200 * SECOND_US
    assert operations.bulk("reschedule", like, "x", at_us=at_us, limit=3).done == 3
    assert operations.bulk("reschedule", like, "x", at_us=at_us, limit=3).done == 2
    assert {job.at_us for job in admin.list().jobs} == {at_us}
    with pytest.raises(BadInput):
        operations.bulk("retry", admin.filter("state:done"), "state:done")


def test_dead_letters_are_grouped_apart_from_numbers(world: World, admin: Admin) -> None:
    for _ in range(3):
        world.die(world.put())
    dead = admin.dead_letters()
    assert [group.count for group in dead.groups] == [3]
    assert admin.count(dead.groups[0].filter) == (3, False)


def test_an_ended_job_has_its_attempts_and_its_result(world: World, admin: Admin) -> None:
    job_id = world.put()
    world.back(world.claim(job_id, start=True), after_s=1, errors=1, error="ValueError: bad")
    world.clock.advance(2)
    value = '{"sum": 3}'
    world.end(world.claim(job_id, start=True), Outcome("done", world.now_us, value=value))
    details = admin.get(job_id.hex())
    assert (details.summary.state, details.summary.task, details.summary.claims) == ("done", "t", 2)
    assert details.result == {"sum": 3}
    assert details.has_result
    assert details.hidden
    broken = world.put()
    world.clock.advance(1)
    world.end(world.claim(broken), Outcome("done", world.now_us, value="{"))
    assert admin.get(broken.hex()).result == "{"
    world.queues.engine.catalog.configure("q", history="all")
    once = world.put()
    world.clock.advance(1)
    world.end(world.claim(once), Outcome("done", world.now_us, value="1"))
    assert [event.outcome for event in admin.get(once.hex()).attempts] == ["done", "enqueued"]


def test_a_job_without_a_result_is_read_from_the_history(world: World, admin: Admin) -> None:
    world.queues.engine.catalog.configure("q", keep_us=0)
    job_id = world.put()
    world.end(world.claim(job_id), Outcome("cancelled", world.now_us, error="by hand"))
    details = admin.get(job_id.hex())
    assert (details.summary.state, details.summary.error) == ("cancelled", "by hand")
    assert not details.has_result
    assert [attempt.outcome for attempt in details.attempts] == ["cancelled"]


def test_arguments_that_cannot_be_read_are_not_shown(world: World, admin: Admin) -> None:
    for codec, body in ((0, b"["), (99, b"x")):
        row = world.queues.enqueue(EnqueueRequest("q", "t", codec, [body]))[0]
        details = admin.get(row.id.hex())
        assert details.arguments is None
        assert f"{len(body)} bytes" in details.hidden
