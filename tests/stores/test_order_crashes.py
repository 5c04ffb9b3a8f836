"""Jobs with order keys, disturbed at each call of the store (rules J6 to J10).

A worker, or the caller that stores the jobs, stops, is paused, or gets no answer.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from dueline import Dueline, OrderKey, Retry
from dueline.core.engine import Engine
from dueline.core.errors import EnqueueUnknown, StoreUnavailable
from dueline.core.job import Job as Row
from dueline.core.pagination import records_in
from dueline.core.store import Move
from dueline.jobs import orders
from dueline.jobs.bulk import dead_before, drop_dead, sum_of
from tests.harness.durable_stage import HOWS, KINDS, DisturbedStore, DurableStage, Stages, nothing
from tests.harness.lives import Stopped

EACH = pytest.mark.parametrize("how", HOWS)


def declare(app: Dueline, stage: DurableStage) -> None:
    """Declare a job that fails once, and notes whether those before it had ended."""

    @app.task(name="book", retry=Retry.fixed(1, attempts=5), order_key=OrderKey("one"))
    def book(number: int) -> None:
        if any(not stage.effects[f"{before}"] for before in range(number)):
            stage.effect("early")
        if stage.effect(f"tried {number}") == 0 and number == 0:
            raise ValueError("once")
        stage.effect(f"{number}")


@pytest.fixture(params=KINDS)
def stages(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stages]:
    """Make stages on a kind of store."""
    made = Stages(request.param, tmp_path, declare, every=3)
    yield made
    made.close()


def calls_of(stages: Stages, name: str, how: str) -> Iterator[tuple[DurableStage, int]]:
    """Yield a stage and the number of a call for each that is disturbed, until `calls` is lower."""
    at = stages._first_call(name, how)
    while True:
        stage = stages.fresh()
        yield stage, at
        if stage.calls < at:
            return
        at += stages.stride


def check(stage: DurableStage, words: str) -> None:
    """Check that nothing came early, and all ran."""
    assert stage.job.status == "done", words
    assert not stage.effects["early"], words
    assert all(stage.effects[f"{number}"] for number in range(3)), words


@pytest.mark.slow
@EACH
def test_a_worker_keeps_the_order_whatever_stops_it(stages: Stages, how: str) -> None:
    for stage, at in calls_of(stages, "order", how):
        book = stage.onlooker.task_named("book")
        jobs = book.enqueue_many([(number,) for number in range(3)])
        stage.job = jobs[-1]
        stage.run(at, how, between=nothing)
        check(stage, f"{how} at call {at}: {dict(stage.effects)}")


@pytest.mark.slow
@EACH
def test_a_caller_stores_a_job_in_its_order_whatever_stops_it(stages: Stages, how: str) -> None:
    """The first is acknowledged, the second one's caller is disturbed, the third comes last."""
    for stage, at in calls_of(stages, "call", how):
        stage.onlooker.task_named("book").enqueue(0)
        store = DisturbedStore(stage.store, at, how, stage.others_turn)
        app = stage.process(store)
        is_stored = False
        with suppress(Stopped):
            try:
                app.task_named("book").enqueue(1)
                is_stored = True
            except EnqueueUnknown as error:
                app.queues.enqueue_again(error.jobs)
                is_stored = True
            except StoreUnavailable:
                pass  # nothing was stored
        stage.calls = store.calls
        if not is_stored:
            stage.onlooker.task_named("book").enqueue(1)
        stage.job = stage.onlooker.task_named("book").enqueue(2)
        stage.others_finish()
        check(stage, f"{how} at call {at}: {dict(stage.effects)}")


def test_callers_that_overlap_lose_no_entry(stages: Stages) -> None:
    """Another one stores jobs between any two calls of the first: all have entries."""
    for stage, at in calls_of(stages, "overlap", "pause"):
        others = stage.onlooker.task_named("book")
        store = DisturbedStore(stage.store, at, "pause", partial(others.enqueue, 0))
        mine = stage.process(store).task_named("book").enqueue(1)
        stage.calls = store.calls
        partition = orders.partition_of("default", "one")
        entries = list(records_in(stage.store, partition))[1:]
        stored = {row.id for row in stage.onlooker.engine.jobs_of("default")}
        assert mine.id in {job_id.hex() for job_id in stored}
        assert {entry.value[:16] for entry in entries} == stored, f"at call {at}"


def let_wait(stage: DurableStage) -> None:
    """Let all jobs wait so long that they check rarely."""
    for seconds in (60, 600, 1800, 5000):
        stage.clock.advance(seconds)
        stage.turn(stage.process(stage.store))


@contextmanager
def releases_are_lost() -> Iterator[None]:
    """Let each process that ends a job stop before it releases the next one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orders, "advance", lambda _engine, _ended: 0)
        yield


def test_a_lost_release_delays_the_next_job_by_seconds(stages: Stages) -> None:
    """Also if every one is lost, and the jobs have waited for hours (rule J10)."""
    stage = stages.fresh()
    book = stage.onlooker.task_named("book")
    book.using(after=7000).enqueue(0)
    book.enqueue_many([(number,) for number in range(1, 5)])
    let_wait(stage)
    with releases_are_lost():
        stage.clock.advance(2)  # the second attempt of the first one
        stage.turn(stage.process(stage.store))
        assert (stage.effects["0"], stage.effects["1"]) == (1, 0)
        for number in range(1, 5):
            stage.clock.advance(31)
            stage.turn(stage.process(stage.store))
            assert stage.effects[f"{number}"], number
    assert not stage.effects["early"]


@pytest.mark.parametrize("how", ["retry", "delete"])
def test_after_a_dead_job_the_next_one_checks_soon(stages: Stages, how: str) -> None:
    """The process stops that ends the job which was retried, or that deletes it (rule J10)."""
    stage = stages.fresh()
    book = stage.onlooker.task_named("book")
    book.enqueue(9)  # its end releases the next one
    first = book.using(retry=Retry.fixed(1, attempts=1)).enqueue(0)
    second, third = (book.enqueue(number) for number in (1, 2))
    let_wait(stage)
    assert first.status == "dead"
    with releases_are_lost():
        if how == "retry":
            first.retry()
        else:
            engine = stage.onlooker.engine
            dead = dead_before(engine, "default", engine.time.latest_us() + 1)
            assert sum_of(drop_dead(engine, dead)).done == 1
        for _ in range(3):
            stage.turn(stage.process(stage.store))
            stage.clock.advance(31)
    assert (second.status, third.status) == ("done", "done")


def test_a_release_that_is_refused_is_repeated(stages: Stages) -> None:
    """Another process has just let the job check sooner (rule J10)."""
    stage = stages.fresh()
    book = stage.onlooker.task_named("book")
    first, second = book.using(after=60).enqueue(0), book.enqueue(1)
    changed: list[Row] = []
    released = orders._released

    def changed_before(engine: Engine, row: Row, now_us: int) -> Move:
        if not changed:
            changed.append(row)
            at_us = now_us + 1_000_000
            engine.store.settle([orders._moved(engine, row, at_us, parked_us=at_us)])
        return released(engine, row, now_us)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orders, "_released", changed_before)
        first.cancel()
    stage.turn(stage.process(stage.store))
    assert changed
    assert second.status == "done"
