"""Resets and forks of durable functions, on each kind of store (W15, rules D8, D12, D13)."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dueline import BadInput, Conflict, Dueline, DurableContext, Job, Retry
from tests.harness.addresses import IN_MEMORY, LONG_ON_CASSANDRA
from tests.harness.durable_stage import DisturbedStore, DurableStage, Stages
from tests.harness.programs import WAIT_S, wait_for

EVERY = pytest.mark.parametrize("url", [*IN_MEMORY, *LONG_ON_CASSANDRA], indirect=True)


def wait_for_signal(job: Job[Any], signal: str) -> None:
    """Wait until a function waits for a signal."""
    wait_for(
        lambda: job.explain().reason == "signal" and f"signal {signal} " in str(job.explain()),
        "the function waits for a signal",
    )


@EVERY
def test_a_reset_and_a_fork_go_on_after_a_call(url: str) -> None:
    """Fork and reset a function that waits: calls after the position are made again."""
    made: list[str] = []
    with closing(Dueline(url)) as app:

        def book(what: str) -> str:
            made.append(what)
            return what

        @app.task(name="ask")
        def ask(what: str) -> str:
            return book(what).upper()

        @app.durable(name="trip")
        def trip(ctx: DurableContext) -> list[str]:
            key = str(ctx.uuid())
            car: str = ctx.step(book, "car", name="car")
            hotel = ctx.call(ask, "hotel")
            first: str = ctx.wait_signal("first")
            return [key, car, hotel, first, ctx.wait_signal("go")]

        with app.worker():
            job = trip.enqueue()
            job.signal("first", "a")
            wait_for_signal(job, "go")
            assert made == ["car", "hotel"]
            fork = job.reset(to=1, as_new=True)
            assert fork.id != job.id
            wait_for_signal(fork, "first")
            assert made == ["car", "hotel", "hotel"]
            with pytest.raises(BadInput, match="there is no call 9"):
                job.reset(to=9)
            made.clear()
            assert job.reset(to=0).id == job.id
            wait_for(lambda: made == ["car", "hotel"], "the steps were made")
            wait_for_signal(job, "go")  # a signal that a dropped call took is taken again
            for each in (job, fork):
                each.signal("go", "b")
            fork.signal("first", "c")
            ended, forked = job.result(timeout=WAIT_S), fork.result(timeout=WAIT_S)
        assert ended[1:] == ["car", "HOTEL", "a", "b"]
        assert forked[1:] == ["car", "HOTEL", "c", "b"]
        assert ended[0] != forked[0]
        assert made == ["car", "hotel"]


@EVERY
def test_a_dead_function_is_reset_unless_it_was_compensated(url: str) -> None:
    """Reset a dead function; after compensations, only a new one goes on from its records."""
    made: list[str] = []
    undone: list[str] = []
    fails = [True]
    with closing(Dueline(url)) as app:

        def book(what: str) -> str:
            made.append(what)
            if what == "hotel" and fails:
                raise ValueError("full")
            return what

        @app.durable(name="trip", retry=Retry(attempts=1))
        def trip(ctx: DurableContext, *, undoes: bool) -> list[str]:
            undo = undone.append if undoes else None
            car: str = ctx.step(book, "car", name="car", undo=undo)
            return [car, ctx.step(book, "hotel", name="hotel")]

        with app.worker():
            plain, undoing = trip.enqueue(undoes=False), trip.enqueue(undoes=True)
            wait_for(lambda: plain.status == undoing.status == "dead", "the functions are dead")
            fails.clear()
            with pytest.raises(Conflict, match="compensations ran"):
                undoing.reset(to=1)
            new = undoing.reset(to=1, as_new=True)
            plain.reset(to=0)
            for job in (plain, new):
                assert job.result(timeout=WAIT_S) == ["car", "hotel"]
        assert (undoing.status, undone) == ("dead", ["car"])
        assert sorted(made) == ["car"] * 3 + ["hotel"] * 4


@pytest.mark.parametrize("as_new", [False, True])
def test_a_function_that_is_decided_to_be_dead_is_reset(tmp_path: Path, *, as_new: bool) -> None:
    """Stop its worker at each call: it is dead before its row is, which the reset finishes."""
    # rule D8
    fails = [True]

    def declare(app: Dueline, stage: DurableStage) -> None:
        del stage

        def act() -> None:
            if fails:
                raise ValueError("full")

        @app.durable(name="run", retry=Retry(attempts=1))
        def run(ctx: DurableContext) -> str:
            ctx.step(act, name="act", retry=Retry(attempts=1))
            return "done"

    stages = Stages("steps", tmp_path, declare)
    resets = 0
    at, was_stopped = 0, True
    while was_stopped:
        at += 1
        fails[:] = [True]
        stage = stages.fresh()
        stage.begin()
        store = DisturbedStore(stage.store, at, "stop", lambda: None)
        stage.turn(stage.process(store), store)
        was_stopped = store.is_dead
        if stage.job.status == "dead":
            fails.clear()
            again = stage.job.reset(to=0, as_new=as_new)
            stage.others_turn()
            assert again.result(timeout=0) == "done", at
            resets += 1
    stages.close()
    assert resets > 2
