"""Jobs that are moved to another queue, on each kind of store (O6, rule O4)."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from dueline import (
    BadInput,
    Conflict,
    Dueline,
    Duplicate,
    DurableContext,
    Job,
    NotFound,
    Retry,
    StoreUnavailable,
    Unique,
    pipeline,
)  # fmt: skip
from dueline.admin.search import attempts_of
from dueline.api.job_handle import parse_id
from dueline.api.raw_queue import RawQueue
from dueline.core.actor import Actor
from dueline.core.call_options import Rule
from dueline.core.pagination import jobs_in
from dueline.core.store import NO_VERSION
from dueline.jobs import unique_records
from dueline.jobs.queue_moves import QueueMoves
from dueline.jobs.unique import rule_of
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA, address
from tests.harness.durable_stage import HOWS, KINDS, DisturbedStore, DurableStage, Stages
from tests.harness.lives import Stopped

ANN = Actor("ann", "dashboard")


@pytest.fixture(params=[*IN_MEMORY, *LONG_ON_CASSANDRA])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dueline]:
    """Make an application on an empty store, with the queues a and b."""
    with address(request.param, tmp_path) as url:
        made = with_queues(Dueline(url))
        yield made
        made.close()


def with_queues(app: Dueline) -> Dueline:
    """Make the queues and register the tasks."""
    app.queue("a", keep=60)
    app.queue("b", keep=60, shards=3, history="all")
    declare(app)
    return app


def declare(app: Dueline, _: object = None) -> None:
    """Register the tasks."""
    app.task(name="work", queue="a", retry=Retry.fixed(3600, attempts=2))(work)
    app.durable(name="wait", queue="a")(wait)


def work(name: str = "") -> str:
    """Return the argument, or fail."""
    if name == "bad":
        raise ValueError
    return name


def wait(ctx: DurableContext) -> str:
    """Wait for a signal."""
    return str(ctx.wait_signal("go"))


def queues_of(app: Dueline, *jobs: Job[str]) -> list[list[str]]:
    """Return for each job the queues in which its rows are."""
    lanes = {name: list(app.engine.lanes_of(name)) for name in ("a", "b")}
    rows = [
        (row.id.hex(), name)
        for name, listed in lanes.items()
        for lane in listed
        for row in jobs_in(app.engine.store, lane)
    ]
    return [[name for job_id, name in rows if job_id == job.id] for job in jobs]


def events(app: Dueline, job: Job[str]) -> list[str]:
    """Return the events of a job in all queues, the first first."""
    attempts = attempts_of(app.engine, parse_id(job.id), None, limit=50).attempts
    return [f"{attempt.queue} {attempt.outcome}: {attempt.error}" for attempt in reversed(attempts)]


def is_refused(call: Callable[[], object]) -> bool:
    """Make a call; return whether another job has the unique key."""
    try:
        call()
    except Duplicate:
        return True
    except Conflict as error:
        return "holds its unique key" in error.message
    return False


def burst(app: Dueline, queue: str = "b") -> None:
    """Run what is due in a queue."""
    app.run_worker(queues=[queue], burst=True)


def test_a_moved_job_keeps_all_but_its_queue(app: Dueline) -> None:
    task = app.task_named("work")
    calls = task.using(priority=3, tenant="t", tags=["big"], headers={"trace": "7"})
    ready, later, paused = calls.enqueue("x"), calls.using(after=3600).enqueue("y"), calls.enqueue()
    paused.pause()
    bad = task.enqueue("bad")
    for job in (later, paused, ready):
        (before,) = app.engine.store.find([parse_id(job.id)])
        QueueMoves(app.queues.by(ANN), "b").move(parse_id(job.id))
        (after,) = app.engine.store.find([parse_id(job.id)])
        assert before is not None
        assert after is not None
        assert after.lane == before.lane._replace(
            queue="b", shard=after.lane.shard, bucket=after.lane.bucket
        )
        kept = ("id", "at_us", "due_us", "enqueued_us", "task", "body", "opts", "errors", "error")
        assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert queues_of(app, ready, later, paused, bad) == [["b"], ["b"], ["b"], ["a"]]
    assert [job.status for job in (ready, later, paused)] == ["ready", "scheduled", "paused"]
    burst(app, "a")
    assert (ready.status, bad.status) == ("ready", "retrying")
    bad.move("b")
    assert [attempt.queue for attempt in app.admin.get(bad.id).attempts] == ["b", "a", "a"]
    burst(app)
    assert ready.result(timeout=0) == "x"
    later.retry()
    paused.resume()
    bad.retry()
    burst(app)
    assert [job.status for job in (later, paused, bad)] == ["done", "done", "dead"]
    assert [event for event in events(app, later) if " by ann" in event] == [
        "a noted: moved to the queue b by ann (dashboard)",
        "b changed: moved from the queue a by ann (dashboard)",
    ]


def test_a_filter_moves_what_can_be_moved_and_names_the_rest(app: Dueline) -> None:
    task = app.task_named("work")
    jobs = [task.using(tenant="t", priority=number).enqueue("x") for number in range(4)]
    (claimed,) = RawQueue(app, "a", lease=30).claim(1)
    running = next(job for job in jobs if job.id == claimed.id)
    other = task.using(tenant="u").enqueue("x")
    keyed = task.using(tenant="t", unique="one").enqueue("x")
    task.using(tenant="u", queue="b", unique="one").enqueue("x")
    ordered = [task.using(tenant="t", order_key="k").enqueue("x") for _ in range(2)]
    filter = "queue:a tenant:t"  # noqa: A001
    planned = app.move_jobs(filter, to="b", dry_run=True)
    assert (planned.moved, planned.left) == (
        3, {"running": 1, "unique key": 1, "order key": 2},
    )  # fmt: skip
    assert app.move_jobs(f"{filter} priority>1", to="b", dry_run=True).moved == 1
    assert queues_of(app, *jobs) == [["a"]] * 4
    assert asyncio.run(app.amove_jobs(filter, to="b")) == planned
    assert app.move_jobs(filter, to="b").moved == 0
    left = [running, keyed, *ordered, other]
    assert queues_of(app, *left) == [["a"]] * 5
    assert queues_of(app, *(job for job in jobs if job is not running)) == [["b"]] * 3
    action = app.admin.actions()[0]
    assert (action.what, action.target, action.door) == ("move to b", filter, "code")


def test_a_move_that_cannot_be_changes_nothing(app: Dueline) -> None:
    task = app.task_named("work")
    job = task.enqueue("x")
    refusals = {"a": (Conflict, "already"), "c": (NotFound, "c"), "!": (BadInput, "!")}
    for queue, (error, reason) in refusals.items():
        with pytest.raises(error, match=reason):
            job.move(queue)
    with pytest.raises(BadInput, match="names no queue"):
        app.move_jobs("tenant:t", to="b")
    with pytest.raises(BadInput, match="already"):
        app.move_jobs("queue:a", to="a")
    with pytest.raises(BadInput, match="cannot be moved"):
        app.move_jobs("queue:a state:dead", to="b")
    ordered = task.using(order_key="k").enqueue("x")
    with pytest.raises(Conflict, match="its order key belongs to its queue"):
        ordered.move("b")
    app.queue("once", deliver="at_most_once")
    function = app.task_named("wait").enqueue()
    with pytest.raises(Conflict, match="delivers at most once"):
        function.move("once")
    burst(app, "a")
    with pytest.raises(Conflict, match="is done and cannot be moved"):
        job.move("b")
    assert queues_of(app, function) == [["a"]]


def test_a_unique_key_goes_along(app: Dueline) -> None:
    task = app.task_named("work").using(unique=Unique("one"), after=60)
    job = task.enqueue("x")
    job.move("b")
    assert is_refused(partial(task.using(queue="b").enqueue, "y"))
    assert app.find("one", queue="a") is None
    there = app.find("one", queue="b")
    assert there is not None
    assert there.id == job.id
    other = task.enqueue("y")
    assert is_refused(partial(other.move, "b"))
    job.cancel()
    other.move("b")
    task.enqueue("z").cancel()
    other.move("a")
    other.retry()
    burst(app, "a")
    assert other.status == "done"
    task.enqueue("z").cancel()
    task.using(queue="b").enqueue("z").cancel()


def test_a_key_that_is_taken_for_a_move_brings_no_job_back(app: Dueline) -> None:
    # The mover stops after it has taken the key.
    app.queue("a", keep=0)
    task = app.task_named("work").using(unique="one")
    job, there = task.enqueue("x"), task.using(queue="b")
    (row,) = app.engine.store.find([parse_id(job.id)])
    assert row is not None
    lane = row.lane._replace(queue="b")
    take = unique_records.carry(row, lane, rule_of(row) or Rule(""), expect=NO_VERSION)
    assert app.engine.store.commit(*take)
    assert is_refused(partial(there.enqueue, "y"))
    burst(app, "a")
    other = there.enqueue("y")
    assert queues_of(app, job, other) == [[], ["b"]]


def test_what_waits_for_a_moved_job_goes_on(app: Dueline) -> None:
    task = app.task_named("work")
    first = task.enqueue("x")
    second = task.using(depends_on=[first]).enqueue("y")
    function = app.task_named("wait").enqueue()
    flow = app.start(pipeline(task.step("p"), task.step()))
    assert app.move_jobs("queue:a", to="b").left == {}
    burst(app)
    function.signal("go", "on")
    burst(app)
    assert (first.status, second.status, function.result(timeout=0)) == ("done", "done", "on")
    assert flow.status == "done"


def test_quotas_of_the_new_queue_hold(app: Dueline) -> None:
    app.quota("b", depth=2)
    task = app.task_named("work").using(after=60)
    jobs = [task.enqueue("x") for _ in range(4)]
    moved = app.move_jobs("queue:a", to="b")
    assert (moved.moved, moved.left) == (2, {"quota": 2})
    assert sorted(queues_of(app, *jobs)) == [["a"], ["a"], ["b"], ["b"]]


@pytest.fixture(params=KINDS)
def stages(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stages]:
    """Make stages on a kind of store."""
    made = Stages(request.param, tmp_path, declare)
    yield made
    made.close()


@pytest.mark.parametrize("how", HOWS)
def test_a_job_is_in_one_queue_whatever_stops_a_move(stages: Stages, how: str) -> None:
    at = stages._first_call("move", how)
    while _moved(stages.fresh(), at, how) >= at:
        at += stages.stride
    assert at > 10


def _moved(stage: DurableStage, at: int, how: str) -> int:
    """Move jobs, disturbed at a call, and again; return the number of calls."""
    app = stage.onlooker
    for name in ("a", "b"):
        app.queue(name, keep=60)
    task = app.task_named("work")
    plain = [task.enqueue("x") for _ in range(2)]
    keyed = task.using(unique="one").enqueue("y")
    others = partial(app.move_jobs, "queue:a", to="b")
    store = DisturbedStore(stage.store, at, how, others)
    mover = stage.process(store)
    with suppress(Stopped, StoreUnavailable, Conflict):
        mover.move_jobs("queue:a", to="b")
    words = f"{how} at call {at}"
    assert [len(places) for places in queues_of(app, *plain, keyed)] == [1, 1, 1], words
    stage.process(stage.store).move_jobs("queue:a", to="b")
    assert queues_of(app, *plain, keyed) == [["b"]] * 3, words
    assert is_refused(partial(task.using(queue="b", unique="one").enqueue, "z")), words
    task.using(unique="one").enqueue("z").cancel()
    burst(app)
    assert [job.status for job in (*plain, keyed)] == ["done"] * 3, words
    burst(app, "a")
    task.using(queue="b", unique="one").enqueue("z").cancel()
    return store.calls
